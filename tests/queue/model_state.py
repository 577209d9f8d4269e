"""What the model knows about each task, and what follows by definition."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypervisor.queue.lease import Token, Worker

QUEUED = "queued"
ENDED = ("done", "failed", "cancelled")
WEEK = 7 * 24 * 3600 * 1000
WEEKS_BEHIND = {"critical": 0, "high": 4, "medium": 5, "low": 6}
OUTCOME = {
    "complete": "done",
    "fail": "failed",
    "back_off": "failed",
    "block": "blocked",
    "release": "released",
    "crash": "crashed",
    "cancel": "cancelled",
}
STATE_AFTER = {
    "complete": "done",
    "fail": "failed",
    "back_off": QUEUED,
    "block": "blocked",
    "release": QUEUED,
    "crash": QUEUED,
    "cancel": "cancelled",
}
CRASH_LIMIT = 3
UNFINISHED = ("inbox", QUEUED, "in_progress", "merging")


@dataclass
class Attempt:
    nonce: str
    worker: Worker
    until: int
    outcome: str | None = None
    answered: str | None = None  # the state that the first answer named


@dataclass
class Task:
    id: str
    batch: str
    type: str
    branch: str
    priority: str
    requires: tuple[str, ...]
    assignee: str
    keys: frozenset[str]
    key: str | None
    needs: set[str]
    start_at: int | None
    retries: int
    state: str
    failures: int = 0
    crashes: int = 0
    reason: str | None = None
    unblock: str | None = None
    attempts: list[Attempt] = field(default_factory=list)
    chunk: int = 0

    @property
    def lane(self) -> tuple[object, ...]:
        return (
            self.batch,
            self.type,
            self.branch,
            self.priority,
            self.requires,
            self.assignee,
            bool(self.keys),
        )

    @property
    def rank(self) -> int:
        """The moment it was added (what its id says) plus its level's handicap."""
        number = 0
        for letter in self.id:
            number = number * 32 + "0123456789abcdefghjkmnpqrstvwxyz".index(letter)
        return number + WEEKS_BEHIND[self.priority] * WEEK * 2**20

    @property
    def live(self) -> Attempt | None:
        last = self.attempts[-1] if self.attempts else None
        return last if last and last.outcome is None else None


@dataclass(frozen=True)
class Expected:
    """An event the ledger must have written."""

    kind: str
    task: str
    attempt: int | None
    actor: str | None = None


class ModelState:
    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.chains: dict[str, list[str]] = {}
        self.events: list[Expected] = []
        self.tokens: list[Token] = []
        self.pauses: set[tuple[str, str]] = set()
        self.chunks: dict[tuple[str, int], str] = {}
        self.merging_batches: set[str] = set()

    # Definitions

    def open_needs(self, task: Task) -> int:
        return sum(self.tasks[needed].state != "done" for needed in task.needs)

    def hindered(self, task: Task) -> bool:
        return self.open_needs(task) > 0 or task.start_at is not None or self.held(task)

    def held(self, task: Task) -> bool:
        return self.chunks.get((task.batch, task.chunk)) == "held"

    def state(self, task: Task) -> str | None:
        """The state the database must show; None where it has a choice."""
        if task.state != QUEUED:
            return task.state
        if self.hindered(task):
            return "waiting"
        return None if task.keys else "active"

    def paused(self, task: Task) -> bool:
        return any(
            covers in self.pauses
            for covers in (("all", ""), ("batch", task.batch), ("type", task.type))
        )

    # Pausing

    def pause(self, scope: str, name: str, actor: str) -> bool:
        if (scope, name) in self.pauses:
            return False
        self.pauses.add((scope, name))
        self.events.append(Expected("pause", "", None, actor))
        return True

    def resume(self, scope: str, name: str, actor: str) -> bool:
        if (scope, name) not in self.pauses:
            return False
        self.pauses.remove((scope, name))
        self.events.append(Expected("resume", "", None, actor))
        return True


def future(start_at: object, now: int) -> int | None:
    return start_at if isinstance(start_at, int) and start_at > now else None
