"""The state of an agent's session, from its stream. Parsers are pure: (state, line) → state.

All texts in it can be stored, and its size is bounded.
"""

from __future__ import annotations

from typing import Literal

from hypervisor.core.records import NamedTuple
from hypervisor.queue.agent_session import Tokens
from hypervisor.queue.task import Json

# Kinds of errors, as far as the stream tells.
ErrorKind = Literal[
    "quota",
    "overload",
    "auth",
    "billing",
    "access",
    "request",
    "server",
    "network",
    "stream",
    "turns",
    "budget",
    "resume",
    "other",
]
QUOTA: ErrorKind = "quota"  # a limit of the account: 429, usage limit
OVERLOAD: ErrorKind = "overload"  # the provider is overloaded: 529, 503
AUTH: ErrorKind = "auth"  # no key, a wrong one, not logged in
BILLING: ErrorKind = "billing"  # out of credit: 402
ACCESS: ErrorKind = "access"  # the account is known, but may not use this model or service: 403
REQUEST: ErrorKind = "request"  # the provider rejected the request itself: 400
SERVER: ErrorKind = "server"  # 5xx
NETWORK: ErrorKind = "network"  # no connection, a dropped one
STREAM: ErrorKind = "stream"  # an error in the middle of an answer
TURNS: ErrorKind = "turns"  # the limit of turns
BUDGET: ErrorKind = "budget"  # the agent's own limit of money
RESUME: ErrorKind = "resume"  # the session no longer exists
OTHER: ErrorKind = "other"
# The provider is unreachable or broken: no fault of the task.
OUTAGES = (OVERLOAD, SERVER, NETWORK, STREAM)

McpState = Literal["", "ready", "dead"]  # of the connection to us
MAX_TEXT_LENGTH = 4_000
MAX_MESSAGE_LENGTH = 1 << 20
MAX_ACTIVITY_LENGTH = 200
MAX_SESSION_LENGTH = 200
MAX_DENIED = 50


class StreamError(NamedTuple):
    """An error that the stream reported. `retrying`: the agent will retry by itself.

    `reset_at` is in milliseconds since 1970, `retry_after` in milliseconds from now; at most
    one of them is known. `own_pause`: the agent chose `retry_after`, not the provider."""

    kind: ErrorKind
    text: str
    status: int | None = None
    reset_at: int | None = None
    retry_after: int | None = None
    retrying: bool = False
    own_pause: bool = False


class StreamState(NamedTuple):
    """Only about this run. Some agents count tokens or money over the whole session, so a run that
    resumes one starts with the earlier sums: `tokens_before` and `cost_before` (session.py:
    `resumed`), which parsers subtract."""

    session: str = ""
    tokens: Tokens = Tokens()
    cost: float | None = None  # None: the stream does not tell
    turns: int = 0
    tools: int = 0  # calls of tools that were carried out
    denied: tuple[str, ...] = ()  # tools that were refused
    grantable: bool = False  # an answer can allow what was refused
    mcp: McpState = ""  # "" until that is known
    message: str = ""  # the agent's last message
    result: Json = None  # its structured result
    error: StreamError | None = None  # the last one; None again once a later answer went well
    closes: bool = True  # False: a stream without an end event
    ended: bool = False  # the end event has arrived: nothing more will follow
    ok: bool | None = None  # what the end event says
    activity: str = ""  # one line for people: what it is doing
    tokens_before: Tokens = Tokens()
    cost_before: float = 0.0
    note: str = ""  # a parser's own: what it has to remember from one line to the next

    def with_session(self, session: str) -> StreamState:
        session = storable(session.strip(), MAX_SESSION_LENGTH)
        return self._replace(session=session) if session else self

    def with_message(self, text: str, before: str = "") -> StreamState:
        """Add a message, or a piece of one. Only the end of a very long one is kept: its last line
        matters. It is cut rarely: text that only grows is cheap to search for secrets."""
        text = before + storable(text, len(text))
        if len(text) > 2 * MAX_MESSAGE_LENGTH:
            text = text[-MAX_MESSAGE_LENGTH:]
        if not text or text.isspace():
            return self
        return self._replace(message=text, activity=one_line(text))

    def with_denied(self, tool: str) -> StreamState:
        if len(self.denied) >= MAX_DENIED:
            return self
        return self._replace(denied=(*self.denied, storable(tool, MAX_ACTIVITY_LENGTH) or "a tool"))

    def with_activity(self, activity: str) -> StreamState:
        return self._replace(activity=one_line(activity))

    def with_error(self, error: StreamError) -> StreamState:
        """Set the latest error, with details from an earlier report of the same error. Two refused
        requests may have been refused for different reasons."""
        old = self.error
        if old is not None and old.kind == error.kind != REQUEST:
            error = error._replace(status=error.status or old.status)
            if error.reset_at is None and error.retry_after is None and not old.own_pause:
                error = error._replace(reset_at=old.reset_at, retry_after=old.retry_after)
            elif error.reset_at is None and old.reset_at is not None:
                error = error._replace(reset_at=old.reset_at, retry_after=None)
        return self._replace(error=error, activity=one_line(error.text) or self.activity)


def storable(value: str, longest: int = MAX_TEXT_LENGTH) -> str:
    """Text that any database accepts: no NUL, no lone surrogates."""
    return value[:longest].replace("\0", "").encode("utf-8", "replace").decode()


def one_line(value: str) -> str:
    line = " ".join(value[: 10 * MAX_ACTIVITY_LENGTH].split())
    line = "".join(c if c.isprintable() else "·" for c in line)
    return line if len(line) <= MAX_ACTIVITY_LENGTH else line[: MAX_ACTIVITY_LENGTH - 1] + "…"
