"""The worker whose attempts are runs of an agent: one task at a time.

It says what is to be done, listens, and decides from evidence what came of it. What was met on
the way is the whole fleet's: a limit of the account makes all of it rest, a budget ends it all.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hypervisor.domain import checks
from hypervisor.domain.agents import heard as kinds
from hypervisor.domain.agents import outcome as outcomes
from hypervisor.domain.agents.heard import Heard, Trouble
from hypervisor.domain.agents.judging import judge
from hypervisor.domain.agents.profile import AgentProfile, Price
from hypervisor.domain.agents.session import NewSession, resumed
from hypervisor.domain.errors import InvalidInput, StoreError
from hypervisor.domain.lease import Lease, Usage, Verdict, parse_token
from hypervisor.domain.lifecycle import TERMINAL
from hypervisor.domain.result import receipts_in
from hypervisor.domain.run import BATCH, Pause, Stop
from hypervisor.domain.template import Item
from hypervisor.operations.gathering import with_result
from hypervisor.operations.items import item_of
from hypervisor.operations.proposing import forget_proposals, with_proposals
from hypervisor.ports import Runner
from hypervisor.services.agent_context import context_of
from hypervisor.services.agent_purse import Brakes, Purse
from hypervisor.services.agent_sessions import SessionRow, close_orphans, given_back, to_resume
from hypervisor.services.watch import Watch
from hypervisor.services.worker import LEASE, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hypervisor.domain.agents.outcome import Outcome
    from hypervisor.domain.agents.session import AgentSession
    from hypervisor.domain.attempt import Ended
    from hypervisor.domain.lease import Worker as Identity
    from hypervisor.domain.limits import Limits
    from hypervisor.domain.run import RunSpec
    from hypervisor.domain.settings import Settings
    from hypervisor.domain.task import Task
    from hypervisor.operations.context import Context
    from hypervisor.ports import Journal, Outputs

AFTERWARDS = 60.0  # seconds an agent may go on that has ended its claim itself
# The agent need not try again by itself what these stand in the way of.
AT_ONCE = (kinds.QUOTA, kinds.OVERLOAD, kinds.AUTH)
JUDGE = "judge"  # what follows a stop of ours: what came of it is to be worked out
LONGEST_REASON = 2_000
MOST_GIVEN_BACK = 3


class AgentRunner(Runner, Protocol):
    """A runner whose attempts speak."""

    heard: Heard
    hung: bool

    def brief(
        self, text: str, session: str = "", budget: int | None = None, known: Heard = ...
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
    pull: Callable[[str], str]  # … for one that claims by itself, under this name
    price: Price | None = None

    @property
    def account(self) -> str:
        return self.accounts[self.profile.name]


class AgentWorker(Worker):
    runner: AgentRunner

    def __init__(
        self, hv: Context, me: Identity, batch: str, spec: RunSpec, runner: AgentRunner,
        journal: Journal, outputs: Outputs, settings: Settings, duty: Duty,
    ) -> None:  # fmt: skip
        super().__init__(hv, me, batch, spec, runner, journal, outputs, settings)
        self.agent, self.duty = duty.profile.name, duty
        self.brakes = Brakes(hv.store, duty.account, me.name)
        self.purse = Purse(hv.store, batch, spec, settings, me.name)
        self.row: SessionRow | None = None

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
        if self.brakes.resting(self.duty.account) or self.purse.is_empty():
            self._settle()
            return False
        self.wanted = self.wanted._replace(capabilities=self._capabilities())
        self.size, self.claimed = 1, None
        return super()._take()

    def _keep_up(self) -> None:
        self._settle()  # what is taken next is for _take to say, which asks brakes and budgets

    def _rest(self) -> bool:
        """One that found no money left goes at once: of a raised budget only the next one knows."""
        return super()._rest() and not self.purse.is_closed

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
            runs = self.hv.store.sessions(task=task.id)
            close_orphans(self.hv.store, runs)
            self._refuse_given_back(task, runs)
            last = to_resume(runs, self.agent) if self._can_resume(task.id) else None
            session = last.session if last else ""
            write = self.duty.go_on if session else self.duty.write
            known = resumed(runs, session) if session else Heard()
            text = write(task, item, context_of(self.hv.store, task))
            budget = self.purse.left_for(task.id)
            new = NewSession(
                self.agent, self.duty.account, self.batch, self.me.id, task.id, task.attempts,
                session,
            )  # fmt: skip
            row = SessionRow(self.hv.store, new, self.duty.price)
        except StoreError as error:  # nothing has begun: somebody else may try
            raise OSError(errno.EIO, str(error)) from None
        self.runner.brief(text, session, budget, known)
        try:
            self.runner.start(item, lease.token, output)
        except (OSError, InvalidInput):
            row.close("stopped", known)
            raise
        self.row = row

    def _refuse_given_back(self, task: Task, runs: list[AgentSession]) -> None:
        times = given_back(runs, self.hv.store.detail(task.id).attempts)
        if times >= MOST_GIVEN_BACK:
            raise InvalidInput(f"agents gave it back {times} times without saying why it cannot be")

    def _can_resume(self, task: str) -> bool:
        return bool(self.duty.profile.resume) and self.duty.homes.exists(task)

    def _watch(self, lease: Lease, limits: Limits, started: float) -> Watch:
        return AgentWatch(
            self.hv, lease, self.runner, self.outputs, limits, self.settings.dry_run, self.me,
            LEASE, started, self,
        )  # fmt: skip

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
        outcome = judge(
            self.runner.heard, ended, self._in_the_ledger(lease), hung=self.runner.hung,
            codes=self.duty.profile.codes,
        )  # fmt: skip
        self._close(outcome.name)
        return self._follow(lease, outcome, usage)

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
            self._decide(self._failure(lease, reason, usage))
        elif outcome.follows == outcomes.GIVE_UP:
            self._give_up(lease, f"{self.agent}: {reason}. {outcome.next_step}".strip())
        elif outcome.name == "settled":
            self._settled(token.task)
        else:
            if outcome.name in (kinds.QUOTA, kinds.OVERLOAD):
                heard = self.runner.heard
                self.brakes.apply(heard.trouble or Trouble(outcome.name, reason))
            self._decide(Verdict(token, "release", reason=reason, usage=usage))

    def _complete(self, lease: Lease, outcome: Outcome, usage: Usage) -> None:
        try:
            whole = with_proposals(self.hv, lease.token, outcome.result)
            result = checks.json_value("the result", whole)
        except InvalidInput as error:
            return self._decide(self._failure(lease, f"no result: {error}", usage))
        token, receipts = parse_token(lease.token), receipts_in(result)
        return self._decide(Verdict(token, "complete", result, usage=usage, receipts=receipts))

    def _in_the_ledger(self, lease: Lease) -> str | None:
        try:
            return self.hv.store.ended_claim(parse_token(lease.token))
        except StoreError:  # a verdict on an ended claim changes nothing
            return None

    # What is kept and what goes

    def listen(self, task: str, now: float) -> str | None:
        """Write down what is new; why the agent must not go on, None if it may."""
        heard = self.runner.heard
        if self.row is not None:
            self.row.hear(heard, now)
        return self.purse.over_task(task)

    def _close(self, outcome: str) -> None:
        row, self.row = self.row, None
        if row is not None:
            with suppress(StoreError):  # how the attempt ended is still to be written down
                row.close(outcome, self.runner.heard)

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
        with suppress(StoreError):
            data = {"path": path if size else "", "bytes": size, "said": said}
            self.hv.store.note("patch", data, self.me.name, task.id, self.batch)

    def _tell_if_hung(self, lease: Lease) -> None:
        """Its work may be done all the same; that it had to be ended is worth knowing."""
        if self.runner.hung:
            data = {"processes": 1, "said": "it did not end after its last word and was stopped"}
            with suppress(StoreError):
                self.hv.store.note("leftovers", data, self.me.name, lease.task.id, self.batch)

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
            if self.hv.store.states([task]).get(task) in TERMINAL:
                self.duty.homes.remove(task)

    def _tidy(self) -> None:
        """Homes of tasks that were ended while nobody worked on them, and of dead workers."""
        names = list(self.duty.homes.all())
        tasks = [name for name in names if name.isalnum()]
        states = self.hv.store.states(tasks) if tasks else {}
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
        self.hv.store.pause(Pause(BATCH, self.batch, why[:500], self.me.name, 0))


class AgentWatch(Watch):
    """Watches an agent: its tree as any attempt's, and what it says."""

    def __init__(
        self, hv: Context, lease: Lease, runner: AgentRunner, outputs: Outputs, limits: Limits,
        dry_run: bool, worker: Identity, lease_ms: int, now: float, of: AgentWorker,
    ) -> None:  # fmt: skip
        super().__init__(hv, lease, runner, outputs, limits, dry_run, worker, lease_ms, now)
        self.of = of
        self.relieved = False
        self.ended_at: float | None = None

    def look(self, now: float) -> Stop | None:
        return self._heard(now) or super().look(now)

    def _heard(self, now: float) -> Stop | None:
        heard = self.of.runner.heard
        if heard.trouble is not None and heard.trouble.kind in AT_ONCE:
            return self._stop(JUDGE, heard.trouble.text)
        try:
            why = self.of.listen(self.task.id, now)
            if not self.relieved and (heard.tools or heard.tokens.output):
                self.relieved = True
                self.of.brakes.relieve()
        except StoreError:  # it may come back, and the agent needs no store to go on
            return None
        return self._stop("fail", why) if why is not None else None

    def _lost(self, now: float) -> Stop | None:
        """A claim that the agent has ended itself is not lost: it may say its last words."""
        if self.ended_at is not None:
            over = now - self.ended_at > AFTERWARDS
            return self._stop(JUDGE, "it went on after its claim had ended") if over else None
        lost = super()._lost(now)
        if lost is None:
            return None
        if self.hv.store.ended_claim(self.token) in ("done", "blocked"):
            self.ended_at = now
            return None
        return lost


def _item(task: Task) -> Item:
    """Tasks for agents need no item: their words say what to do."""
    data = task.data if isinstance(task.data, dict) else {}
    return item_of(task) if isinstance(data.get("item"), str) else Item(task.title)


def _reason(outcome: Outcome) -> str:
    if outcome.name == "blocked":  # the task's state says so already
        return outcome.reason[:LONGEST_REASON]
    told = f"{outcome.name}: {outcome.reason}" if outcome.reason else outcome.name
    return told[:LONGEST_REASON]
