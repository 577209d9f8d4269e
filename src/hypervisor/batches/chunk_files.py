"""The files of a chunk: a summary in JSON, and details in Markdown for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypervisor.batches.checkpoint import Checkpoint, checkpoint
from hypervisor.batches.chunk import Chunk, file_stem
from hypervisor.core.text import money_text
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.result import actions_in, category_of, items_in, text_of
from hypervisor.queue.task import Batch
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import TaskReport

ENDED = ("done", "failed", "cancelled", "blocked", "review")


def write_chunk(
    hv: Context, batch: Batch, chunk: Chunk, every: Sequence[Chunk], now: int | None = None
) -> list[str]:
    """Write both files of a chunk, one of `every`; returns their paths."""
    reports = hv.store.read(runs_sql.report_chunk, batch.id, chunk.number, hv.at(now))
    reviewed = checkpoint(batch, chunk, reports, every)
    stem = file_stem(chunk.number)
    summary = json.dumps(summary_of(reviewed), ensure_ascii=False, indent=2) + "\n"
    return [
        hv.batch_files.write(batch.name, f"{stem}-summary.json", summary),
        hv.batch_files.write(batch.name, f"{stem}-details.md", details(reviewed, reports)),
    ]


def summary_of(reviewed: Checkpoint) -> dict[str, Any]:
    chunk = reviewed.chunk
    return {
        "batch": reviewed.batch,
        "chunk": chunk.number,
        "name": chunk.name,
        "state": chunk.state,
        "complete": not chunk.unfinished,
        "processed": sum(chunk.tasks.get(state, 0) for state in ENDED),
        "total": chunk.total,
        "states": chunk.tasks,
        "categories": reviewed.categories,
        "proposals": reviewed.proposals,
        "failures": [
            {"task": task.id, "title": task.title, "state": task.state, "reason": task.reason}
            for task in reviewed.failures
        ],
        "seconds": reviewed.seconds,
        "tokens": reviewed.tokens,
        "cost": reviewed.cost,
        "estimated": reviewed.estimated,
        "note": chunk.note,
        "decided_by": chunk.actor,
        "decided_at": chunk.decided_at,
    }


def details(reviewed: Checkpoint, reports: list[TaskReport]) -> str:
    """Every item with its category and rationale, as Markdown."""
    chunk = reviewed.chunk
    counts = ", ".join(f"{count} {name}" for name, count in reviewed.categories.items())
    lines = [
        f"# {_inline(reviewed.batch)}: {_inline(chunk.label)}",
        "",
        f"{chunk.total - chunk.unfinished} of {chunk.total} processed"
        + (f": {_inline(counts)}." if counts else "."),
        "",
    ]
    for report in reports:
        lines += _item(report)
    return "\n".join(lines) + "\n"


def _item(report: TaskReport) -> list[str]:
    parts = list(items_in(report.result)) if report.state == "done" else []
    if parts:
        return [
            line
            for part in parts
            for line in _section(text_of(part, "item") or report.title, part, report)
        ]
    return _section(report.title, report.result, report)


def _section(title: str, result: Any, report: TaskReport) -> list[str]:
    lines = [f"## {_inline(title)}", ""]
    if report.state != "done":
        reason = f": {_inline(report.reason)}" if report.reason else ""
        return [*lines, f"- {state_name(report.state)}{reason} (task {report.id})", ""]
    lines.append(f"- category: {_inline(category_of(result))}")
    for member in ("rationale", "summary", "commit"):
        if text := text_of(result, member):
            lines.append(f"- {member}: {_inline(text)}")
    for action in actions_in(result):
        lines.append(f"- proposes: {_inline(json.dumps(action, ensure_ascii=False))[:500]}")
    usage = f"{report.seconds:.1f} s, {report.attempts} attempt{'s' * (report.attempts != 1)}"
    return [*lines, f"- task {report.id}, {usage}{_spent(report)}", ""]


def _spent(report: TaskReport) -> str:
    if not report.tokens and report.cost_micros is None:
        return ""
    cost = "" if report.cost_micros is None else f", cost {money_text(report.cost_micros)}"
    return f", {report.tokens:,} tokens{cost}{' (an estimate)' if report.estimated else ''}"


def _inline(text: str) -> str:
    """The text on one line, without HTML."""
    flat = " ".join(text.split()).replace("<", "&lt;")
    return flat if flat.isprintable() else "".join(c if c.isprintable() else "�" for c in flat)
