"""Applies the outcome of an agent's session to the task, its account and the batch."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.agents.classify import cooldown_error
from hypervisor.agents.outcome import Action, Outcome
from hypervisor.agents.session import unreached, was_answered
from hypervisor.core.errors import StoreError
from hypervisor.queue.lease import EndEvent, Lease, Usage
from hypervisor.queue.sql import agent_sessions
from hypervisor.queue.sql import settlement as settlement_sql
from hypervisor.runs.attempts import complete
from hypervisor.runs.settlement import token_of
from hypervisor.runs.worker import MAX_REASON_LENGTH

if TYPE_CHECKING:
    from hypervisor.agents.agent_worker import HomeCleanup
    from hypervisor.agents.context import AgentContext
    from hypervisor.queue.agent_session import AgentSession
    from hypervisor.runs.settlement import Settlement

MAX_UNREACHED = 5  # outages in a row that may hit one task alone
MAX_TASK_REASON_LENGTH = 2_000
MAX_EVIDENCE_LENGTH = 200  # in the reason of a pause
MAX_OTHERS = 200


class OutcomeSettlement:
    def __init__(self, agent: AgentContext, settlement: Settlement, homes: HomeCleanup) -> None:
        self._agent, self._settlement, self._homes = agent, settlement, homes

    def mismatch_of(self, outcome: Outcome) -> str | None:
        """Why the data of a completed task does not fit the schema of the batch."""
        schema = self._agent.spec.schema
        if not schema or outcome.action is not Action.COMPLETE:
            return None
        from hypervisor.queue.result_schema import mismatch_of

        return mismatch_of(schema, outcome.result)

    def refuse(self, lease: Lease, mismatch: str, usage: Usage) -> None:
        """The first time, release it to be corrected in the same session; then it has failed."""
        from hypervisor.queue.result_schema import REFUSED, refused_before

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
                settlement.record_file(lease)
                settlement.save_files()
                with suppress(StoreError):  # only its figures are lost
                    self._agent.worker.hv.store.write_unsynced(
                        settlement_sql.set_usage, token_of(lease), usage
                    )

    def _give_up(self, lease: Lease, outcome: Outcome, usage: Usage) -> None:
        """Pause the batch until a person has fixed the problem."""
        reason = give_up_reason(self._agent.name, outcome)
        evidence = _receipts(outcome)
        self._settlement.end(lease, "release", reason[:MAX_REASON_LENGTH], usage, receipts=evidence)
        self._settlement.flush()
        self._agent.worker.pause_batch(reason)

    def _release(self, lease: Lease, outcome: Outcome, usage: Usage) -> None:
        """Release the task; after a rate limit or an outage, the account cools down. A task that
        keeps hitting outages lets others go first; if those are answered, the task is the cause."""
        agent, reason = self._agent, reason_of(outcome)
        evidence = _receipts(outcome)
        error = cooldown_error(outcome, agent.runner.stream_state.error, reason)
        if error is None:
            return self._settlement.end(lease, "release", reason, usage, receipts=evidence)
        token = token_of(lease)
        runs = unreached(agent.worker.hv.store.read(agent_sessions.sessions, task=token.task))
        if len(runs) >= MAX_UNREACHED and self._others_are_answered(runs[-1]):
            return self._settlement.fail_or_retry(lease, reason, usage, receipts=evidence)
        cooldown = agent.cooldowns.start(error, f"{token.task}.{token.attempt}")
        later = cooldown.until + 1_000 if len(runs) > 1 else None
        return self._settlement.end(
            lease, "release", reason, usage, receipts=evidence, retry_at=later
        )

    def _others_are_answered(self, since: AgentSession) -> bool:
        """Whether the provider has answered other tasks since that session began."""
        worker = self._agent.worker
        return any(
            run.account == since.account
            and run.task != since.task
            and run.started_at >= since.started_at
            and was_answered(run)
            for run in worker.hv.store.read(agent_sessions.sessions, worker.batch, limit=MAX_OTHERS)
        )


def give_up_reason(agent: str, outcome: Outcome) -> str:
    """Why the batch is paused, and what to do about it."""
    reason = f"{agent}: {reason_of(outcome)}"
    if outcome.evidence:
        reason = f"{reason}: {outcome.evidence[:MAX_EVIDENCE_LENGTH]}"
    return f"{reason.rstrip('.')}. {outcome.next_step}".strip()


def _receipts(outcome: Outcome) -> tuple[str, ...]:
    return (outcome.evidence,) if outcome.evidence else ()


def reason_of(outcome: Outcome) -> str:
    if outcome.name == "blocked":  # the task's state says so already
        return outcome.reason[:MAX_TASK_REASON_LENGTH]
    reason = f"{outcome.name}: {outcome.reason}" if outcome.reason else outcome.name
    return reason[:MAX_TASK_REASON_LENGTH]
