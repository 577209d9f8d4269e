"""Checks while an agent runs: its stream, its budget and its claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.agents import stream_state as kinds
from hypervisor.queue.stop import Stop
from hypervisor.resources.limits import Limits

if TYPE_CHECKING:
    from hypervisor.agents.context import AgentContext
    from hypervisor.agents.session_recorder import SessionRecorder
    from hypervisor.agents.stream_state import StreamError
    from hypervisor.runs.watch import LeaseCheck

LAST_WORDS = 10.0  # seconds that an agent may keep running after it has ended its claim
# The agent's own retries do not help against these.
FINAL_ERRORS = (kinds.QUOTA, kinds.OVERLOAD, kinds.AUTH, kinds.BILLING, kinds.ACCESS)
UNREACHED = 10.0  # seconds that it may retry by itself
DEFAULT_LIMITS = Limits(silence=15 * 60_000)  # a model may hang
QUIET = "no output from the agent and no tool running"


class RetryPatience:
    """How long an agent may retry an error itself. Some retry forever."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last: StreamError | None = None

    def is_over(self, error: StreamError | None, now: float) -> bool:
        """Whether it has retried for too long. Without a new error, the model may be answering."""
        is_new, self._last = error is not self._last, error
        if error is None or error.kind not in kinds.OUTAGES:
            self._since = None
        elif self._since is None:
            self._since = now
        if error is None or error.kind in FINAL_ERRORS:
            return error is not None
        return is_new and self._since is not None and now - self._since >= UNREACHED


class StreamCheck:
    """Follows the stream: stops an agent whose provider does not answer, records the figures."""

    def __init__(self, agent: AgentContext, session: SessionRecorder) -> None:
        self._agent, self._session = agent, session
        self._patience = RetryPatience()
        self._answered = False

    def provider(self, now: float) -> Stop | None:
        error = self._agent.runner.stream_state.error
        if not self._patience.is_over(error, now):
            return None
        return Stop("", 0, "classify", error.text if error else "", self._agent.worker.me.name)

    def record(self, now: float) -> None:
        """Needs the store. An answer of the provider ends a cooldown whose time is over."""
        self._agent.runner.read_session_file()
        state = self._agent.runner.stream_state
        self._session.update(state, now)
        if not self._answered and (state.tools or state.tokens.output):
            self._answered = True
            self._agent.cooldowns.end()


class ClaimCheck:
    """Checks the task's budget and its claim, which an agent may end itself."""

    def __init__(self, agent: AgentContext, lease: LeaseCheck) -> None:
        self._agent, self._lease = agent, lease
        self._ended_at: float | None = None
        self._tools = 0  # calls when the claim ended

    def over_budget(self, now: float) -> Stop | None:
        reason = self._agent.budget.over_task(self._lease.token.task)
        return None if reason is None else self._lease.stop("fail", reason)

    def lost(self, now: float) -> Stop | None:
        """A claim that the agent has ended itself is not lost: it may finish its last message, but
        must not keep working."""
        tools = self._agent.runner.stream_state.tools
        if self._ended_at is None:
            outcome = self._agent.ended_claim(self._lease.token)
            if outcome is None:
                return self._lease.lost(now)
            if outcome == "failed":  # the next attempt may begin at any moment
                return self._lease.stop("classify", "it reported a failure")
            if outcome not in ("done", "blocked"):
                return self._lease.stop("lost", "the claim has ended")
            self._ended_at, self._tools = now, tools
        # The call that ended the claim may arrive only now.
        if tools > self._tools + 1 or now - self._ended_at > LAST_WORDS:
            return self._lease.stop("classify", "it kept working after its claim had ended")
        return None
