"""Attempts by an agent that gets its task in its prompt: start it, watch it, judge how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.agents.classify import classify
from hypervisor.agents.prompts import context_of
from hypervisor.agents.session import NewSession, given_back, resumed, to_resume
from hypervisor.agents.session_recorder import SessionRecorder, close_orphans
from hypervisor.agents.sql import sessions
from hypervisor.agents.stream_state import StreamState
from hypervisor.agents.watch import QUIET, ClaimCheck, StreamCheck
from hypervisor.batches.reduce_input import with_result, write_reduce_input
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.items import item_of
from hypervisor.inputs.template import Item
from hypervisor.queue.lease import Lease, parse_token
from hypervisor.queue.result_schema import refused_before
from hypervisor.queue.sql import queries
from hypervisor.resources.overseer import Overseer
from hypervisor.runs.retrying_store import if_possible
from hypervisor.runs.watch import LeaseCheck, OverseerCheck, Watch, signal_check

if TYPE_CHECKING:
    from hypervisor.agents.apply_outcome import OutcomeSettlement
    from hypervisor.agents.context import AgentContext
    from hypervisor.agents.session import AgentSession
    from hypervisor.queue.attempt import Ended
    from hypervisor.queue.task import Task
    from hypervisor.resources.limits import Limits
    from hypervisor.runs.settlement import UsageMeter
    from hypervisor.runs.spec import Stop

MOST_GIVEN_BACK = 3


class AgentAttempts:
    def __init__(self, agent: AgentContext, meter: UsageMeter, outcomes: OutcomeSettlement) -> None:
        self._agent, self._meter, self._outcomes = agent, meter, outcomes
        self._session: SessionRecorder | None = None

    def start(self, lease: Lease, output: str) -> None:
        agent, worker = self._agent, self._agent.worker
        store, task = worker.hv.store, write_reduce_input(worker.hv, lease).task
        item = with_result(worker.hv, task, _item(task), worker.spec)
        runs = store.read(sessions.sessions, task=task.id)
        close_orphans(store, runs)
        self._refuse_given_back(task, runs)
        last = to_resume(runs, agent.name) if self._can_resume(task.id) else None
        resumes = last.session if last else ""
        known = resumed(runs, resumes) if resumes else StreamState()
        text = self._prompt(task, lease, item, resumes)
        budget = agent.budget.left_for(task.id)
        new = NewSession(
            agent.name,
            agent.account,
            worker.batch,
            worker.me.id,
            task=task.id,
            attempt=task.attempts,
            resumes=resumes,
        )
        self._session = SessionRecorder(store, new, agent.price)
        agent.runner.brief(text, resumes, budget, known)
        try:
            agent.runner.start(item, lease.token, output)
        except (OSError, InvalidInput):
            self._session.close("stopped", known)
            raise

    def _refuse_given_back(self, task: Task, runs: list[AgentSession]) -> None:
        times = given_back(runs, self._agent.worker.hv.store.read(queries.detail, task.id).attempts)
        if times >= MOST_GIVEN_BACK:
            raise InvalidInput(f"agents released it {times} times without a reason")

    def _can_resume(self, task: str) -> bool:
        return bool(self._agent.profile.resume) and self._agent.homes.exists(task)

    def _prompt(self, task: Task, lease: Lease, item: Item, resumes: str) -> str:
        prompts, hv = self._agent.prompts, self._agent.worker.hv
        may_correct = resumes and self._agent.worker.spec.schema
        mismatch = refused_before(hv, parse_token(lease.token)) if may_correct else ""
        if mismatch:
            return prompts.correct(task, mismatch)
        write = prompts.go_on if resumes else prompts.write
        return write(task, item, context_of(hv.store, task))

    def watch(self, lease: Lease, limits: Limits, started: float) -> Watch:
        worker = self._agent.worker
        assert self._session is not None
        lease_check = LeaseCheck(worker, lease, started)
        stream, claim = (
            StreamCheck(self._agent, self._session),
            ClaimCheck(self._agent, lease_check),
        )
        overseer = Overseer(limits, worker.settings.dry_run, QUIET)
        output = (lease.task.id, lease.task.attempts)
        return Watch(
            [stream.provider, signal_check(worker)],
            [stream.record, claim.over_budget, lease_check.requested, claim.lost],
            OverseerCheck(worker, output, overseer, started=started),
        )

    def settle(self, lease: Lease, ended: Ended, peak: int) -> None:
        agent = self._agent
        self._keep_changes(lease)
        self._note_if_hung(lease)
        usage = self._meter.usage_of(lease, ended, peak)
        outcome = classify(
            agent.runner.stream_state,
            ended,
            agent.ended_claim(parse_token(lease.token)),
            hung=agent.runner.hung,
            codes=agent.profile.codes,
        )
        mismatch = self._outcomes.mismatch_of(outcome)
        self._close("misfit" if mismatch else outcome.name)
        if mismatch:
            self._outcomes.refuse(lease, mismatch, usage)
        else:
            self._outcomes.apply(lease, outcome, usage)

    def stopped(self, lease: Lease, stop: Stop) -> None:
        if stop.next != "cancel":
            self._keep_changes(lease)
        self._close("lost_claim" if stop.next == "lost" else "stopped")

    def _close(self, outcome: str) -> None:
        assert self._session is not None
        with if_possible(self._agent.worker.hv):  # the result of the attempt comes first
            self._session.close(outcome, self._agent.runner.stream_state)

    def _keep_changes(self, lease: Lease) -> None:
        worker, task = self._agent.worker, lease.task
        if worker.spec.workspace != "scratch":
            return
        path = worker.outputs.path(task.id, task.attempts).removesuffix(".log") + ".patch"
        try:
            size = self._agent.runner.keep_changes(task.id, path)
            message = f"its changes are kept in {path}" if size else "it changed nothing"
        except (OSError, InvalidInput) as error:
            size, message = 0, f"its changes could not be kept: {error}"
        with if_possible(worker.hv):
            data = {"path": path if size else "", "bytes": size, "said": message}
            worker.note("patch", data, task.id)

    def _note_if_hung(self, lease: Lease) -> None:
        """Its work may be done all the same; that it had to be ended is worth knowing."""
        if self._agent.runner.hung:
            data = {"processes": 1, "said": "it did not end after its last word and was stopped"}
            with if_possible(self._agent.worker.hv):
                self._agent.worker.note("leftovers", data, lease.task.id)


def _item(task: Task) -> Item:
    """Tasks for agents need no item: their words say what to do."""
    data = task.data if isinstance(task.data, dict) else {}
    return item_of(task) if isinstance(data.get("item"), str) else Item(task.title)
