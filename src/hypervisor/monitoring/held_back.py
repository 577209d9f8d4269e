"""All reasons why tasks do not start, not only the first: each with what it concerns."""

from __future__ import annotations

from typing import Literal

from hypervisor.agents.cooldown import cooldown_text
from hypervisor.agents.running_status import used_up_today
from hypervisor.core.records import NamedTuple
from hypervisor.monitoring.status import Status
from hypervisor.monitoring.waiting import WaitKind, by_load, by_requirements, pause_text
from hypervisor.queue.context import Context
from hypervisor.queue.counts import batch_counts
from hypervisor.queue.lifecycle import ACTIVE
from hypervisor.queue.pause import BATCH
from hypervisor.queue.queries import batches
from hypervisor.runs.supervise import NO_SUPERVISOR

ReasonKind = WaitKind | Literal["budget", "supervisor"]
MAX_BATCHES = 50  # newest batches, among which a run is looked for


class Reason(NamedTuple):
    """`batch`: the id of the batch that it concerns, "" for all. `command`: what would help."""

    kind: ReasonKind
    text: str
    batch: str = ""
    command: str = ""


def held_back(hv: Context, status: Status, now: int) -> tuple[Reason, ...]:
    """Why tasks do not start, for the whole store."""
    ready = status.stats.states[ACTIVE]
    reasons = [
        *([Reason("disk", status.trouble)] if status.trouble else []),
        *_pauses(status),
        *(Reason("rate_limit", cooldown_text(each, now, None)) for each in status.cooldowns),
        *(Reason("budget", text) for text in used_up_today(hv, now)),
    ]
    if ready:
        found = by_load(status), by_requirements(status, ready)
        reasons += [Reason(each.kind, each.reason) for each in found if each]
    if ready and status.supervisor is None and _has_ready_run(hv):
        reasons.append(Reason("supervisor", NO_SUPERVISOR, command="hv supervise --detach"))
    seen = {reason.text for reason in reasons}
    if status.waiting and status.waiting.reason not in seen and status.waiting.kind != "pause":
        reasons.append(Reason(status.waiting.kind, status.waiting.reason))
    return tuple(reasons)


def _pauses(status: Status) -> list[Reason]:
    return [
        Reason("pause", pause_text(pause), pause.name)
        if pause.scope == BATCH
        else Reason("pause", f"{pause.name or 'everything'} is {pause_text(pause)}")
        for pause in status.pauses
    ]


def _has_ready_run(hv: Context) -> bool:
    """Whether a task is ready that a supervisor would run: others wait for a claim."""
    runs = [batch.id for batch in batches(hv, MAX_BATCHES) if batch.spec]
    counts = batch_counts(hv, runs) if runs else {}
    return any(count.states.get(ACTIVE) for count in counts.values())
