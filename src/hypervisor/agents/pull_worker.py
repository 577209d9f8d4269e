"""The worker whose agent claims by itself: it keeps an agent alive, and answers for its claims.

The claims of the agent are made in this worker's name, so that they end with it and can be called
off like any other. What the agent still holds when it ends is put back, or counts as failed.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.agents import outcome as outcomes
from hypervisor.agents.classify import classify, cooldown_error
from hypervisor.agents.push_worker import LIMITS, QUIET, Patience, PushWorker, gave_up
from hypervisor.agents.session import NewSession
from hypervisor.agents.session_recorder import SessionRecorder
from hypervisor.core.errors import InvalidInput, StoreError
from hypervisor.inputs.template import Item
from hypervisor.queue.lease import Lease, Usage, Verdict, parse_token
from hypervisor.queue.sql import agent_claims, claims, queries
from hypervisor.resources.limits import Limits, Sample, merged
from hypervisor.resources.overseer import Overseer
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.patience import answering_at_once
from hypervisor.runs.spec import Stop
from hypervisor.runs.watch import BEAT
from hypervisor.runs.worker import LEASE, LOOK

if TYPE_CHECKING:
    from hypervisor.agents.outcome import Outcome
    from hypervisor.queue.attempt import Ended

MOST_IN_VAIN = 3  # runs that claimed nothing though there was something
ATTEMPT = 1  # of the output, which is kept under the session's id


class PullWorker(PushWorker):
    in_vain = 0

    def run(self) -> None:
        super().run()
        self.duty.homes.remove(f"{self.me.pid}-{self.me.pid_start}")

    def turn(self) -> bool:
        """One run of the agent, or a look for work. False when it is time to go."""
        if self.runner.asked or self.hv.store.read(queries.batch, self.batch).spec != self.declared:
            return False
        if not self._has_room():
            return True
        if self.runner.hopeless:
            self._pause(self.runner.hopeless)
            return False
        self.rests = self.brakes.resting(self.duty.account)
        if self.rests or self.purse.is_empty() or not self._has_work():
            return self._rest()
        self.idle_since = None
        self._keep_one()
        self._settle()
        return True

    def _has_work(self) -> bool:
        ready = self.hv.store.read(runs_sql.ready, self._capabilities())
        return any(each.batch == self.batch for each in ready)

    def _keep_one(self) -> None:
        """From the start of an agent to its end."""
        new = NewSession(self.agent, self.duty.account, self.batch, self.me.id)
        row = SessionRecorder(self.hv.store, new, self.duty.price)
        output = self.outputs.prepare(row.id, ATTEMPT)
        self.runner.brief(self.duty.pull(self.me.name))
        try:
            self.runner.start(Item(""), "", output)
        except (OSError, InvalidInput) as error:
            row.close("stopped", self.runner.stream_state)
            self._pause(f"{self.agent} could not be started: {error}")
            return
        self.row = row
        if pid := self.runner.leader:
            self.journal.leader(pid, self.hv.probe.process_start(pid) or 0)
        vigil = PullMonitor(self, row.id)
        ended, stop = None, None
        with answering_at_once(self.hv):
            while ended is None and stop is None:
                stop = vigil.look(time.monotonic())
                ended = None if stop else self.runner.wait(LOOK)
        if stop is not None:
            return self._break_off(stop, vigil)
        assert ended is not None
        self.runner.clear(self.settings.grace)
        return self._came_out(ended, vigil)

    def _break_off(self, stop: Stop, vigil: PullMonitor) -> None:
        ended = self.runner.stop(self.settings.grace)
        if stop.next == "judge":
            return self._came_out(ended, vigil)
        self._close("stopped")
        for lease in self._held():
            token = parse_token(lease.token)
            if stop.next == "cancel" and token.task == stop.task:
                self._cancel(stop)
            elif stop.next == "fail":
                self._decide(Verdict(token, "fail", reason=stop.reason))
            else:
                self._decide(Verdict(token, "release", reason=stop.reason))
        return None

    def _came_out(self, ended: Ended, vigil: PullMonitor) -> None:
        outcome = classify(
            self.runner.stream_state,
            ended,
            None,
            wants_report=False,
            hung=self.runner.hung,
            codes=self.duty.profile.codes,
        )
        self._close(outcome.name)
        self._learn("", max(ended.peak, vigil.peak))
        trouble = cooldown_error(outcome, self.runner.stream_state.error, outcome.reason)
        if trouble is not None:
            self.brakes.apply(trouble, self.me.name)
        for lease in self._held():
            self._decide(self._left_behind(lease, outcome))
        self._count(outcome, vigil)

    def _left_behind(self, lease: Lease, outcome: Outcome) -> Verdict:
        """A claim that the agent did not end: unpunished only if it could not help it."""
        if outcome.follows in (outcomes.RELEASE, outcomes.GIVE_UP):
            return Verdict(parse_token(lease.token), "release", reason=outcome.reason)
        why = f"the agent ended without ending its claim ({outcome.name}: {outcome.reason})"
        return self._failure(lease, why, Usage())

    def _count(self, outcome: Outcome, vigil: PullMonitor) -> None:
        """Agents that claim nothing, or cannot log in, would be started for ever."""
        self.in_vain = 0 if vigil.claimed else self.in_vain + 1
        told = gave_up(self.agent, outcome)
        if outcome.follows == outcomes.GIVE_UP:
            self._pause(told)
        elif outcome.follows != outcomes.RELEASE and self.in_vain >= MOST_IN_VAIN:
            self._pause(f"it claimed nothing {self.in_vain} times in a row. {told}")

    def _held(self) -> list[Lease]:
        return self.hv.store.read(agent_claims.live, self.me.id)


class PullMonitor:
    """Watches an agent that claims by itself."""

    def __init__(self, of: PullWorker, output: str) -> None:
        self.of, self.output = of, output
        self.started = time.monotonic()
        self.beaten = self.started
        self.claimed: set[str] = set()
        self.peak = 0
        self._at_drain: set[str] | None = None
        self._relieved = False
        self.patience = Patience()
        limits = merged(_of_run(of), of.settings.limits, LIMITS)
        if limits.time:  # it is that of one task
            limits = limits._replace(time=limits.time * of.spec.pull)
        self._overseer = Overseer(limits, of.settings.dry_run, QUIET)

    def look(self, now: float) -> Stop | None:
        if self.of.runner.asked == "stop":
            return self._stop("release", "the worker was told to stop")
        trouble = self.of.runner.stream_state.error
        if self.patience.is_over(trouble, now):
            return self._stop("judge", trouble.text if trouble else "")
        with suppress(StoreError):  # it may come back, and the agent needs no store to go on
            if stop := self._from_the_store(now):
                return stop
        return self._overdone(now)

    def _from_the_store(self, now: float) -> Stop | None:
        store, state = self.of.hv.store, self.of.runner.stream_state
        if self.of.row is not None:
            self.of.row.hear(state, now)
        if not self._relieved and (state.tools or state.tokens.output):
            self._relieved = True
            self.of.brakes.relieve()
        self.of.purse.is_empty()  # then the batch is paused, and nothing more is claimed
        held = {lease.token: lease for lease in store.read(agent_claims.live, self.of.me.id)}
        self.claimed |= set(held)
        if held and now - self.beaten >= BEAT:
            self.beaten = now
            store.write_unsynced(
                claims.heartbeat, [parse_token(token) for token in held], store.now() + LEASE
            )
        return self._called_off(held) or self._drained(set(held))

    def _called_off(self, held: dict[str, Lease]) -> Stop | None:
        tokens = [parse_token(token) for token in held]
        running = {(token.task, token.attempt) for token in tokens}
        stops = (
            self.of.hv.store.read(runs_sql.stops, [token.task for token in tokens])
            if tokens
            else []
        )
        return next((stop for stop in stops if (stop.task, stop.attempt) in running), None)

    def _drained(self, held: set[str]) -> Stop | None:
        """What it held when that was asked may be finished; it knows of no end otherwise."""
        if self.of.runner.asked != "drain":
            return None
        if self._at_drain is None:
            self._at_drain = held
        return None if held & self._at_drain else self._stop("release", "the worker ends")

    def _overdone(self, now: float) -> Stop | None:
        runner = self.of.runner
        vital = runner.vital()
        self.peak = max(self.peak, vital.memory)
        size = self.of.outputs.size(self.output, ATTEMPT) or 0
        at = int((now - self.started) * 1000)
        sample = Sample(at, vital.cpu, vital.memory, vital.written, size)
        for finding in self._overseer.look(sample, runner.exact_memory):
            if finding.act == "stop":
                return self._stop("fail", f"{finding.limit} limit: {finding.evidence}")
        return None

    def _stop(self, after: str, reason: str) -> Stop:
        return Stop("", 0, after, reason, self.of.me.name)


def _of_run(of: PullWorker) -> Limits:
    return Limits(of.spec.time, of.spec.memory, of.spec.silence, of.spec.output)
