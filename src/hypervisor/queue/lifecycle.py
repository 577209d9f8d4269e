"""The one table of what may happen to a task: (state, event) → state.

QUEUE stands for the two states of a task that wants to run: `active` when
nothing stands in its way, otherwise `waiting`. Which of the two it is, is
decided and stored in the same transaction (see `queue_state`).
"""

from __future__ import annotations

from hypervisor.core.errors import WrongState

INBOX = "inbox"
WAITING = "waiting"
ACTIVE = "active"
IN_PROGRESS = "in_progress"
MERGING = "merging"
REVIEW = "review"
BLOCKED = "blocked"
DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"
QUEUE = "queue"

STATES = {
    INBOX: "captured, not triaged: never claimable",
    WAITING: "not claimable yet: an open dependency, a held chunk or exclusive key, a start time",
    ACTIVE: "claimable now",
    IN_PROGRESS: "claimed under a live lease",
    MERGING: "finished, its commits on the way into the target branch",
    REVIEW: "a person must look",
    BLOCKED: "the worker cannot go on and says why and what would unblock it",
    DONE: "finished",
    FAILED: "given up, with the reason kept",
    CANCELLED: "called off",
}
TERMINAL = frozenset({DONE, FAILED, CANCELLED})
UNFINISHED = (INBOX, WAITING, ACTIVE, IN_PROGRESS, MERGING)  # left to be worked on

EVENTS = {
    "add": "a task enters the store",
    "accept": "a person takes it out of the inbox",
    "ready": "the last thing in its way is gone",
    "hold": "something came in its way",
    "claim": "a worker takes it under a lease",
    "complete": "the worker finished it",
    "fail": "the worker gave up and no retry is left",
    "back_off": "the worker failed; it is tried again later",
    "block": "the worker cannot go on without help",
    "release": "the worker gives it back unharmed",
    "crash": "the worker died; it is tried again",
    "poison": "the worker died once too often on it",
    "submit": "its commits are handed over for merging",
    "merge": "its commits are in",
    "conflict": "its commits do not fit",
    "ask": "the worker wants a person to look",
    "approve": "a person accepts the work",
    "reject": "a person refuses the work",
    "cancel": "a person calls it off",
    "reopen": "a person wants it done again",
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
    (IN_PROGRESS, "ask"): REVIEW,
    (IN_PROGRESS, "cancel"): CANCELLED,
    (MERGING, "merge"): DONE,
    (MERGING, "conflict"): REVIEW,
    (MERGING, "cancel"): CANCELLED,
    (REVIEW, "approve"): DONE,
    (REVIEW, "reject"): FAILED,
    (REVIEW, "reopen"): QUEUE,
    (REVIEW, "cancel"): CANCELLED,
    (BLOCKED, "reopen"): QUEUE,
    (BLOCKED, "cancel"): CANCELLED,
    (DONE, "reopen"): QUEUE,
    (FAILED, "reopen"): QUEUE,
    (CANCELLED, "reopen"): QUEUE,
}


def next_state(state: str, event: str, task: str = "the task") -> str:
    """The state after `event`, or WrongState if the table has no such arrow."""
    after = TRANSITIONS.get((state, event))
    if after is None:
        allowed = ", ".join(sorted(e for s, e in TRANSITIONS if s == state))
        raise WrongState(
            f"cannot {event.replace('_', ' ')} {task}: it is {state}. "
            f"Nothing was changed; from here one can: {allowed}."
        )
    return after


def queue_state(
    open_dependencies: int, start_at: int | None, keyed: bool, held: bool = False
) -> str:
    """The state in which a task enters the queue. One with exclusive keys always waits at
    first: whether it may have them is for the store to say, in the same transaction."""
    hindered = open_dependencies > 0 or start_at is not None or keyed or held
    return WAITING if hindered else ACTIVE
