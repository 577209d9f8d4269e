"""What is learned about a type of task on a host: one record, made from samples of attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypervisor.learning.evidence import Evidence, Level, add_attempt
from hypervisor.learning.posterior import Posterior
from hypervisor.queue.task import Json

PLAIN = "run"  # the type of tasks that were given none
LONGEST = 60
RECENT = 64
BUSY = 0.5  # of the time on a CPU makes work CPU-bound
MANY = 0.2
BIG = 64 << 10  # kilobytes


class Sample(NamedTuple):
    """One ended attempt, as the learner sees it. Unknown figures are None."""

    seconds: float
    at_once: float
    outcome: str  # "done", "failed", …
    cpu_seconds: float | None = None
    peak_kb: int | None = None
    queued: float = 0.0  # seconds that it waited to be begun
    tokens: int = 0
    cost_micros: int | None = None
    limited: bool = False  # an agent that met its provider's limit
    at_first: int = 0  # how many ran when it began


class Record(NamedTuple):
    """All that is kept of a type: the evidence of what parallelism is worth, and the last
    samples as they were."""

    type: str
    agent: str = ""
    evidence: Evidence = Evidence()
    done: int = 0
    failed: int = 0
    recent: tuple[Sample, ...] = ()
    skill: str = ""


class Quantiles(NamedTuple):
    median: float
    most: float  # nine of ten are below


class Work(NamedTuple):
    """What runs the tasks of a batch, as far as that tells kinds of work apart."""

    program: str = ""  # the command line or function
    skill: str = ""

    @classmethod
    def of_batch(cls, spec: Json) -> Work:
        """By the spec of the batch as the store keeps it."""
        command, function = spec.get("command") or (), spec.get("function") or ""
        return cls(" ".join(command) or function, spec.get("skill") or "")


def kind_of(task_type: str, work: Work, agent: str = "") -> str:
    """What is learned together: a type, told apart by the skill and the agent. Tasks that were
    given no type are told apart by what runs them."""
    kind = task_type
    if work.skill:
        kind = f"skill {work.skill}"
        if task_type not in (PLAIN, work.skill):
            kind = f"{kind}: {task_type}"
    elif kind == PLAIN and not agent:
        kind = f"{PLAIN}: {work.program}"[:LONGEST]
    return f"{kind} ({agent})" if agent else kind


def add_to_record(record: Record, sample: Sample, cores: int = 0) -> Record:
    """The record with one more sample, from a host with so many cores (0: unknown). How long a
    failure took says nothing about the work."""
    done = sample.outcome == "done"
    evidence = record.evidence
    if done:
        busy = (sample.cpu_seconds or 0.0) / cores if cores else 0.0
        evidence = add_attempt(evidence, sample.at_once, sample.seconds, busy, sample.at_first)
    return record._replace(
        evidence=evidence,
        done=record.done + done,
        failed=record.failed + (not done),
        recent=(*record.recent, sample)[-RECENT:],
    )


def success(record: Record) -> float | None:
    total = record.done + record.failed
    return record.done / total if total else None


def quantiles(values: Sequence[float]) -> Quantiles | None:
    ordered = sorted(values)
    if not ordered:
        return None
    last = len(ordered) - 1
    return Quantiles(ordered[round(0.5 * last)], ordered[round(0.9 * last)])


def cpu_alone(record: Record) -> float | None:
    """The share of its time that an attempt is on a CPU, with as few others as was ever seen:
    those that wait for the CPU too hide what it needs."""
    known = [s for s in record.recent if s.cpu_seconds is not None and s.seconds > 0]
    if not known:
        return None
    fewest = min(round(each.at_once) for each in known)
    few = [s for s in known if round(s.at_once) == fewest]
    return min(sum(s.cpu_seconds or 0 for s in few) / sum(s.seconds for s in few), 1.0)


def bottleneck(record: Record, posterior: Posterior) -> str:
    """What keeps more workers from doing more: cpu, memory, lock, quota; "wait" if nothing does
    and attempts mostly wait; "" while that cannot be told."""
    recent = record.recent
    if recent and sum(each.limited for each in recent) > MANY * len(recent):
        return "quota"
    share = cpu_alone(record)
    if share is None or record.evidence.samples < 5:
        return ""
    if share > BUSY:
        return "cpu"
    if posterior.chance(lambda p: p.served <= 1.25 or p.wait >= 0.6) > BUSY:
        return "lock"
    peaks = quantiles([s.peak_kb for s in recent if s.peak_kb is not None])
    if posterior.chance(lambda p: p.cost >= 0.03) > BUSY:
        return "memory" if peaks and peaks.median > BIG else "lock"
    tried = max(record.evidence.levels, default=1)
    if posterior.chance(lambda p: p.served < 0.9 * tried) > BUSY:
        return "quota"
    return "wait"


def record_data(record: Record) -> dict[str, Any]:
    """The record as it is kept."""
    known = record.evidence
    return {
        "type": record.type,
        "agent": record.agent,
        "skill": record.skill,
        "done": record.done,
        "failed": record.failed,
        "levels": {str(n): [round(x, 6) for x in level] for n, level in known.old.items()},
        "fresh": [[n, round(value, 6), cores] for n, value, cores in known.fresh],
        "samples": known.samples,
        "changes": known.changes,
        "changed": known.changed,
        "level": known.level,
        "run": known.run,
        "recent": [list(each) for each in record.recent],
    }


def record_from(data: dict[str, Any]) -> Record:
    evidence = Evidence(
        {int(n): Level(*values) for n, values in data["levels"].items()},
        tuple((int(n), value, cores) for n, value, cores in data.get("fresh", ())),
        data["samples"],
        data["changes"],
        data["changed"],
        data["level"],
        data["run"],
    )
    recent = tuple(Sample(*sample) for sample in data["recent"])
    counts = (data["done"], data["failed"])
    return Record(data["type"], data["agent"], evidence, *counts, recent, data.get("skill", ""))
