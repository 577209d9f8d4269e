"""The worker whose attempts are runs of an agent: one task at a time.

It says what is to be done, listens, and decides from evidence what came of it. What was met on
the way is the whole fleet's: a limit of the account makes all of it rest, a budget ends it all.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hypervisor.agents import outcome as outcomes
from hypervisor.agents import stream_state as kinds
from hypervisor.agents.budget_guard import BudgetGuard, RateLimitGuard
from hypervisor.agents.classify import classify, cooldown_error
from hypervisor.agents.profile import AgentProfile, Price
from hypervisor.agents.prompt_context import context_of
from hypervisor.agents.session import NewSession, resumed
from hypervisor.agents.session_recorder import (
    SessionRecorder,
    close_orphans,
    given_back,
    got_through,
    to_resume,
    unreached,
)
from hypervisor.agents.sql import sessions
from hypervisor.agents.stream_state import StreamError, StreamState
from hypervisor.batches.plans.propose import forget_proposals
from hypervisor.batches.reduce_input import with_result
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, NotFound, StoreError
from hypervisor.inputs.items import item_of
from hypervisor.inputs.template import Item
from hypervisor.queue.lease import Lease, Token, Usage, Verdict, parse_token
from hypervisor.queue.lifecycle import TERMINAL
from hypervisor.queue.result import receipts_in
from hypervisor.queue.result_schema import REFUSED, mismatch_of, refused_before
from hypervisor.queue.sql import claims, event_log, queries, settlement
from hypervisor.resources.limits import Limits, merged
from hypervisor.resources.overseer import Overseer
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.patience import if_possible
from hypervisor.runs.runner import Runner
from hypervisor.runs.spec import BATCH, Pause, Stop
from hypervisor.runs.watch import Watch
from hypervisor.runs.worker import LEASE, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hypervisor.agents.outcome import Outcome
    from hypervisor.agents.session import AgentSession
    from hypervisor.queue.attempt import Ended
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Worker as Identity
    from hypervisor.queue.task import Task
    from hypervisor.runs.config import Settings
    from hypervisor.runs.outputs.files import Outputs
    from hypervisor.runs.processes.journal import Journal
    from hypervisor.runs.spec import RunSpec

AFTERWARDS = 10.0  # seconds for the last words of an agent that has ended its claim itself
# The agent need not try again by itself what these stand in the way of.
AT_ONCE = (kinds.QUOTA, kinds.OVERLOAD, kinds.AUTH, kinds.BILLING, kinds.ACCESS)
UNREACHED = 10.0  # seconds that it may try to reach its provider by itself
MOST_UNREACHED = 5  # times in a row that one task alone may meet an outage
LIMITS = Limits(silence=15 * 60_000)  # where nobody says otherwise: a model may hang
QUIET = "not a word from the agent and no tool at work"
JUDGE = "judge"  # what follows a stop of ours: what came of it is to be worked out
LONGEST_REASON = 2_000
LONGEST_EVIDENCE = 200  # in the reason of a pause
MOST_GIVEN_BACK = 3
MOST_OTHERS = 200


class AgentRunner(Runner, Protocol):
    """A runner whose attempts speak."""

    stream_state: StreamState
    hung: bool

    def brief(
        self, text: str, session: str = "", budget: int | None = None, known: StreamState = ...
    ) -> None: ...
    def keep_changes(self, task: str, path: str) -> int: ...


class Homes(Protocol):
    def exists(self, name: str) -> bool: ...
    def remove(self, name: str) -> None: ...
    def all(self) -> Iterable[str]: ...


class Duty(NamedTuple):
    """What an agent's worker knows beyond what every worker does."""

    profile: AgentProfile
    accounts: Mapping[str, str]  # of all agents of the batch, by name
    homes: Homes
    write: Callable[[Task, Item, str], str]  # the prompt, with what is known from elsewhere
    go_on: Callable[[Task, Item, str], str]  # … for a session that goes on
    correct: Callable[[Task, str], str]  # … for one whose data did not fit the schema, and why
    pull: Callable[[str], str]  # … for one that claims by itself, under this name
    price: Price | None = None

    @property
    def account(self) -> str:
        return self.accounts[self.profile.name]


class PushWorker(Worker):
    runner: AgentRunner

    def __init__(
        self,
        hv: Context,
        me: Identity,
        batch: str,
        spec: RunSpec,
        runner: AgentRunner,
        journal: Journal,
        outputs: Outputs,
        settings: Settings,
        duty: Duty,
    ) -> None:
        super().__init__(hv, me, batch, spec, runner, journal, outputs, settings)
        self.agent, self.duty = duty.profile.name, duty
        self.brakes = RateLimitGuard(self.hv.store, duty.account, me.name)
        self.purse = BudgetGuard(self.hv.store, batch, spec, settings, me.name)
        self.row: SessionRecorder | None = None
        self.rests = False

    def run(self) -> None:
        self._tidy()
        super().run()

    def turn(self) -> bool:
        if self.runner.hopeless:
            self._pause(self.runner.hopeless)
            return False
        return super().turn()

    # Claiming

    def _take(self) -> bool:
        self.rests = self.brakes.resting(self.duty.account)
        if self.rests or self.purse.is_empty():
            self._settle()
            return False
        self.wanted = self.wanted._replace(capabilities=self._capabilities())
        self.size, self.claimed = 1, None
        return super()._take()

    def _keep_up(self) -> None:
        self._settle()  # what is taken next is for _take to say, which asks brakes and budgets

    def _rest(self) -> bool:
        """One that found no money left goes at once: of a raised budget only the next one knows.
        So does one whose account rests: after that, one agent goes first, not all that are left."""
        return super()._rest() and not (self.purse.is_closed or self.rests)

    def _capabilities(self) -> tuple[str, ...]:
        """Our own; and those of agents whose account rests, if we stand in for them."""
        agents = [self.agent]
        if self.agent == self.spec.fallback:
            accounts = self.duty.accounts.items()
            agents += [name for name, account in accounts if self.brakes.resting(account)]
        labels = tuple(f"agent:{name}" for name in agents)
        own = (*self.settings.capabilities, *self.duty.profile.capabilities, *labels)
        return tuple(dict.fromkeys(own))

    # One attempt

    def _start(self, lease: Lease, output: str) -> None:
        self.row = None
        task = lease.task
        try:
            item = with_result(self.hv, task, _item(task), self.spec)
            runs = self.hv.store.read(sessions.sessions, task=task.id)
            close_orphans(self.hv.store, runs)
            self._refuse_given_back(task, runs)
            last = to_resume(runs, self.agent) if self._can_resume(task.id) else None
            session = last.session if last else ""
            known = resumed(runs, session) if session else StreamState()
            text = self._prompt(lease, item, session)
            budget = self.purse.left_for(task.id)
            new = NewSession(
                self.agent,
                self.duty.account,
                self.batch,
                self.me.id,
                task.id,
                task.attempts,
                session,
            )
            row = SessionRecorder(self.hv.store, new, self.duty.price)
        except StoreError as error:  # nothing has begun: somebody else may try
            raise OSError(errno.EIO, str(error)) from None
        self.runner.brief(text, session, budget, known)
        try:
            self.runner.start(item, lease.token, output)
        except (OSError, InvalidInput):
            row.close("stopped", known)
            raise
        self.row = row

    def _prompt(self, lease: Lease, item: Item, session: str) -> str:
        task = lease.task
        resumes = session and self.spec.schema
        mismatch = refused_before(self.hv, parse_token(lease.token)) if resumes else ""
        if mismatch:
            return self.duty.correct(task, mismatch)
        write = self.duty.go_on if session else self.duty.write
        return write(task, item, context_of(self.hv.store, task))

    def _refuse_given_back(self, task: Task, runs: list[AgentSession]) -> None:
        times = given_back(runs, self.hv.store.read(queries.detail, task.id).attempts)
        if times >= MOST_GIVEN_BACK:
            raise InvalidInput(f"agents gave it back {times} times without saying why it cannot be")

    def _can_resume(self, task: str) -> bool:
        return bool(self.duty.profile.resume) and self.duty.homes.exists(task)

    def _limits_of(self, task: Task) -> Limits:
        return merged(super()._limits_of(task), LIMITS)

    def _watch(self, lease: Lease, limits: Limits, started: float) -> Watch:
        return AgentWatch(
            self.hv,
            lease,
            self.runner,
            self.outputs,
            limits,
            self.settings.dry_run,
            self.me,
            LEASE,
            started,
            self,
        )

    def _stop(self, lease: Lease, stop: Stop, peak: int) -> None:
        if stop.next == JUDGE:
            ended = self.runner.stop(self.settings.grace)
            return self._end(lease, ended, peak)
        super()._stop(lease, stop, peak)
        if stop.next != "cancel":
            self._keep_changes(lease)
        self._close("lost_claim" if stop.next == "lost" else "stopped")
        return None

    def _end(self, lease: Lease, ended: Ended, peak: int) -> None:
        if self.row is None:  # it was never started
            return super()._end(lease, ended, peak)
        self._keep_changes(lease)
        self._tell_if_hung(lease)
        usage = self._usage(lease, ended, peak)
        outcome = classify(
            self.runner.stream_state,
            ended,
            self.in_the_ledger(parse_token(lease.token)),
            hung=self.runner.hung,
            codes=self.duty.profile.codes,
        )
        mismatch = self._mismatch(outcome)
        self._close("misfit" if mismatch else outcome.name)
        if mismatch:
            return self._send_back(lease, mismatch, usage)
        return self._follow(lease, outcome, usage)

    def _mismatch(self, outcome: Outcome) -> str | None:
        if not self.spec.schema or outcome.follows != outcomes.COMPLETE:
            return None
        return mismatch_of(self.spec.schema, outcome.result)

    def _send_back(self, lease: Lease, mismatch: str, usage: Usage) -> None:
        """Once, unpunished, to be corrected in the same session; the second time it has failed."""
        token, why = parse_token(lease.token), f"{REFUSED}{mismatch}"
        event = "release"
        with suppress(StoreError):  # then it gets one chance more
            event = "fail" if refused_before(self.hv, token) else "release"
        self._decide(Verdict(token, event, reason=why, usage=usage, receipts=(why,)))

    def _follow(self, lease: Lease, outcome: Outcome, usage: Usage) -> None:
        """What becomes of the task, and of all the others."""
        token, reason = parse_token(lease.token), _reason(outcome)
        evidence = (outcome.evidence,) if outcome.evidence else ()
        if outcome.follows == outcomes.COMPLETE:
            self._complete(lease, outcome, usage)
        elif outcome.follows == outcomes.BLOCK:
            unblock = outcome.next_step or None
            self._decide(
                Verdict(token, "block", None, reason, unblock, usage=usage, receipts=evidence)
            )
        elif outcome.follows == outcomes.FAIL:
            self._decide(Verdict(token, "fail", reason=reason, usage=usage, receipts=evidence))
        elif outcome.follows == outcomes.RETRY:
            self._decide(self._failure(lease, reason, usage)._replace(receipts=evidence))
        elif outcome.follows == outcomes.GIVE_UP:
            why = gave_up(self.agent, outcome)
            self._decide(
                Verdict(token, "release", reason=why[:500], usage=usage, receipts=evidence)
            )
            self._settle()
            self._pause(why)
        elif outcome.name == "settled":
            self._settled(token.task)
            with suppress(StoreError):  # only its figures are lost
                self.hv.store.write_unsynced(settlement.set_usage, token, usage)
        else:
            self._put_back(lease, outcome, usage, evidence)

    def _put_back(
        self, lease: Lease, outcome: Outcome, usage: Usage, evidence: tuple[str, ...]
    ) -> None:
        """Unpunished, and the account rests if it met a limit or an outage. One that meets an
        outage time and again lets others go first; if these are answered, it is to blame."""
        token, reason = parse_token(lease.token), _reason(outcome)
        trouble = cooldown_error(outcome, self.runner.stream_state.error, reason)
        if trouble is None:
            return self._decide(
                Verdict(token, "release", reason=reason, usage=usage, receipts=evidence)
            )
        runs = unreached(self.hv.store.read(sessions.sessions, task=token.task))
        if len(runs) >= MOST_UNREACHED and self._others_are_answered(runs[-1]):
            return self._decide(self._failure(lease, reason, usage)._replace(receipts=evidence))
        brake = self.brakes.apply(trouble, f"{token.task}.{token.attempt}")
        later = brake.until + 1_000 if len(runs) > 1 else None
        return self._decide(
            Verdict(token, "release", None, reason, None, later, usage, receipts=evidence)
        )

    def _others_are_answered(self, since: AgentSession) -> bool:
        """Whether the provider has answered other tasks since that run began."""
        found = self.hv.store.read(sessions.sessions, self.batch, limit=MOST_OTHERS)
        return any(
            run.account == since.account
            and run.task != since.task
            and run.started_at >= since.started_at
            and got_through(run)
            for run in found
        )

    def _complete(self, lease: Lease, outcome: Outcome, usage: Usage) -> None:
        try:
            result = validate.json_value("the result", outcome.result)
        except InvalidInput as error:
            return self._decide(self._failure(lease, f"no result: {error}", usage))
        token, receipts = parse_token(lease.token), receipts_in(result)
        return self._decide(
            Verdict(token, "complete", result, usage=usage, receipts=receipts, proposals=True)
        )

    def in_the_ledger(self, token: Token) -> str | None:
        """How the attempt ended there, None if it has not."""
        try:
            return self.hv.store.read(claims.ended_claim, token)
        except (StoreError, NotFound):  # a verdict on an ended claim changes nothing
            return None

    # What is kept and what goes

    def listen(self, task: str, now: float) -> str | None:
        """Write down what is new; why the agent must not go on, None if it may."""
        state = self.runner.stream_state
        if self.row is not None:
            self.row.hear(state, now)
        return self.purse.over_task(task)

    def _close(self, outcome: str) -> None:
        row, self.row = self.row, None
        if row is not None:
            with if_possible(self.hv):  # how the attempt ended is still to be written down
                row.close(outcome, self.runner.stream_state)

    def _keep_changes(self, lease: Lease) -> None:
        if self.spec.workspace != "scratch":
            return
        task = lease.task
        path = self.outputs.path(task.id, task.attempts).removesuffix(".log") + ".patch"
        try:
            size = self.runner.keep_changes(task.id, path)
            said = f"its changes are kept in {path}" if size else "it changed nothing"
        except (OSError, InvalidInput) as error:
            size, said = 0, f"its changes could not be kept: {error}"
        with if_possible(self.hv):
            data = {"path": path if size else "", "bytes": size, "said": said}
            self.hv.store.write_unsynced(
                event_log.note,
                "patch",
                data,
                self.me.name,
                self.hv.now(),
                task=task.id,
                batch=self.batch,
            )

    def _tell_if_hung(self, lease: Lease) -> None:
        """Its work may be done all the same; that it had to be ended is worth knowing."""
        if self.runner.hung:
            data = {"processes": 1, "said": "it did not end after its last word and was stopped"}
            with if_possible(self.hv):
                self.hv.store.write_unsynced(
                    event_log.note,
                    "leftovers",
                    data,
                    self.me.name,
                    self.hv.now(),
                    task=lease.task.id,
                    batch=self.batch,
                )

    def _conclude(self, leases: list[Lease]) -> list[Lease]:
        over = [v.token.task for v in self.verdicts if v.event in ("complete", "fail")]
        ended = [v.token for v in self.verdicts]
        leases = super()._conclude(leases)
        with suppress(StoreError):  # what is left over does no harm
            for token in ended:
                forget_proposals(self.hv, str(token))
        for task in over:
            self.duty.homes.remove(task)
        return leases

    def _cancel(self, stop: Stop) -> None:
        super()._cancel(stop)
        self._settled(stop.task)

    def _settled(self, task: str) -> None:
        """Somebody else has ended it: what is kept of the agent goes unless it may go on."""
        with suppress(StoreError):
            if self.hv.store.read(runs_sql.states, [task]).get(task) in TERMINAL:
                self.duty.homes.remove(task)

    def _tidy(self) -> None:
        """Homes of tasks that were ended while nobody worked on them, and of dead workers."""
        names = list(self.duty.homes.all())
        tasks = [name for name in names if name.isalnum()]
        states = self.hv.store.read(runs_sql.states, tasks) if tasks else {}
        over = [name for name in tasks if states.get(name) in TERMINAL]
        for name in over + [name for name in names if self._was_of_a_dead_worker(name)]:
            self.duty.homes.remove(name)

    def _was_of_a_dead_worker(self, name: str) -> bool:
        """An agent that claims by itself has the home of its worker: PID-START."""
        pid, _, start = name.partition("-")
        if not (pid.isdecimal() and start.isdecimal()):
            return False
        return self.hv.probe.process_start(int(pid)) != int(start)

    def _learn(self, kind: str, peak: int) -> None:
        """What an agent needs depends on the agent more than on the task."""
        super()._learn(f"agent {self.agent}", peak)

    def _pause(self, why: str) -> None:
        self.hv.store.write(
            runs_sql.pause, Pause(BATCH, self.batch, why[:500], self.me.name, 0), self.hv.now()
        )


class Patience:
    """With trouble that an agent tries to overcome by itself. Some try for ever."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last: StreamError | None = None

    def is_over(self, trouble: StreamError | None, now: float) -> bool:
        """Whether it tried in vain for too long. Without a new word of trouble, the model may be
        at its answer."""
        is_new, self._last = trouble is not self._last, trouble
        if trouble is None or trouble.kind not in kinds.OUTAGES:
            self._since = None
        elif self._since is None:
            self._since = now
        if trouble is None or trouble.kind in AT_ONCE:
            return trouble is not None
        return is_new and self._since is not None and now - self._since >= UNREACHED


class AgentWatch(Watch):
    """Watches an agent: its tree as any attempt's, and what it says."""

    def __init__(
        self,
        hv: Context,
        lease: Lease,
        runner: AgentRunner,
        outputs: Outputs,
        limits: Limits,
        dry_run: bool,
        worker: Identity,
        lease_ms: int,
        now: float,
        of: PushWorker,
    ) -> None:
        super().__init__(hv, lease, runner, outputs, limits, dry_run, worker, lease_ms, now)
        self.of = of
        self.overseer = Overseer(limits, dry_run, QUIET)
        self.patience = Patience()
        self.relieved = False
        self.ended_at: float | None = None
        self.tools = 0  # that it had used when its claim ended

    def look(self, now: float) -> Stop | None:
        return self._heard(now) or super().look(now)

    def _heard(self, now: float) -> Stop | None:
        state = self.of.runner.stream_state
        if self.patience.is_over(state.error, now):
            return self._stop(JUDGE, state.error.text if state.error else "")
        try:
            why = self.of.listen(self.task.id, now)
            if not self.relieved and (state.tools or state.tokens.output):
                self.relieved = True
                self.of.brakes.relieve()
        except StoreError:  # it may come back, and the agent needs no store to go on
            return None
        return self._stop("fail", why) if why is not None else None

    def _lost(self, now: float) -> Stop | None:
        """A claim that the agent has ended itself is not lost: it may say its last words. It must
        not work on: nobody expects that any more."""
        tools = self.of.runner.stream_state.tools
        if self.ended_at is None:
            outcome = self.of.in_the_ledger(self.token)
            if outcome is None:
                return super()._lost(now)
            if outcome == "failed":  # the next attempt may begin at any moment
                return self._stop(JUDGE, "it has reported a failure")
            if outcome not in ("done", "blocked"):
                return self._stop("lost", "the claim has ended")
            self.ended_at, self.tools = now, tools
        # The call that ended the claim may arrive only now.
        if tools > self.tools + 1 or now - self.ended_at > AFTERWARDS:
            return self._stop(JUDGE, "it went on after its claim had ended")
        return None


def _item(task: Task) -> Item:
    """Tasks for agents need no item: their words say what to do."""
    data = task.data if isinstance(task.data, dict) else {}
    return item_of(task) if isinstance(data.get("item"), str) else Item(task.title)


def gave_up(agent: str, outcome: Outcome) -> str:
    """Why nobody can go on until a person has done something, and what."""
    told = f"{agent}: {_reason(outcome)}"
    told = f"{told}: {outcome.evidence[:LONGEST_EVIDENCE]}" if outcome.evidence else told
    return f"{told.rstrip('.')}. {outcome.next_step}".strip()


def _reason(outcome: Outcome) -> str:
    if outcome.name == "blocked":  # the task's state says so already
        return outcome.reason[:LONGEST_REASON]
    told = f"{outcome.name}: {outcome.reason}" if outcome.reason else outcome.name
    return told[:LONGEST_REASON]
