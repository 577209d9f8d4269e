"""Knowledge about running a type of task in parallel: learned here, or claimed by a person.

A claim counts as a few samples; evidence overrides it. Both are shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.core.records import NamedTuple
from hypervisor.learning import sql
from hypervisor.learning.policy import Choice, choose, levels
from hypervisor.learning.posterior import Posterior, Range, claim_from, posterior
from hypervisor.learning.record import (
    PLAIN,
    Quantiles,
    Record,
    Work,
    bottleneck,
    cpu_alone,
    kind_of,
    quantiles,
    success,
)
from hypervisor.learning.sql import records
from hypervisor.queue.context import Context

SHOWN = (1, 2, 4, 8)
MAX_SHOWN = 8  # workers, in a report
MAX_KINDS = 4
MAX_PRIOR_SIZE = 10_000


class Gain(NamedTuple):
    """The throughput of this many workers, as a multiple of one worker's, and the share of time
    they save."""

    workers: int
    throughput: Range
    benefit: Range


class Learned(NamedTuple):
    """Estimates for a type of task on this host. `parallel_benefit` is the share of time that the
    best number of workers saves; `next` is what `adaptive` would do now."""

    name: str
    type: str
    agent: str
    samples: int
    success: float | None
    seconds: Quantiles | None
    queued: Quantiles | None
    peak_bytes: Quantiles | None
    cpu: float | None  # the share of its time that an attempt uses a CPU
    tokens: int  # of the last samples, each …
    cost_micros: int | None  # … on average
    bottleneck: str
    parallel_benefit: Range
    gains: tuple[Gain, ...]
    next: Choice
    changes: int  # how often conditions have changed
    stated: dict[str, Any] | None  # by learn_parallelization
    skill: str = ""


def learnings(hv: Context, task_type: str | None = None, workers: int = 8) -> tuple[Learned, ...]:
    """Show how much each type of task gains from parallel workers, and the number to use."""
    validate.number("the number of workers", workers, 1, 256)
    known = records(hv, hv.probe.host())
    priors = hv.store.read(sql.priors)
    for kind in priors:
        if not any(record.type == kind for record in known.values()):
            known[kind] = Record(kind)
    wanted = {
        kind: record
        for kind, record in known.items()
        if task_type is None or task_type in (kind, record.type)
    }
    if task_type is not None and not wanted:
        raise NotFound(
            f"nothing learned about the type {task_type!r} yet. `hv learn` lists the known types."
        )
    return tuple(
        _learned(kind, wanted[kind], priors.get(wanted[kind].type), workers)
        for kind in sorted(wanted)
    )


def gain_of_skill(hv: Context, name: str, workers: int = 8) -> Learned | None:
    """Estimates for running a skill in parallel on this host, for the kind of its work that ran
    most. None if it never ran here."""
    known = records(hv, hv.probe.host())
    of_skill = {kind: record for kind, record in known.items() if record.skill == name}
    if not of_skill:
        return None
    kind = max(of_skill, key=lambda name: of_skill[name].done + of_skill[name].failed)
    return _learned(kind, of_skill[kind], sql.prior_of(hv, of_skill[kind].type), workers)


def learned_about(hv: Context, work: Work, types: Iterable[str]) -> tuple[Learned, ...]:
    """Estimates on this host for tasks of these types in a batch."""
    known, wanted = records(hv, hv.probe.host()), set(types)
    return tuple(
        _learned(kind, record, sql.prior_of(hv, record.type), MAX_SHOWN)
        for kind, record in sorted(known.items())
        if record.type in wanted
        and kind == kind_of(record.type, work, record.agent)
        and not (work.program and record.agent)  # no agent runs a command
    )[:MAX_KINDS]


def learn_parallelization(
    hv: Context,
    task_type: str,
    parallel_benefit: float,
    notes: str = "",
    resource_cost: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Record how much a type of task gains from running in parallel, for later runs."""
    validate.name("the type", task_type)
    if not -1 <= parallel_benefit <= 1:
        raise InvalidInput(
            "the benefit must be the share of time saved: 0 to 1, or negative if parallel is "
            "slower."
        )
    prior = {
        "benefit": parallel_benefit,
        "notes": validate.text("the notes", notes, 2_000),
        "cost": validate.json_value("the cost", dict(resource_cost or {})),
        "by": hv.actor,
        "at": hv.now(),
    }
    text = json.dumps(prior)
    if len(text) > MAX_PRIOR_SIZE:
        raise InvalidInput("the cost is too long. Nothing was saved.")
    hv.store.write(sql.set_prior, task_type, text)
    return prior


def _learned(kind: str, record: Record, prior: dict[str, Any] | None, workers: int) -> Learned:
    estimate = posterior(record.evidence, claim_from(prior))
    recent = record.recent
    costs = [sample.cost_micros for sample in recent if sample.cost_micros is not None]
    peaks = [1024.0 * sample.peak_kb for sample in recent if sample.peak_kb is not None]
    top = min(levels(workers), key=lambda n: (estimate.time(n), n))
    return Learned(
        kind,
        record.type or PLAIN,
        record.agent,
        record.done + record.failed,
        success(record),
        quantiles([sample.seconds for sample in recent if sample.outcome == "done"]),
        quantiles([sample.queued for sample in recent]),
        quantiles(peaks),
        cpu_alone(record),
        sum(sample.tokens for sample in recent) // len(recent) if recent else 0,
        sum(costs) // len(costs) if costs else None,
        bottleneck(record, estimate),
        estimate.benefit(max(top, min(2, workers))),
        _gains(estimate, workers),
        choose(estimate, workers),
        record.evidence.changes,
        prior,
        record.skill,
    )


def _gains(estimate: Posterior, workers: int) -> tuple[Gain, ...]:
    shown = sorted({*(n for n in SHOWN if n <= workers), *levels(workers)})
    return tuple(Gain(n, estimate.throughput(n), estimate.benefit(n)) for n in shown)
