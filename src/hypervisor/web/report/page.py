"""The report of a batch as one page. Takes the data, returns the text; reads nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from jinja2 import Template

from hypervisor import __version__
from hypervisor.batches.report import BatchReport
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import money_text, pluralize
from hypervisor.resources.limits import size_text
from hypervisor.web.rendering import environment, inlined
from hypervisor.web.report import charts, gains, stages
from hypervisor.web.report.text import by_state, moment, number, printed, took, words

OPEN = ("in_progress", "merging", "active", "waiting", "inbox")
FILTERS = {
    "by_state": by_state,
    "pluralize": pluralize,
    "moment": moment,
    "number": number,
    "printed": printed,
    "size": size_text,
    "took": took,
    "when": moment,
    "words": words,
}


class Figure(NamedTuple):
    name: str
    value: str
    kind: str = ""


def page(report: BatchReport, data: Any = None) -> str:
    """The whole page; `data`, if any, is kept in it as JSON for programs."""
    return _template().render(
        report=report,
        data=data,
        version=__version__,
        verdict=_verdict(report),
        facts=list(_figures(report)),
        answer=stages.answer(report.pattern.reduce) if report.pattern else [],
        stages=stages.rows(report.pattern) if report.pattern else [],
        timeline=report.timeline,
        lanes=charts.lanes(report.timeline),
        outcomes=charts.outcomes(report.timeline),
        ticks=charts.ticks(report.timeline),
        columns=charts.columns(report.durations),
        curves=list(gains.curves(report.learned)),
        **inlined(("base.css", "report.css"), "report.js"),
    )


@cache
def _template() -> Template:
    env = environment()
    env.filters.update(FILTERS)
    return env.get_template("report/page.html")


def _verdict(report: BatchReport) -> tuple[str, str]:
    """Its kind and its text."""
    left = sum(report.states.get(name, 0) for name in OPEN)
    if report.succeeded:
        return "", "Everything succeeded"
    if not report.total:
        return "open", "No tasks yet"
    if report.pattern:
        kind = "bad" if report.pattern.unsuccessful else "open"
        return kind, stages.unfinished(report.pattern)
    if report.bad:
        more = f", {left:,} not finished" if left else ""
        return "bad", f"{report.bad:,} of {report.total:,} did not succeed{more}"
    return "open", f"{left:,} of {report.total:,} not finished"


def _figures(report: BatchReport) -> Iterator[Figure]:
    done = report.states.get("done", 0)
    span = sum(end - start for start, end in report.timeline.stretches)
    yield Figure("tasks", number(report.total))
    if report.bad:
        yield Figure("did not succeed", number(report.bad), "bad")
    yield Figure("runtime", took(span) if span else "–")
    if span and done:
        yield Figure("done per minute", f"{done * 60_000 / span:,.0f}")
    if span:
        yield Figure("average concurrency", f"{report.timeline.at_once:g}")
    yield Figure("attempts", number(report.attempts))
    if report.cpu_seconds:
        yield Figure("CPU time", took(report.cpu_seconds * 1000))
    if report.peak_bytes:
        yield Figure("peak memory", size_text(report.peak_bytes))
    if report.tokens:
        yield Figure("tokens", number(report.tokens))
    if report.cost is not None:
        name = "estimated cost" if report.estimated else "cost"
        yield Figure(name, money_text(round(report.cost * 1e6)))
