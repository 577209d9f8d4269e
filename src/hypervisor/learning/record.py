"""The record of a type of task on a host, made from samples of attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hypervisor.core.records import NamedTuple
from hypervisor.learning.evidence import Evidence, Level, add_attempt
from hypervisor.queue.task import Json

if TYPE_CHECKING:
    from hypervisor.learning.posterior import Posterior

PLAIN = "run"  # the type of tasks without one
MAX_LENGTH = 60
RECENT = 64
BUSY = 0.5  # of the time on a CPU makes work CPU-bound
MANY = 0.2
BIG = 64 << 10  # kilobytes


class Sample(NamedTuple):
    """One ended attempt. Unknown figures are None."""

    seconds: float
    at_once: float
    outcome: str  # "done", "failed", …
    cpu_seconds: float | None = None
    peak_kb: int | None = None
    queued: float = 0.0  # seconds that it waited to start
    tokens: int = 0
    cost_micros: int | None = None
    limited: bool = False  # an agent that hit a rate limit
    at_first: int = 0  # how many ran when it began


class Record(NamedTuple):
    """The stored record of a type: the evidence about parallelism, and the last samples."""

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
    """The program or skill that runs the tasks of a batch, to distinguish kinds of work."""

    program: str = ""  # the command line or function
    skill: str = ""

    @classmethod
    def of_batch(cls, spec: Json) -> Work:
        """From the stored spec of the batch."""
        command, function = spec.get("command") or (), spec.get("function") or ""
        return cls(" ".join(command) or function, spec.get("skill") or "")


def kind_of(task_type: str, work: Work, agent: str = "") -> str:
    """The kind of work that is learned together: a type, by skill and agent. Tasks without a type
    are distinguished by their program."""
    kind = task_type
    if work.skill:
        kind = f"skill {work.skill}"
        if task_type not in (PLAIN, work.skill):
            kind = f"{kind}: {task_type}"
    elif kind == PLAIN and not agent:
        kind = f"{PLAIN}: {work.program}"[:MAX_LENGTH]
    return f"{kind} ({agent})" if agent else kind


def add_to_record(record: Record, sample: Sample, cores: int = 0) -> Record:
    """The record with one more sample, from a host with that many cores (0: unknown). The duration
    of a failure does not count."""
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
    """The share of its time that an attempt uses a CPU, among those with the fewest others at
    once: others that compete for the CPU would hide its need."""
    known = [s for s in record.recent if s.cpu_seconds is not None and s.seconds > 0]
    if not known:
        return None
    fewest = min(round(sample.at_once) for sample in known)
    few = [s for s in known if round(s.at_once) == fewest]
    return min(sum(s.cpu_seconds or 0 for s in few) / sum(s.seconds for s in few), 1.0)


def bottleneck(record: Record, posterior: Posterior) -> str:
    """Why more workers would not do more: cpu, memory, lock, quota; "wait" if there is no such
    reason and attempts mostly wait; "" if unknown."""
    recent = record.recent
    if recent and sum(sample.limited for sample in recent) > MANY * len(recent):
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
    """The record as it is stored."""
    evidence = record.evidence
    return {
        "type": record.type,
        "agent": record.agent,
        "skill": record.skill,
        "done": record.done,
        "failed": record.failed,
        "levels": {str(n): [round(x, 6) for x in level] for n, level in evidence.old.items()},
        "fresh": [[n, round(value, 6), cores] for n, value, cores in evidence.fresh],
        "samples": evidence.samples,
        "changes": evidence.changes,
        "changed": evidence.changed,
        "level": evidence.level,
        "run": evidence.run,
        "recent": [list(sample) for sample in record.recent],
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
