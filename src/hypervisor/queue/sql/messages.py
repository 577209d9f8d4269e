"""Messages of people to tasks. A message is given to one attempt, under the token of its claim."""

from __future__ import annotations

from hypervisor.core import randomness
from hypervisor.core.errors import WrongState
from hypervisor.core.ids import encode, new_numbers
from hypervisor.queue.lease import Token
from hypervisor.queue.lifecycle import BLOCKED, TERMINAL, state_name
from hypervisor.queue.message import NewMessage
from hypervisor.queue.sql import claims, event_log, steer
from hypervisor.queue.task import Message
from hypervisor.store.database import Session

COLUMNS = "id, task, kind, text, asked, actor, at, attempt"
ADD = """
INSERT INTO messages (id, task, kind, text, asked, actor, at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING RETURNING id
"""
OF_TASK = f"SELECT {COLUMNS} FROM messages WHERE task = ? ORDER BY id"
UNREAD = f"SELECT {COLUMNS} FROM messages WHERE task = ? AND attempt IS NULL ORDER BY id"
GIVE = "UPDATE messages SET attempt = ? WHERE task = ? AND attempt IS NULL"
STATE = "SELECT state, reason, unblock FROM tasks WHERE id = ?"
WHERE = "SELECT state, batch FROM tasks WHERE id = ?"
MAX_IN_EVENT = 500


def answer(session: Session, task: str, text: str, actor: str, now: int) -> str:
    """Store the answer and put the blocked task back into the queue. Returns its state."""
    session.lock("keys")  # before any row is locked, as in a claim
    state, *asked = session.rows(STATE + session.for_update, (task,))[0]
    if state != BLOCKED:
        raise WrongState(_not_blocked(task, state))
    why = " ".join(filter(None, asked))
    _add(session, NewMessage(task, "answer", text, why, actor), now)
    return steer.requeue(session, task, "reopen", f"answered: {_short(text)}", actor, now=now)


def tell(session: Session, task: str, text: str, actor: str, now: int) -> str:
    """Store a note for the attempt that runs, or else for the next. Returns the task's state."""
    state, batch = session.rows(WHERE + session.for_update, (task,))[0]
    if state in TERMINAL:
        raise WrongState(
            f"{task} is {state_name(state)}: nobody would read the note. Nothing was changed; "
            f"`hv retry {task}` puts it back into the queue."
        )
    _add(session, NewMessage(task, "note", text, "", actor), now)
    data = {"text": _short(text)}
    event_log.note(session, "tell", data, actor, now, task=task, batch=batch)
    return str(state)


def of_task(session: Session, task: str) -> list[Message]:
    """All messages about a task, oldest first."""
    return [Message(*row) for row in session.rows(OF_TASK, (task,))]


def unread(session: Session, task: str) -> list[Message]:
    """Those that no attempt has been given."""
    return [Message(*row) for row in session.rows(UNREAD, (task,))]


def give(session: Session, token: Token, now: int) -> list[Message]:
    """Give what is unread to the attempt that holds the claim. LeaseLost: its token is stale."""
    worker, batch = claims.lock_claim(session, token)
    messages = unread(session, token.task)
    if messages:
        session.run(GIVE, (token.attempt, token.task))
        data = {"messages": len(messages)}
        where = (token.task, batch, token.attempt, None, worker)
        event_log.write(session, now, [event_log.Line("delivered", *where, event_log.dump(data))])
    return [message._replace(attempt=token.attempt) for message in messages]


def _add(session: Session, new: NewMessage, now: int) -> None:
    while True:
        id = encode(new_numbers(1, now, randomness.entropy())[0])
        if session.rows(ADD, (id, *new, now)):
            return


def _not_blocked(task: str, state: str) -> str:
    step = f"`hv retry {task}`" if state in TERMINAL else f"`hv tell {task} TEXT`"
    return f"{task} is {state_name(state)} and asks nothing. Nothing was changed; try {step}."


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_IN_EVENT else line[: MAX_IN_EVENT - 1] + "…"
