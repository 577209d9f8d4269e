"""Claims: the worker that holds one, its lease and its token.

A token consists of task, attempt and a nonce that cannot be guessed. Every later call carries it;
once the attempt has ended, the token changes nothing.
"""

from _operator import _compare_digest  # hmac would load OpenSSL
from typing import Literal

from hypervisor.core import ids
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.task import Json, Task

DEFAULT_LEASE = 15 * 60_000
MAX_LEASE = 7 * 24 * 3600 * 1000
MAX_PER_CLAIM = 1000
CODE_LENGTHS = (ids.CODE_LENGTH, ids.OLD_CODE_LENGTH)


class Token(NamedTuple):
    task: str
    attempt: int
    nonce: str

    def __str__(self) -> str:
        return f"{self.task}.{self.attempt}.{self.nonce}"

    def matches(self, nonce: str) -> bool:
        """Whether this is the nonce of the attempt, in constant time."""
        return _compare_digest(self.nonce, nonce)


def parse_token(text: str) -> Token:
    """The token in its parts, or InvalidInput."""
    task, _, rest = text.strip().partition(".")
    attempt, _, nonce = rest.partition(".")
    is_whole = len(task) == ids.LENGTH and len(nonce) in CODE_LENGTHS
    if not is_whole or not attempt.isdecimal() or len(attempt) > 9:
        raise InvalidInput(
            f"{text[:80]!r} is not a claim token. A claim prints it as TASK.ATTEMPT.CODE."
        )
    return Token(ids.clean(task), int(attempt), ids.clean(nonce, ids.CODE_LENGTH))


class Worker(NamedTuple):
    """The holder of claims. With a pid, a claim lives as long as that process."""

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
    """A task that belongs to the caller until `until`, or longer with heartbeats."""

    token: str
    until: int
    task: Task


class Usage(NamedTuple):
    """The resources that an attempt used; None if unknown."""

    exit_code: int | None = None
    cpu_ms: int | None = None
    peak_kb: int | None = None
    output_bytes: int | None = None


# Lifecycle events that end an attempt. Workers report the first five; "submit" replaces "complete"
# in a batch that merges; "cancel" comes from people, the others from the rescue of stale claims.
EndEvent = Literal[
    "complete", "fail", "back_off", "block", "release", "submit", "cancel", "crash", "poison"
]


class AttemptResult(NamedTuple):
    """How an attempt ended. One flat tuple for all events, because it is built for every claim."""

    token: Token
    event: EndEvent
    result: Json = None  # complete
    reason: str | None = None  # all but complete
    unblock: str | None = None  # block: what would unblock it
    retry_at: int | None = None  # back_off, release: not before then
    usage: Usage | None = None
    receipts: tuple[str, ...] = ()  # evidence that is stored in the same transaction
    proposals: bool = False  # add what was proposed under the claim to the result


class SettledResult(NamedTuple):
    """The answer to a result; `repeated` if the same result was reported before."""

    token: str
    task: str
    state: str
    outcome: str
    repeated: bool
    lost: str | None = None


class Holder(NamedTuple):
    """A live claim and the process that holds it."""

    task: str
    attempt: int
    until: int
    worker: Worker
    starts_processes: bool = False  # it is a worker of a run, which marks its child processes
    host_state: str = ""  # of the host whose lease keeps the claim; "": it has its own lease

    def has_lapsed(self, now: int) -> bool:
        """Whether nothing keeps the claim any more."""
        return self.host_state == "gone" if self.host_state else self.until < now


class Leftovers(NamedTuple):
    """A dead worker's results, which the store may not have, and its running attempt."""

    verdicts: tuple[AttemptResult, ...]
    running: str | None  # the token
    leader: tuple[int, int] | None  # pid and start of its first process
    group: str | None  # the worker's cgroup
