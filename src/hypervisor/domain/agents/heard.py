"""What an agent's stream has said so far. Parsers are pure: (heard, line) → heard."""

from __future__ import annotations

from typing import NamedTuple

from hypervisor.domain.task import Json

# What may be wrong, as far as the stream tells.
QUOTA = "quota"  # a limit of the account: 429, usage limit
OVERLOAD = "overload"  # the provider has too much to do: 529, 503
AUTH = "auth"  # no key, a wrong one, not logged in
REQUEST = "request"  # the provider refuses the request itself: 400
SERVER = "server"  # 5xx
NETWORK = "network"  # no connection, a dropped one
STREAM = "stream"  # an error inside an answer that had begun well
TURNS = "turns"  # the limit of turns
BUDGET = "budget"  # the agent's own limit of money
RESUME = "resume"  # there is no such session any more
OTHER = "other"


class Trouble(NamedTuple):
    """An error that the stream told. `retrying`: the agent itself is about to try again.

    `reset_at` is in milliseconds since 1970, `retry_after` in milliseconds from now; at most
    one of them is known."""

    kind: str
    text: str
    status: int | None = None
    reset_at: int | None = None
    retry_after: int | None = None
    retrying: bool = False


class Tokens(NamedTuple):
    """`input` counts what was read anew, `cached` what came from the provider's cache."""

    input: int = 0
    output: int = 0
    cached: int = 0


class Heard(NamedTuple):
    """Everything is about this run alone. Some agents count tokens or money over the whole
    session, so a run that resumes one starts with what had been used up to then: `before` and
    `cost_before` (session.py: `resumed`), which parsers take off such sums."""

    session: str = ""
    tokens: Tokens = Tokens()
    cost: float | None = None  # None: the stream does not tell
    turns: int = 0
    tools: int = 0  # calls of tools that were carried out
    denied: tuple[str, ...] = ()  # tools that were refused
    mcp: str = ""  # "ready" or "dead" once that is known
    said: str = ""  # the agent's last message
    result: Json = None  # its structured result
    trouble: Trouble | None = None  # the last one; None again once a later answer went well
    closes: bool = True  # False: a stream without a closing word
    ended: bool = False  # its own closing word came: nothing more is to be expected
    ok: bool | None = None  # what that closing word said
    now: str = ""  # one line for people: what it is doing
    before: Tokens = Tokens()
    cost_before: float = 0.0
    counted: str = ""  # a parser's own note: the message whose tokens it counted last
