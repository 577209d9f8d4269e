"""Sessions of a pull agent, which claims tasks itself: its worker keeps the claims alive.

The agent claims in the worker's name, so the claims end with the worker and can be cancelled like
any other. Claims that the agent still holds when it exits are released, or count as failed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hypervisor.agents.apply_outcome import give_up_reason
from hypervisor.agents.classify import classify, cooldown_error
from hypervisor.agents.homes import worker_home
from hypervisor.agents.outcome import Action, Outcome, OutcomeName
from hypervisor.agents.session_recorder import SessionRecorder
from hypervisor.agents.watch import DEFAULT_LIMITS, QUIET, StreamCheck
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.template import Item
from hypervisor.queue.attempt import Ended
from hypervisor.queue.lease import Lease, parse_token
from hypervisor.queue.sql import agent_claims
from hypervisor.queue.sql import claims as claims_sql
from hypervisor.queue.sql import stops as stops_sql
from hypervisor.queue.stop import Stop
from hypervisor.resources.limits import merged
from hypervisor.resources.overseer import Overseer
from hypervisor.runs.attempts import note_leader, watch_until_end
from hypervisor.runs.retrying_store import if_possible
from hypervisor.runs.watch import HEARTBEAT, OverseerCheck, Watch, signal_check
from hypervisor.runs.worker import LEASE_MS

if TYPE_CHECKING:
    from hypervisor.agents.context import AgentContext
    from hypervisor.queue.agent_session import NewSession
    from hypervisor.runs.settlement import Settlement, UsageMeter
    from hypervisor.runs.worker import WorkerContext

MAX_FRUITLESS = 3  # sessions in a row without a claim although tasks were ready
ATTEMPT = 1  # of the output, which is kept under the session's id


class PullAttempts:
    def __init__(self, agent: AgentContext, settlement: Settlement, meter: UsageMeter) -> None:
        self._agent, self._settlement, self._meter = agent, settlement, meter
        self._fruitless = 0

    def run(self, new: NewSession) -> None:
        """Run an agent from its start to its end."""
        agent, worker = self._agent, self._agent.worker
        if not worker.fence.enter_session():
            return worker.runner.pause(1.0)
        if agent.gateway:
            new = new._replace(spend_code=agent.gateway.new_code())
        session = SessionRecorder(worker.hv.store, new, agent.price)
        if agent.gateway:
            agent.runner.use_gateway(agent.gateway.grant(session.id))
        output = worker.outputs.prepare(session.id, ATTEMPT)
        agent.runner.brief(agent.prompts.pull(worker.me.name))
        try:
            agent.runner.start(Item(""), "", output)
        except (OSError, InvalidInput) as error:
            session.close("stopped", agent.runner.stream_state)
            return worker.pause_batch(f"cannot start {agent.name}: {error}")
        note_leader(worker)
        claims = HeldClaims(agent, time.monotonic())
        watch = self._watch(session, claims)
        self._end(session, claims, watch, watch_until_end(worker, watch))
        agent.homes.remove(worker_home(worker.me))
        return None

    def _watch(self, session: SessionRecorder, claims: HeldClaims) -> Watch:
        worker = self._agent.worker
        settings = worker.settings
        stream = StreamCheck(self._agent, session)
        limits = merged(worker.spec.limits, settings.limits, DEFAULT_LIMITS)
        if limits.time:  # it is that of one task
            limits = limits._replace(time=limits.time * self._agent.spec.pull)
        overseer = Overseer(limits, settings.dry_run, QUIET)
        output = (session.id, ATTEMPT)
        return Watch(
            [stream.provider, signal_check(worker)],
            [stream.record, claims.look],
            OverseerCheck(worker, output, overseer, started=time.monotonic(), is_task=False),
        )

    def _end(
        self, session: SessionRecorder, claims: HeldClaims, watch: Watch, outcome: Ended | Stop
    ) -> None:
        runner, grace = self._agent.runner, self._agent.worker.settings.grace
        if isinstance(outcome, Ended):
            runner.clear(grace)
            if cut := self._agent.worker.fence.leave():
                self._close(session, "stopped")
                return self._settle_stopped(cut)
            return self._settle(session, claims, outcome, watch.peak)
        ended = runner.stop(grace)
        self._agent.worker.fence.leave()
        if outcome.next == "classify":
            return self._settle(session, claims, ended, watch.peak)
        self._close(session, "stopped")
        return self._settle_stopped(outcome)

    def _settle_stopped(self, stop: Stop) -> None:
        for lease in held_claims(self._agent.worker):
            if stop.next == "cancel" and lease.task.id == stop.task:
                self._settlement.cancel(stop)
            elif stop.next in ("fail", "limit"):
                self._settlement.end(lease, "fail", stop.reason)
            else:
                self._settlement.end(lease, "release", stop.reason)

    def _settle(
        self, session: SessionRecorder, claims: HeldClaims, ended: Ended, peak: int
    ) -> None:
        agent = self._agent
        outcome = classify(
            agent.runner.stream_state,
            ended,
            None,
            wants_report=False,
            hung=agent.runner.hung,
            codes=agent.profile.codes,
            refusal=agent.refusal(session.id),
        )
        self._close(session, outcome.name)
        self._meter.add_peak("", max(ended.peak, peak))
        error = cooldown_error(outcome, agent.runner.stream_state.error, outcome.reason)
        if error is not None:
            agent.cooldowns.start(error, agent.worker.me.name)
        for lease in held_claims(agent.worker):
            self._settle_left_behind(lease, outcome)
        self._count(outcome, bool(claims.seen))

    def _settle_left_behind(self, lease: Lease, outcome: Outcome) -> None:
        """Settle a claim that the agent did not end: released if the agent could not help it."""
        if outcome.action in (Action.RELEASE, Action.GIVE_UP):
            return self._settlement.end(lease, "release", outcome.reason)
        reason = f"the agent exited without ending its claim ({outcome.name}: {outcome.reason})"
        return self._settlement.fail_or_retry(lease, reason, None)

    def _count(self, outcome: Outcome, claimed: bool) -> None:
        """Pause the batch if agents keep claiming nothing, or cannot log in."""
        self._fruitless = 0 if claimed else self._fruitless + 1
        reason = give_up_reason(self._agent.name, outcome)
        if outcome.action is Action.GIVE_UP:
            self._agent.worker.pause_batch(reason)
        elif outcome.action is not Action.RELEASE and self._fruitless >= MAX_FRUITLESS:
            reason = f"it claimed nothing {self._fruitless} times in a row. {reason}"
            self._agent.worker.pause_batch(reason)

    def _close(self, session: SessionRecorder, outcome: OutcomeName) -> None:
        with if_possible(self._agent.worker.hv):  # what happens to its claims comes first
            session.close(outcome, self._agent.runner.stream_state)
        self._agent.worker.outputs.finished(session.id, ATTEMPT)
        self._agent.worker.outputs.publish()


class HeldClaims:
    """Keeps the agent's claims alive, and checks them for stop requests."""

    def __init__(self, agent: AgentContext, now: float) -> None:
        self._agent, self._worker = agent, agent.worker
        self._last_heartbeat = now
        self._at_drain: set[str] | None = None
        self.seen: set[str] = set()

    def look(self, now: float) -> Stop | None:
        self._agent.budget.is_empty()  # if so, this pauses the batch
        held = {lease.token for lease in held_claims(self._worker)}
        self.seen |= held
        leased = bool(self._worker.fence.leased_by)
        if held and not leased and now - self._last_heartbeat >= HEARTBEAT:
            self._last_heartbeat = now
            self._worker.hv.store.write_unsynced(
                claims_sql.heartbeat,
                [parse_token(token) for token in held],
                self._worker.hv.now() + LEASE_MS,
            )
        return self._requested(held) or self._drained(held)

    def _requested(self, held: set[str]) -> Stop | None:
        tokens = [parse_token(token) for token in held]
        running = {(token.task, token.attempt) for token in tokens}
        stops = (
            self._worker.hv.store.read(stops_sql.stops, [token.task for token in tokens])
            if tokens
            else []
        )
        return next((stop for stop in stops if (stop.task, stop.attempt) in running), None)

    def _drained(self, held: set[str]) -> Stop | None:
        """While draining, the agent may finish the tasks it holds; then it is stopped."""
        if self._worker.runner.asked != "drain":
            return None
        if self._at_drain is None:
            self._at_drain = held
        if held & self._at_drain:
            return None
        return Stop("", 0, "release", "the worker is shutting down", self._worker.me.name)


def held_claims(worker: WorkerContext) -> list[Lease]:
    return worker.hv.store.read(agent_claims.live, worker.me.id)
