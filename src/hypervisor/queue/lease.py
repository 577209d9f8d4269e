"""Claims: the worker that holds one, the lease it gets, the token it shows.

A token names task, attempt and a nonce that nobody can guess. Every later call carries it; once the
attempt has ended, the same token changes nothing any more.
"""

from _operator import _compare_digest  # that of hmac, which would load OpenSSL
from typing import Literal, NamedTuple

from hypervisor.core import ids
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.task import Json, Task

DEFAULT_LEASE = 15 * 60_000
LONGEST_LEASE = 7 * 24 * 3600 * 1000
MOST_PER_CLAIM = 1000
CODE_LENGTHS = (ids.CODE_LENGTH, ids.OLD_CODE_LENGTH)


class Token(NamedTuple):
    task: str
    attempt: int
    nonce: str

    def __str__(self) -> str:
        return f"{self.task}.{self.attempt}.{self.nonce}"

    def fits(self, nonce: str) -> bool:
        """Whether the attempt has this nonce, in a time that does not tell how much of it fits."""
        return _compare_digest(self.nonce, nonce)


def parse_token(text: str) -> Token:
    """The token behind its text, or InvalidInput."""
    task, _, rest = text.strip().partition(".")
    attempt, _, nonce = rest.partition(".")
    is_whole = len(task) == ids.LENGTH and len(nonce) in CODE_LENGTHS
    if not is_whole or not attempt.isdecimal() or len(attempt) > 9:
        raise InvalidInput(
            f"{text[:80]!r} is not a claim token. A claim prints it as TASK.ATTEMPT.CODE."
        )
    return Token(ids.clean(task), int(attempt), ids.clean(nonce, ids.CODE_LENGTH))


class Worker(NamedTuple):
    """Who claims. With a pid, the claim lives as long as that process does."""

    id: str
    name: str
    host: str
    boot: str = ""
    pid: int = 0
    pid_start: int = 0


class ClaimRequest(NamedTuple):
    worker: Worker
    limit: int = 1
    lease: int = DEFAULT_LEASE
    wanted: ClaimFilter = ClaimFilter()


class Lease(NamedTuple):
    """A task that is the caller's until `until`, or as long as it heartbeats."""

    token: str
    until: int
    task: Task


class Usage(NamedTuple):
    """What an attempt cost. Unknown figures are None."""

    exit_code: int | None = None
    cpu_ms: int | None = None
    peak_kb: int | None = None
    output_bytes: int | None = None


# Lifecycle events that end an attempt. Workers report the first five; the others are decided by
# people ("cancel") and by the rescue of stale claims.
EndEvent = Literal["complete", "fail", "back_off", "block", "release", "cancel", "crash", "poison"]


class AttemptResult(NamedTuple):
    """How an attempt ended, and what is worth keeping of it. One plain tuple for all ends: it is
    built for every claim."""

    token: Token
    event: EndEvent
    result: Json = None  # complete
    reason: str | None = None  # all but complete
    unblock: str | None = None  # block: what would let it go on
    retry_at: int | None = None  # back_off, release: not before then
    usage: Usage | None = None
    receipts: tuple[str, ...] = ()  # evidence that is written down together with the end
    proposals: bool = False  # add what was proposed under the claim to the result


class Settled(NamedTuple):
    """The answer to a result; `repeated` when it had been given before."""

    token: str
    task: str
    state: str
    outcome: str
    repeated: bool
    lost: str | None = None


class Holder(NamedTuple):
    """A live claim and the process behind it, as the sweep looks at it."""

    task: str
    attempt: int
    until: int
    worker: Worker
    starts_processes: bool = False  # it is a worker of ours, which marks what it starts
