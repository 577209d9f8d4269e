"""The lifecycle of a task as one table, (state, event) → state, and the rules for retries.

QUEUE stands for the two states of a task that should run: `active` if nothing
prevents it, otherwise `waiting`. Which one it is gets decided and stored in the
same transaction (see `queue_state`).
"""

from __future__ import annotations

from typing import Final

from hypervisor.core.errors import InvalidInput, WrongState
from hypervisor.store.clock import MAX_DELAY

CRASH_LIMIT = 3
LOST_HOSTS_LIMIT = 5  # in a row
FIRST_DELAY = 10_000
NEVER = 4_102_444_800_000  # the year 2100: a start time that will be replaced

INBOX = "inbox"
WAITING = "waiting"
ACTIVE = "active"
IN_PROGRESS: Final = "in_progress"
MERGING = "merging"
REVIEW = "review"
BLOCKED = "blocked"
DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"
QUEUE = "queue"

STATES = {
    INBOX: "captured but not accepted yet: cannot be claimed",
    WAITING: "cannot be claimed yet: a dependency, a held chunk, an exclusive key or a start time",
    ACTIVE: "can be claimed now",
    IN_PROGRESS: "claimed, with a valid lease",
    MERGING: "finished; its commits are being merged into the target branch",
    REVIEW: "a person has to look at it",
    BLOCKED: "the worker cannot continue; it says why and what would help",
    DONE: "finished",
    FAILED: "failed for good; the reason is kept",
    CANCELLED: "cancelled by a person",
}
NAMES = {ACTIVE: "ready", IN_PROGRESS: "running", REVIEW: "in review"}  # shown to people
TERMINAL = frozenset({DONE, FAILED, CANCELLED})
OPEN = (WAITING, ACTIVE, IN_PROGRESS, MERGING)
UNFINISHED = (INBOX, *OPEN)

EVENTS = {
    "add": "a task is added",
    "accept": "a person takes it out of the inbox",
    "ready": "nothing prevents it from running any more",
    "hold": "something prevents it from running now",
    "claim": "a worker takes it, with a lease",
    "complete": "the worker finished it",
    "fail": "the attempt failed and no retry is left",
    "back_off": "the attempt failed; it is retried later",
    "block": "the worker cannot continue without help",
    "release": "the worker returns it; this counts neither as a failure nor as a crash",
    "crash": "the worker died; the task is retried",
    "poison": "workers died on it too often, or too many hosts were lost with it",
    "submit": "the worker finished it, and its commits are to be merged",
    "merge": "its commits are merged, or it changed nothing",
    "land": "a person asks for its commits to be merged after all",
    "rework": "its commits conflict or fail verification; it goes back into the queue",
    "ask": "its commits cannot be merged without a person",
    "approve": "a person accepts the work; its commits are to be merged",
    "reject": "a person rejects the work",
    "cancel": "a person cancels it",
    "reopen": "a person puts it back into the queue",
}

TRANSITIONS: dict[tuple[str, str], str] = {
    (INBOX, "accept"): QUEUE,
    (INBOX, "cancel"): CANCELLED,
    (WAITING, "ready"): ACTIVE,
    (WAITING, "cancel"): CANCELLED,
    (ACTIVE, "hold"): WAITING,
    (ACTIVE, "claim"): IN_PROGRESS,
    (ACTIVE, "cancel"): CANCELLED,
    (IN_PROGRESS, "complete"): DONE,
    (IN_PROGRESS, "fail"): FAILED,
    (IN_PROGRESS, "back_off"): QUEUE,
    (IN_PROGRESS, "block"): BLOCKED,
    (IN_PROGRESS, "release"): QUEUE,
    (IN_PROGRESS, "crash"): QUEUE,
    (IN_PROGRESS, "poison"): FAILED,
    (IN_PROGRESS, "submit"): MERGING,
    (IN_PROGRESS, "cancel"): CANCELLED,
    (MERGING, "merge"): DONE,
    (MERGING, "rework"): QUEUE,
    (MERGING, "ask"): REVIEW,
    (MERGING, "cancel"): CANCELLED,
    (REVIEW, "approve"): MERGING,
    (REVIEW, "reject"): FAILED,
    (REVIEW, "reopen"): QUEUE,
    (REVIEW, "cancel"): CANCELLED,
    (BLOCKED, "reopen"): QUEUE,
    (BLOCKED, "cancel"): CANCELLED,
    (DONE, "reopen"): QUEUE,
    (DONE, "land"): MERGING,
    (FAILED, "reopen"): QUEUE,
    (CANCELLED, "reopen"): QUEUE,
}


# The names of events for people, and the commands that cause them.
VERBS = {"reopen": "retry"}
COMMANDS = {
    "accept": "hv update --accept",
    "approve": "hv approve",
    "reject": "hv reject",
    "reopen": "hv retry",
    "cancel": "hv cancel",
}


def state_name(state: str) -> str:
    """The name of a state for people, the same everywhere."""
    return NAMES.get(state, state)


def state_called(name: str) -> str:
    """The state with this name, either the one for people or the stored one."""
    for state in STATES:
        if name in (state, state_name(state), state_name(state).replace(" ", "-")):
            return state
    names = ", ".join(map(state_name, STATES))
    raise InvalidInput(f"unknown state {name!r} (one of {names})")


def next_state(state: str, event: str, task: str = "TASK") -> str:
    """The state after `event`, or WrongState if there is no such transition."""
    after = TRANSITIONS.get((state, event))
    if after is None:
        commands = [
            f"`{command} {task}`"
            for allowed, command in COMMANDS.items()
            if (state, allowed) in TRANSITIONS
        ]
        verb = VERBS.get(event, event.replace("_", " "))
        raise WrongState(
            f"cannot {verb} {task}: it is {state_name(state)}. "
            f"Nothing was changed; try {_alternatives(commands)}."
        )
    return after


def _alternatives(commands: list[str]) -> str:
    *others, last = commands
    return f"{', '.join(others)} or {last}" if others else last


def queue_state(
    open_dependencies: int, start_at: int | None, keyed: bool, held: bool = False
) -> str:
    """The state in which a task enters the queue. One with exclusive keys waits first; whether it
    gets them is decided later in the same transaction."""
    must_wait = open_dependencies > 0 or start_at is not None or keyed or held
    return WAITING if must_wait else ACTIVE


def back_off(failures: int, first: int = FIRST_DELAY) -> int:
    """Milliseconds to wait after that many failures: 10 s, 20 s, 40 s … up to an hour."""
    return int(min(first * 2 ** min(max(failures - 1, 0), 20), MAX_DELAY))


def is_poisoned(crashes: int) -> bool:
    return crashes >= CRASH_LIMIT
