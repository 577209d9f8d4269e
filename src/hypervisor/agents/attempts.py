"""Attempts by a push agent, which gets its task in the prompt: start, watch, settle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.agents.classify import classify
from hypervisor.agents.messages import messages_text, unheard
from hypervisor.agents.outcome import OUTCOMES, Action, OutcomeName
from hypervisor.agents.profile import ACP
from hypervisor.agents.prompts import context_of
from hypervisor.agents.session import releases_in_a_row, resumed, to_resume
from hypervisor.agents.session_recorder import SessionRecorder, close_orphans
from hypervisor.agents.stream_state import StreamState
from hypervisor.agents.watch import QUIET, ClaimCheck, StreamCheck
from hypervisor.batches.reduce_input import with_result, write_reduce_input
from hypervisor.core.errors import InvalidInput
from hypervisor.hive.review import must_review
from hypervisor.inputs.items import item_of
from hypervisor.inputs.template import Item
from hypervisor.queue.agent_session import NewSession
from hypervisor.queue.give_messages import give_messages
from hypervisor.queue.lease import Lease, parse_token
from hypervisor.queue.sql import agent_sessions, queries
from hypervisor.queue.sql import messages as messages_sql
from hypervisor.resources.overseer import Overseer
from hypervisor.runs.retrying_store import if_possible
from hypervisor.runs.watch import LeaseCheck, OverseerCheck, Watch, signal_check
from hypervisor.runs.workspaces import StoppedEarly

if TYPE_CHECKING:
    from hypervisor.agents.apply_outcome import OutcomeSettlement
    from hypervisor.agents.context import AgentContext
    from hypervisor.queue.agent_session import AgentSession
    from hypervisor.queue.attempt import Ended
    from hypervisor.queue.stop import Stop
    from hypervisor.queue.task import Message, Task
    from hypervisor.resources.limits import Limits
    from hypervisor.runs.settlement import UsageMeter
    from hypervisor.runs.workspaces import Opened, Returned, Workspaces

MAX_RELEASES = 3


class AgentAttempts:
    def __init__(
        self,
        agent: AgentContext,
        meter: UsageMeter,
        outcomes: OutcomeSettlement,
        workspaces: Workspaces | None = None,
    ) -> None:
        self._workspaces = workspaces
        self._agent, self._meter, self._outcomes = agent, meter, outcomes
        self._session: SessionRecorder | None = None

    def start(self, lease: Lease, output: str) -> None:
        agent, worker = self._agent, self._agent.worker
        store, task = worker.hv.store, write_reduce_input(worker.hv, lease).task
        item = with_result(worker.hv, task, _item(task), worker.spec)
        runs = store.read(agent_sessions.sessions, task=task.id)
        close_orphans(store, runs)
        self._refuse_repeated_release(task, runs)
        returned = self._workspaces.returned(task) if self._workspaces else None
        completed_too = returned is not None and returned.same_author
        may_resume = self._can_resume(task.id)
        last = to_resume(runs, agent.name, completed_too) if may_resume else None
        resumes = last.session if last else ""
        earlier = resumed(runs, resumes) if resumes else StreamState()
        opened = self._open_workspace(lease, resumes, returned)
        item = opened.item_here(item, worker.spec.cwd) if opened else item
        notes = _notes(opened, returned)
        messages = give_messages(store, lease)
        allowed = self._allowed(messages, runs, notes)
        if resumes:
            text = self._prompt_to_resume(lease, item, notes, unheard(messages, runs, resumes))
        else:
            known = "\n\n".join([context_of(store, task, must_review(worker.hv)), *notes]).strip()
            text = agent.prompts.write(task, item, known, messages_text(messages))
        budget = agent.budget.left_for(task.id)
        new = NewSession(
            agent.name,
            agent.account,
            worker.batch,
            worker.me.id,
            task=task.id,
            attempt=task.attempts,
            resumes=resumes,
            spend_code=agent.gateway.new_code() if agent.gateway else "",
        )
        self._session = SessionRecorder(store, new, agent.price)
        agent.runner.brief(text, resumes, budget, earlier, granted=allowed)
        if agent.gateway:
            agent.runner.use_gateway(agent.gateway.grant(self._session.id))
        try:
            worker.fence.enter(lease)
            agent.runner.start(item, lease.token, output)
        except (OSError, InvalidInput, StoppedEarly):
            self._session.close("stopped", earlier)
            raise

    def _open_workspace(
        self, lease: Lease, resumes: str, returned: Returned | None
    ) -> Opened | None:
        if self._workspaces is None:
            return None
        worker = self._agent.worker
        continues = bool(resumes) or (worker.spec.git.continues and returned is None)
        opened = self._workspaces.open(lease, continues)
        worker.runner.work_in(opened.folder, opened.env, opened.copy)
        return opened

    def _refuse_repeated_release(self, task: Task, runs: list[AgentSession]) -> None:
        times = releases_in_a_row(
            runs, self._agent.worker.hv.store.read(queries.detail, task.id).attempts
        )
        if times >= MAX_RELEASES:
            raise InvalidInput(f"agents released it {times} times without a reason")

    def _can_resume(self, task: str) -> bool:
        profile = self._agent.profile
        return profile.can_resume and self._agent.homes.exists(task)

    def _allowed(
        self, messages: list[Message], runs: list[AgentSession], notes: list[str]
    ) -> tuple[str, ...]:
        """What people allowed an agent that asks; it is noted for its prompt."""
        if self._agent.profile.stream != ACP:
            return ()
        from hypervisor.agents.grants import NOW_ALLOWED, granted  # only over ACP

        allowed = granted(messages, runs)
        if allowed:
            notes.append(NOW_ALLOWED.format(", ".join(f"`{action}`" for action in allowed)))
        return allowed

    def _prompt_to_resume(
        self, lease: Lease, item: Item, notes: list[str], messages: list[Message]
    ) -> str:
        """Its session knows the task."""
        prompts, hv, task = self._agent.prompts, self._agent.worker.hv, lease.task
        context, text = "\n\n".join(notes), messages_text(messages, asked=False)
        if any(message.kind == "answer" for message in messages):
            return prompts.answered(task, item, context, text)
        if self._agent.spec.schema:
            from hypervisor.queue.result_schema import refused_before

            if mismatch := refused_before(hv, parse_token(lease.token)):
                return prompts.correct(task, mismatch)
        return prompts.go_on(task, item, context, text)

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

    def settle(self, lease: Lease, ended: Ended, peak: int, limits: Limits) -> None:
        agent = self._agent
        self._note_if_hung(lease)
        usage = self._meter.usage_of(lease, ended, peak)
        ledger = agent.ended_claim(parse_token(lease.token))
        outcome = classify(
            agent.runner.stream_state,
            ended,
            ledger,
            hung=agent.runner.hung,
            codes=agent.profile.codes,
            refusal=agent.refusal(self._session.id) if self._session else None,
        )
        mismatch = self._outcomes.mismatch_of(outcome)
        if outcome.action is Action.COMPLETE and not mismatch and self._has_unread(lease):
            outcome = outcome._replace(
                name="noted", action=Action.RELEASE, reason=OUTCOMES["noted"][1]
            )
        # A session that blocked its task over MCP is continued, too, once a person has answered.
        name = "blocked" if ledger == "blocked" else outcome.name
        self._close("misfit" if mismatch else name)
        if mismatch:
            self._outcomes.refuse(lease, mismatch, usage)
        else:
            self._outcomes.apply(lease, outcome, usage)

    def _has_unread(self, lease: Lease) -> bool:
        """Whether a note arrived too late for the attempt. If that is unknown, there is none."""
        with if_possible(self._agent.worker.hv):
            return bool(self._agent.worker.hv.store.read(messages_sql.unread, lease.task.id))
        return False

    def stopped(self, lease: Lease, stop: Stop) -> None:
        self._close("lost_claim" if stop.next == "lost" else "stopped")

    def _close(self, outcome: OutcomeName) -> None:
        assert self._session is not None
        with if_possible(self._agent.worker.hv):  # the result of the attempt comes first
            self._session.close(outcome, self._agent.runner.stream_state)

    def _note_if_hung(self, lease: Lease) -> None:
        """Log that the agent had to be stopped; its work may be done."""
        if self._agent.runner.hung:
            data = {
                "processes": 1,
                "message": "did not exit after its last message and was stopped",
            }
            with if_possible(self._agent.worker.hv):
                self._agent.worker.note("leftovers", data, lease.task.id)


def _notes(opened: Opened | None, returned: Returned | None) -> list[str]:
    """What the agent has to know about where it works, and why it works again."""
    notes = [opened.note] if opened and opened.note else []
    return notes + ([f"The work could not be merged: {returned.reason}"] if returned else [])


def _item(task: Task) -> Item:
    """The item of a task, or its title if it has none."""
    data = task.data if isinstance(task.data, dict) else {}
    return item_of(task) if isinstance(data.get("item"), str) else Item(task.title)
