"""What follows from the outcome of an agent's run: for the task, its account and the batch."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.agents.classify import cooldown_error
from hypervisor.agents.outcome import Action, Outcome
from hypervisor.agents.session import got_through, unreached
from hypervisor.agents.sql import sessions
from hypervisor.core.errors import StoreError
from hypervisor.queue.lease import EndEvent, Lease, Usage
from hypervisor.queue.result_schema import REFUSED, mismatch_of, refused_before
from hypervisor.queue.sql import settlement as settlement_sql
from hypervisor.runs.attempts import complete
from hypervisor.runs.settlement import token_of
from hypervisor.runs.worker import LONGEST_REASON

if TYPE_CHECKING:
    from hypervisor.agents.agent_worker import HomeCleanup
    from hypervisor.agents.context import AgentContext
    from hypervisor.agents.session import AgentSession
    from hypervisor.runs.settlement import Settlement

MOST_UNREACHED = 5  # times in a row that one task alone may meet an outage
LONGEST_TASK_REASON = 2_000
LONGEST_EVIDENCE = 200  # in the reason of a pause
MOST_OTHERS = 200


class OutcomeSettlement:
    def __init__(self, agent: AgentContext, settlement: Settlement, homes: HomeCleanup) -> None:
        self._agent, self._settlement, self._homes = agent, settlement, homes

    def mismatch_of(self, outcome: Outcome) -> str | None:
        """Why the data of a completed task does not fit the schema of the batch."""
        schema = self._agent.worker.spec.schema
        if not schema or outcome.action is not Action.COMPLETE:
            return None
        return mismatch_of(schema, outcome.result)

    def refuse(self, lease: Lease, mismatch: str, usage: Usage) -> None:
        """Once, unpunished, to be corrected in the same session; the second time it has failed."""
        reason, repeated = f"{REFUSED}{mismatch}", ""
        with suppress(StoreError):  # then it gets one chance more
            repeated = refused_before(self._agent.worker.hv, token_of(lease))
        event: EndEvent = "fail" if repeated else "release"
        self._settlement.end(lease, event, reason, usage, receipts=(reason,))

    def apply(self, lease: Lease, outcome: Outcome, usage: Usage) -> None:
        settlement, reason = self._settlement, reason_of(outcome)
        evidence = _receipts(outcome)
        match outcome.action:
            case Action.COMPLETE:
                complete(settlement, lease, outcome.result, usage, proposals=True)
            case Action.BLOCK:
                unblock = outcome.next_step or None
                settlement.end(lease, "block", reason, usage, unblock=unblock, receipts=evidence)
            case Action.FAIL:
                settlement.end(lease, "fail", reason, usage, receipts=evidence)
            case Action.RETRY:
                settlement.fail_or_retry(lease, reason, usage, receipts=evidence)
            case Action.GIVE_UP:
                self._give_up(lease, outcome, usage)
            case Action.RELEASE:
                self._release(lease, outcome, usage)
            case Action.NOTHING:
                self._homes.remove_if_ended(lease.task.id)
                with suppress(StoreError):  # only its figures are lost
                    self._agent.worker.hv.store.write_unsynced(
                        settlement_sql.set_usage, token_of(lease), usage
                    )

    def _give_up(self, lease: Lease, outcome: Outcome, usage: Usage) -> None:
        """Nobody can go on until a person has done something."""
        reason = give_up_reason(self._agent.name, outcome)
        evidence = _receipts(outcome)
        self._settlement.end(lease, "release", reason[:LONGEST_REASON], usage, receipts=evidence)
        self._settlement.flush()
        self._agent.worker.pause_batch(reason)

    def _release(self, lease: Lease, outcome: Outcome, usage: Usage) -> None:
        """Unpunished, and the account cools down after a rate limit or an outage. A task that
        meets an outage time and again lets others go first; if these are answered, the task is to
        blame."""
        agent, reason = self._agent, reason_of(outcome)
        evidence = _receipts(outcome)
        error = cooldown_error(outcome, agent.runner.stream_state.error, reason)
        if error is None:
            return self._settlement.end(lease, "release", reason, usage, receipts=evidence)
        token = token_of(lease)
        runs = unreached(agent.worker.hv.store.read(sessions.sessions, task=token.task))
        if len(runs) >= MOST_UNREACHED and self._others_are_answered(runs[-1]):
            return self._settlement.fail_or_retry(lease, reason, usage, receipts=evidence)
        cooldown = agent.cooldowns.start(error, f"{token.task}.{token.attempt}")
        later = cooldown.until + 1_000 if len(runs) > 1 else None
        return self._settlement.end(
            lease, "release", reason, usage, receipts=evidence, retry_at=later
        )

    def _others_are_answered(self, since: AgentSession) -> bool:
        """Whether the provider has answered other tasks since that run began."""
        worker = self._agent.worker
        return any(
            run.account == since.account
            and run.task != since.task
            and run.started_at >= since.started_at
            and got_through(run)
            for run in worker.hv.store.read(sessions.sessions, worker.batch, limit=MOST_OTHERS)
        )


def give_up_reason(agent: str, outcome: Outcome) -> str:
    """Why nobody can go on until a person has done something, and what."""
    reason = f"{agent}: {reason_of(outcome)}"
    if outcome.evidence:
        reason = f"{reason}: {outcome.evidence[:LONGEST_EVIDENCE]}"
    return f"{reason.rstrip('.')}. {outcome.next_step}".strip()


def _receipts(outcome: Outcome) -> tuple[str, ...]:
    return (outcome.evidence,) if outcome.evidence else ()


def reason_of(outcome: Outcome) -> str:
    if outcome.name == "blocked":  # the task's state says so already
        return outcome.reason[:LONGEST_TASK_REASON]
    reason = f"{outcome.name}: {outcome.reason}" if outcome.reason else outcome.name
    return reason[:LONGEST_TASK_REASON]
