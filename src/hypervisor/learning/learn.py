"""What is known about running a type of task in parallel: learned here, or claimed by a person.

A claim counts as a few samples; evidence overrides it. Both are shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.learning.policy import Choice, choose, levels
from hypervisor.learning.posterior import Claim, Posterior, Range, posterior
from hypervisor.learning.record import (
    PLAIN,
    Quantiles,
    Record,
    Work,
    bottleneck,
    cpu_alone,
    kind_of,
    quantiles,
    record_from,
    success,
)
from hypervisor.queue.context import Context
from hypervisor.store import settings

PRIOR = "parallel prior "  # and a type, in the settings
LEARNED = "learned "  # and a host, in the settings; then a bar and a kind of work
SHOWN = (1, 2, 4, 8)
MOST_SHOWN = 8  # workers, in a report
MOST_KINDS = 4
LARGEST_PRIOR = 10_000


class Gain(NamedTuple):
    """What so many workers do, as a multiple of one, and the share of time that they save."""

    workers: int
    throughput: Range
    benefit: Range


class Learned(NamedTuple):
    """What is believed about a type of task on this host. `parallel_benefit` is the share of
    time that the best number of workers saves; `next` is what `adaptive` would do now."""

    name: str
    type: str
    agent: str
    samples: int
    success: float | None
    seconds: Quantiles | None
    queued: Quantiles | None
    peak_bytes: Quantiles | None
    cpu: float | None  # the share of its time that one is on a CPU
    tokens: int  # of the last samples, each …
    cost_micros: int | None  # … on average
    bottleneck: str
    parallel_benefit: Range
    gains: tuple[Gain, ...]
    next: Choice
    changes: int  # how often what was known turned out to be void
    said: dict[str, Any] | None  # by learn_parallelization
    skill: str = ""


def learnings(hv: Context, task_type: str | None = None, workers: int = 8) -> tuple[Learned, ...]:
    """Show what parallelism is worth for each type of task, and how many workers follow from it."""
    validate.number("the number of workers", workers, 1, 256)
    known = records(hv, hv.probe.host())
    priors = hv.store.read(settings.settings_like, PRIOR)
    for name in priors:
        kind = name.removeprefix(PRIOR)
        if not any(record.type == kind for record in known.values()):
            known[kind] = Record(kind)
    wanted = {
        kind: record
        for kind, record in known.items()
        if task_type is None or task_type in (kind, record.type)
    }
    if task_type is not None and not wanted:
        raise NotFound(
            f"nothing is known about the type {task_type!r} yet. `hv learn` lists what is."
        )
    return tuple(
        _learned(kind, wanted[kind], priors.get(PRIOR + wanted[kind].type), workers)
        for kind in sorted(wanted)
    )


def gain_of_skill(hv: Context, name: str, workers: int = 8) -> Learned | None:
    """What the record of a skill says about running it in parallel on this host: of all that it
    runs, what was seen most. None if it never ran here."""
    known = records(hv, hv.probe.host())
    found = {kind: record for kind, record in known.items() if record.skill == name}
    if not found:
        return None
    kind = max(found, key=lambda each: found[each].done + found[each].failed)
    return _learned(
        kind, found[kind], hv.store.read(settings.setting, PRIOR + found[kind].type), workers
    )


def learned_about(hv: Context, work: Work, types: Iterable[str]) -> tuple[Learned, ...]:
    """What has been learned on this host about the tasks of these types in a batch."""
    known, wanted = records(hv, hv.probe.host()), set(types)
    return tuple(
        _learned(kind, record, hv.store.read(settings.setting, PRIOR + record.type), MOST_SHOWN)
        for kind, record in sorted(known.items())
        if record.type in wanted and kind == kind_of(record.type, work, record.agent)
    )[:MOST_KINDS]


def learn_parallelization(
    hv: Context,
    task_type: str,
    parallel_benefit: float,
    notes: str = "",
    resource_cost: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Keep what you learned about running a type of task in parallel, for later runs."""
    validate.name("the type", task_type)
    if not -1 <= parallel_benefit <= 1:
        raise InvalidInput(
            "the benefit is the share of time saved: from 0 (none) to 1, below 0 if it harms."
        )
    prior = {
        "benefit": parallel_benefit,
        "notes": validate.text("the notes", notes, 2_000),
        "cost": validate.json_value("the cost", dict(resource_cost or {})),
        "by": hv.actor,
        "at": hv.now(),
    }
    text = json.dumps(prior)
    if len(text) > LARGEST_PRIOR:
        raise InvalidInput("the cost says too much. Nothing was kept.")
    hv.store.write(settings.set_setting, PRIOR + task_type, text)
    return prior


def prior_of(hv: Context, task_type: str) -> dict[str, Any] | None:
    """What somebody has said about running a type of task in parallel."""
    text = hv.store.read(settings.setting, PRIOR + task_type)
    return json.loads(text) if text else None


def claim_of(hv: Context, task_type: str) -> Claim | None:
    """The same, as a posterior can use it."""
    return _claim(prior_of(hv, task_type))


# Where it is kept


def where_kept(host: str, kind: str | None = None) -> str:
    """The setting with what is known of a kind of work; without one, with the last event seen."""
    return f"{LEARNED}{host}" if kind is None else f"{LEARNED}{host}|{kind}"


def records(hv: Context, host: str) -> dict[str, Record]:
    """What is known of each kind of work. What another version wrote is left out."""
    prefix = where_kept(host, "")
    found = {}
    for name, text in hv.store.read(settings.settings_like, prefix).items():
        try:
            found[name.removeprefix(prefix)] = record_from(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def seen_up_to(hv: Context, host: str) -> int | None:
    """The last event that was looked at, None if none ever was."""
    text = hv.store.read(settings.setting, where_kept(host))
    return None if text is None else int(text)


def _learned(kind: str, record: Record, prior: str | None, workers: int) -> Learned:
    claim = json.loads(prior) if prior else None
    believed = posterior(record.evidence, _claim(claim))
    recent = record.recent
    costs = [each.cost_micros for each in recent if each.cost_micros is not None]
    peaks = [1024.0 * each.peak_kb for each in recent if each.peak_kb is not None]
    top = min(levels(workers), key=lambda n: (believed.time(n), n))
    return Learned(
        kind,
        record.type or PLAIN,
        record.agent,
        record.done + record.failed,
        success(record),
        quantiles([each.seconds for each in recent if each.outcome == "done"]),
        quantiles([each.queued for each in recent]),
        quantiles(peaks),
        cpu_alone(record),
        sum(each.tokens for each in recent) // len(recent) if recent else 0,
        sum(costs) // len(costs) if costs else None,
        bottleneck(record, believed),
        believed.benefit(max(top, min(2, workers))),
        _gains(believed, workers),
        choose(believed, workers),
        record.evidence.changes,
        claim,
        record.skill,
    )


def _gains(believed: Posterior, workers: int) -> tuple[Gain, ...]:
    shown = sorted({*(n for n in SHOWN if n <= workers), *levels(workers)})
    return tuple(Gain(n, believed.throughput(n), believed.benefit(n)) for n in shown)


def _claim(prior: dict[str, Any] | None) -> Claim | None:
    return None if prior is None else Claim(float(prior["benefit"]))
