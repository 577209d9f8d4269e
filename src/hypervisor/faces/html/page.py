"""The report of a batch as one page. Takes the data, gives the text; looks at nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from hypervisor.domain.chunk import Chunk
from hypervisor.domain.version import VERSION
from hypervisor.faces.html.charts import Row, bars, histogram, share_bar, timeline
from hypervisor.faces.html.gains import gains
from hypervisor.faces.html.stages import stages, whole_verdict
from hypervisor.faces.html.style import CSS, SCRIPT, policy
from hypervisor.faces.html.text import (
    attribute,
    data_block,
    moment,
    printed,
    say,
    size_text,
    took,
)
from hypervisor.operations.report import BatchReport, Failure, TaskLine

STATES = (
    "done", "failed", "blocked", "review", "cancelled", "in_progress", "merging", "active",
    "waiting", "inbox",
)  # fmt: skip
OPEN = ("in_progress", "merging", "active", "waiting", "inbox")


def page(report: BatchReport, data: str | None = None) -> str:
    """The whole page; `data` is the same report as JSON, kept in the page for programs."""
    table, answer = stages(report.pattern)
    sections = (
        _section("Answer", answer), _section("Stages", table), _timeline(report),
        _durations(report), _learned(report), _categories(report), _chunks(report),
        _failures(report), _slowest(report), _receipts(report), _tasks(report),
    )  # fmt: skip
    block = f'<script type="application/json" id="data">{data_block(data)}</script>' if data else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="robots" content="noindex">'
        f"<title>{attribute(report.batch)} · Hypervisor</title><style>{CSS}</style></head>\n<body>"
        f"{_head(report)}{''.join(sections)}"
        f"<footer>Made by Hypervisor {VERSION} on {moment(report.made_at)} from batch "
        f'<span class="id">{attribute(report.id)}</span>.</footer>'
        f"{block}<script>{SCRIPT}</script></body></html>\n"
    )


def _head(report: BatchReport) -> str:
    states = {name: report.states[name] for name in STATES if report.states.get(name)}
    legend = "".join(
        f'<li><i class="{name}"></i>{count:,} {name.replace("_", " ")}</li>'
        for name, count in states.items()
    )
    what = f'<p class="what"><code>{say(report.what)}</code></p>' if report.what else ""
    return (
        f"<header>{_verdict(report)}<h1>{say(report.batch)}</h1>{what}</header>"
        f"{_figures(report)}{share_bar(states, report.total)}"
        f'<ul class="legend">{legend}</ul>'
    )


def _verdict(report: BatchReport) -> str:
    left = sum(report.states.get(name, 0) for name in OPEN)
    if report.succeeded:
        return '<p class="verdict">Everything succeeded</p>'
    if not report.total:
        return '<p class="verdict open">Nothing in it yet</p>'
    if report.pattern:
        return whole_verdict(report.pattern)
    if report.bad:
        more = f", {left:,} not finished" if left else ""
        said = f"{report.bad:,} of {report.total:,} did not succeed{more}"
        return f'<p class="verdict bad">{said}</p>'
    return f'<p class="verdict open">{left:,} of {report.total:,} not finished</p>'


def _figures(report: BatchReport) -> str:
    done = report.states.get("done", 0)
    span = sum(end - start for start, end in report.timeline.stretches)
    pace = f"{done * 60_000 / span:,.0f}" if span and done else ""
    figures = [
        ("tasks", f"{report.total:,}", ""),
        ("did not succeed", f"{report.bad:,}" if report.bad else "", "bad"),
        ("runtime", took(span) if span else "–", ""),
        ("done per minute", pace, ""),
        ("at once, on average", f"{report.timeline.at_once:g}" if span else "", ""),
        ("attempts", f"{report.attempts:,}", ""),
        ("CPU time", took(report.cpu_seconds * 1000) if report.cpu_seconds else "", ""),
        ("peak memory", size_text(report.peak_bytes) if report.peak_bytes else "", ""),
        ("tokens", f"{report.tokens:,}" if report.tokens else "", ""),
        ("estimated cost" if report.estimated else "cost", _cost(report), ""),
    ]
    shown = "".join(
        f'<div class="{kind}"><dt>{name}</dt><dd>{value}</dd></div>'
        for name, value, kind in figures
        if value
    )
    return f'<dl class="figures">{shown}</dl>'


def _cost(report: BatchReport) -> str:
    return f"{report.cost:,.2f}" if report.cost is not None else ""


def _section(title: str, inner: str, note: str = "") -> str:
    told = f'<p class="note">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{told}{inner}</section>" if inner else ""


def _timeline(report: BatchReport) -> str:
    found = report.timeline
    if not found.lanes:
        return ""
    segments = [each for lane in found.lanes for each in lane.segments]
    outcomes = {each.outcome for each in segments} | {"failed" for each in segments if each.bad}
    legend = "".join(f'<li><i class="{name}"></i>{name}</li>' for name in sorted(outcomes))
    parts = [f"{moment(report.begun)} to {moment(report.ended)}"]
    if len(found.lanes) < found.workers:
        parts.append(f"{found.workers:,} workers, one after the other in the same lane")
    if not found.single:
        parts.append("the paler, the less was worked; red is the share without success")
    if len(found.stretches) > 1:
        parts.append("pauses are cut out")
    drawn = timeline(found) + f'<ul class="legend">{legend}</ul>'
    return _section("Workers over time", drawn, "; ".join(parts) + ".")


def _durations(report: BatchReport) -> str:
    if not report.durations or report.median_ms is None:
        return ""
    note = f"Half of the attempts took {took(report.median_ms)} or less."
    return _section("How long attempts took", histogram(report.durations), note)


def _learned(report: BatchReport) -> str:
    note = "How much so many workers do, as a multiple of one; the band holds the truth with 90 %."
    return _section("What parallelism is worth", gains(report.learned), note)


def _categories(report: BatchReport) -> str:
    rows = [
        Row(each.name, each.items, f"{each.items:,}", " · ".join(map(say, each.samples)))
        for each in report.categories
    ]
    if not rows:
        return ""
    planned = ", ".join(f"{n:,} × {attribute(kind)}" for kind, n in report.proposals.items())
    note = f"Proposed: {planned}." if planned else ""
    return _section("Categories", bars(rows), note)


def _chunks(report: BatchReport) -> str:
    if not report.chunks:
        return ""
    rows = "".join(_chunk(each) for each in report.chunks)
    head = _heads(("#", "r"), ("Chunk", ""), ("Decision", ""), ("Tasks", "r"), ("", "wide"))
    return _section("Chunks", _table(head, rows))


def _chunk(each: Chunk) -> str:
    who = f"{say(each.actor)}, {moment(each.decided_at)}" if each.actor and each.decided_at else ""
    notes = [part for part in (who, say(each.note) if each.note else "") if part]
    states = {name: each.tasks[name] for name in STATES if each.tasks.get(name)}
    said = " · ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in states.items())
    return (
        f'<tr><td class="r">{each.number}</td><td>{say(each.name)}</td>'
        f'<td><span class="state"><i class="{attribute(each.state)}"></i>{attribute(each.state)}'
        f"</span>{''.join(f'<small>{part}</small>' for part in notes)}</td>"
        f'<td class="r">{each.total:,}</td><td class="wide">{said}</td></tr>'
    )


def _failures(report: BatchReport) -> str:
    if not report.bad:
        return ""
    causes = [Row(why, n, f"{n:,}", kind="failed") for why, n in report.reasons]
    needed = len(causes) > 1 or report.bad > len(report.failures)
    overview = bars(causes) + '<p class="note"></p>' if needed else ""
    listed = "".join(_failure(each, not number) for number, each in enumerate(report.failures))
    more = report.bad - len(report.failures)
    rest = f'<p class="note">And {more:,} more.</p>' if more else ""
    return _section(f"What did not succeed ({report.bad:,})", overview + listed + rest)


def _failure(each: Failure, is_open: bool) -> str:
    task = each.task
    lines = "\n".join(printed(line) for line in each.lines)
    output = f"<pre>{lines}</pre>" if lines else '<p class="note">It printed nothing.</p>'
    tries = f"{task.attempts:,} attempts" if task.attempts != 1 else "1 attempt"
    why = say(task.said or task.state)
    return (
        f"<details{' open' if is_open else ''}><summary>"
        f'<span class="name">{say(task.title)}</span><span class="why">{why}</span>'
        f'<span class="cost">{took(task.milliseconds)}</span></summary><div>{output}'
        f'<p class="note"><span class="id">{attribute(task.id)}</span> · {attribute(task.state)} · '
        f"{tries} · <code>hv logs {attribute(task.id)}</code></p></div></details>"
    )


def _slowest(report: BatchReport) -> str:
    rows = [
        Row(task.title, task.milliseconds, took(task.milliseconds), "", _kind(task.state))
        for task in report.slowest
    ]
    if report.total <= len(rows) or not rows or not rows[0].number:
        return ""
    return _section("The slowest", bars(rows))


def _kind(state: str) -> str:
    return state if state in STATES else "done"


def _receipts(report: BatchReport) -> str:
    if not report.receipts:
        return ""
    shown, total = len(report.receipts), report.receipts_total
    some = f"The last {shown:,} of {total:,}. " if shown < total else ""
    rows = "".join(
        f'<tr><td class="t">{moment(each.at)}</td><td>{say(each.actor)}</td>'
        f'<td>{say(each.text)}</td><td class="id wide">{attribute(each.task)}</td>'
        f'<td class="id wide">#{each.number} {attribute(each.hash[:8])}</td></tr>'
        for each in report.receipts
    )
    head = _heads(("When", ""), ("Who", ""), ("What", ""), ("Task", "wide"), ("Hash", "wide"))
    return _section(f"Receipts ({total:,})", _table(head, rows), some + _chain(report))


def _chain(report: BatchReport) -> str:
    if report.receipts_problem is None:
        return "Every line fits the one before: nothing was changed or removed."
    if not report.receipts_problem:
        return "<code>hv receipt verify</code> checks all of them."
    return f"The chain is broken: {attribute(report.receipts_problem)}."


def _tasks(report: BatchReport) -> str:
    if not report.tasks:
        return ""
    sorted_out = any(task.category for task in report.tasks)
    category = [("Category", "wide", "t")] if sorted_out else []
    head = _heads(
        ("Task", "", "t"), ("State", "", "t"), *category, ("Tries", "r wide", "n"),
        ("Took", "r", "n"), ("CPU", "r wide", "n"), ("Memory", "r wide", "n"),
    )  # fmt: skip
    rows = "".join(_task(task, sorted_out) for task in report.tasks)
    shown = len(report.tasks)
    note = f"{shown:,} of {report.total:,}: what went wrong first." if shown < report.total else ""
    field = (
        '<input id="filter" class="only-scripted" type="search" placeholder="Filter" '
        'aria-label="Filter the tasks">'
    )
    return _section("Tasks", field + _table(head, rows, ' id="tasks"'), note)


def _task(task: TaskLine, sorted_out: bool) -> str:
    category = f'<td class="wide">{say(task.category)}</td>' if sorted_out else ""
    said = f"<small>{say(task.said)}</small>" if task.said else ""
    state = task.state.replace("_", " ")
    cpu = f"{task.cpu_seconds:.2f} s" if task.cpu_seconds else ""
    memory = size_text(task.peak_bytes) if task.peak_bytes else ""
    return (
        f'<tr><td>{say(task.title)}{said}</td><td class="state"><i class="{attribute(task.state)}">'
        f"</i>{attribute(state)}</td>{category}"
        f'<td class="r wide" data-v="{task.attempts}">{task.attempts}</td>'
        f'<td class="r" data-v="{task.milliseconds}">{took(task.milliseconds)}</td>'
        f'<td class="r wide" data-v="{task.cpu_seconds}">{cpu}</td>'
        f'<td class="r wide" data-v="{task.peak_bytes}">{memory}</td></tr>'
    )


def _table(head: str, rows: str, name: str = "") -> str:
    return f'<div class="scroll"><table{name}>{head}<tbody>{rows}</tbody></table></div>'


def _heads(*names: tuple[str, ...]) -> str:
    cells: Iterable[str] = (
        f'<th class="{kind}"' + (f' data-by="{by[0]}"' if by else "") + f">{name}</th>"
        for name, kind, *by in names
    )
    return f"<thead><tr>{''.join(cells)}</tr></thead>"
