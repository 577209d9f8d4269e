"""What a report shows about the later stages of a batch, and the reduce."""

from __future__ import annotations

import json
from urllib.parse import quote

from hypervisor.batches.pipeline_status import Overview, Reduced, Stage
from hypervisor.core.records import NamedTuple
from hypervisor.queue.result import text_of
from hypervisor.web.report.text import words

MAX_LINES = 200


def unfinished(overview: Overview) -> str:
    """Which parts did not succeed, or not yet."""
    parts = (("did not succeed", overview.unsuccessful), ("not finished", overview.unfinished))
    text = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)
    return text[:1].upper() + text[1:]


class StageRow(NamedTuple):
    """A part of a pipeline, what it runs, and how far it is."""

    part: str
    what: str
    states: str
    path: str  # of its page in the dashboard


def rows(overview: Overview) -> list[StageRow]:
    table = [
        StageRow(f"stage {n}", stage.what, _states(stage), f"batches/{quote(stage.batch, '')}")
        for n, stage in enumerate(overview.stages, 1)
    ]
    last = overview.reduce
    if last is not None:
        reason = f" ({last.reason})" if last.reason else ""
        path = f"tasks/{quote(last.id, '')}"
        table.append(StageRow("reduce", last.what, words(last.state) + reason, path))
    return table


def answer(last: Reduced | None) -> list[str]:
    """The last lines of the reduce's output."""
    if last is None or last.state != "done":
        return []
    if last.result is None:
        return last.output.splitlines()[-MAX_LINES:]
    text = last.result if isinstance(last.result, str) else text_of(last.result, "summary")
    text = text or json.dumps(last.result, ensure_ascii=False, indent=1)
    return text.splitlines()[-MAX_LINES:]


def _states(stage: Stage) -> str:
    left = {**stage.states, "waiting": stage.states.get("waiting", 0) - stage.stuck}
    parts = [f"{count:,} {words(state)}" for state, count in left.items() if count > 0]
    if stage.stuck:
        parts.append(f"{stage.stuck:,} not started: the stage before failed")
    return ", ".join(parts)
