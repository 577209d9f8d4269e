"""What is known of an agent's run from its stream so far. Parsers are pure: (state, line) → state.

All texts in it can be stored, and all of it is bounded.
"""

from __future__ import annotations

from typing import NamedTuple

from hypervisor.queue.task import Json

# Kinds of errors, as far as the stream tells.
QUOTA = "quota"  # a limit of the account: 429, usage limit
OVERLOAD = "overload"  # the provider is overloaded: 529, 503
AUTH = "auth"  # no key, a wrong one, not logged in
BILLING = "billing"  # out of credit: 402
ACCESS = "access"  # the account is known, but may not use this model or service: 403
REQUEST = "request"  # the provider refuses the request itself: 400
SERVER = "server"  # 5xx
NETWORK = "network"  # no connection, a dropped one
STREAM = "stream"  # an error inside an answer that had begun well
TURNS = "turns"  # the limit of turns
BUDGET = "budget"  # the agent's own limit of money
RESUME = "resume"  # the session no longer exists
OTHER = "other"
# The provider is unreachable or broken: no fault of the task.
OUTAGES = (OVERLOAD, SERVER, NETWORK, STREAM)

LONGEST_TEXT = 4_000
LONGEST_MESSAGE = 1 << 20
LONGEST_ACTIVITY = 200
LONGEST_SESSION = 200
MOST_DENIED = 50


class StreamError(NamedTuple):
    """An error that the stream reported. `retrying`: the agent itself is about to try again.

    `reset_at` is in milliseconds since 1970, `retry_after` in milliseconds from now; at most
    one of them is known. `own_pause`: the agent chose `retry_after`, not the provider."""

    kind: str
    text: str
    status: int | None = None
    reset_at: int | None = None
    retry_after: int | None = None
    retrying: bool = False
    own_pause: bool = False


class Tokens(NamedTuple):
    """`input` counts tokens that were not in the provider's cache, `cached` those that were."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def plus(self, other: Tokens) -> Tokens:
        return Tokens(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: Tokens) -> Tokens:
        """Never less than nothing."""
        return Tokens(*(max(mine - theirs, 0) for mine, theirs in zip(self, other, strict=True)))


class StreamState(NamedTuple):
    """Everything is about this run alone. Some agents count tokens or money over the whole
    session, so a run that resumes one starts with what had been used up to then: `tokens_before`
    and `cost_before` (session.py: `resumed`), which parsers subtract from such sums."""

    session: str = ""
    tokens: Tokens = Tokens()
    cost: float | None = None  # None: the stream does not tell
    turns: int = 0
    tools: int = 0  # calls of tools that were carried out
    denied: tuple[str, ...] = ()  # tools that were refused
    mcp: str = ""  # "ready" or "dead" once that is known
    message: str = ""  # the agent's last message
    result: Json = None  # its structured result
    error: StreamError | None = None  # the last one; None again once a later answer went well
    closes: bool = True  # False: a stream without an end event
    ended: bool = False  # the end event came: nothing more is to be expected
    ok: bool | None = None  # what the end event says
    activity: str = ""  # one line for people: what it is doing
    tokens_before: Tokens = Tokens()
    cost_before: float = 0.0
    note: str = ""  # a parser's own: what it has to remember from one line to the next

    def with_session(self, session: str) -> StreamState:
        session = storable(session.strip(), LONGEST_SESSION)
        return self._replace(session=session) if session else self

    def with_message(self, text: str, before: str = "") -> StreamState:
        """A message, or the next piece of one. Of a very long one the end is kept: its last line
        is what counts. It is cut seldom: a text that only grows is cheap to search for secrets."""
        text = before + storable(text, len(text))
        if len(text) > 2 * LONGEST_MESSAGE:
            text = text[-LONGEST_MESSAGE:]
        if not text or text.isspace():
            return self
        return self._replace(message=text, activity=one_line(text))

    def with_denied(self, tool: str) -> StreamState:
        if len(self.denied) >= MOST_DENIED:
            return self
        return self._replace(denied=(*self.denied, storable(tool, LONGEST_ACTIVITY) or "a tool"))

    def with_activity(self, activity: str) -> StreamState:
        return self._replace(activity=one_line(activity))

    def with_error(self, error: StreamError) -> StreamState:
        """The latest error, with what an earlier report of the same one said in addition. Two
        requests that were refused need not have been refused for the same reason."""
        old = self.error
        if old is not None and old.kind == error.kind != REQUEST:
            error = error._replace(status=error.status or old.status)
            if error.reset_at is None and error.retry_after is None and not old.own_pause:
                error = error._replace(reset_at=old.reset_at, retry_after=old.retry_after)
            elif error.reset_at is None and old.reset_at is not None:
                error = error._replace(reset_at=old.reset_at, retry_after=None)
        return self._replace(error=error, activity=one_line(error.text) or self.activity)


def storable(value: str, longest: int = LONGEST_TEXT) -> str:
    """A text that any database takes: no NUL, no half of a surrogate pair."""
    return value[:longest].replace("\0", "").encode("utf-8", "replace").decode()


def one_line(value: str) -> str:
    line = " ".join(value[: 10 * LONGEST_ACTIVITY].split())
    line = "".join(c if c.isprintable() else "·" for c in line)
    return line if len(line) <= LONGEST_ACTIVITY else line[: LONGEST_ACTIVITY - 1] + "…"
