"""Writing the event log: every change writes its line in the same transaction."""

from collections.abc import Callable
from functools import cache
from typing import Any

from hypervisor.core.errors import StoreBroken
from hypervisor.core.records import NamedTuple
from hypervisor.store.database import Row, Session


class Line(NamedTuple):
    kind: str
    task: str
    batch: str
    attempt: int | None
    state: str | None
    actor: str
    data: str | None = None


def write(session: Session, now: int, lines: list[Line]) -> None:
    session.pending += [(now, *line) for line in lines]


def note(
    session: Session,
    kind: str,
    data: Any,
    actor: str,
    now: int,
    *,
    task: str = "",
    batch: str = "",
    state: str | None = None,
) -> None:
    """Write one event: a change of a task or batch, or something worth knowing."""
    write(session, now, [Line(kind, task, batch, None, state, actor, dump(data))])


def take(session: Session) -> list[Row]:
    """Remove and return the pending lines; the caller writes them."""
    lines, session.pending = session.pending, []
    return lines


def dump(value: Any) -> str | None:
    """JSON text for a column, None for None."""
    if value is None:
        return None
    return _encoder()(value)


@cache
def _encoder() -> Callable[[Any], str]:
    from json import JSONEncoder  # the most frequent commands don't need it

    return JSONEncoder(separators=(",", ":")).encode


def load(text: str | None) -> Any:
    if text is None:
        return None
    import json

    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged(f"stored JSON is invalid: {error}") from None


def damaged(how: str) -> StoreBroken:
    return StoreBroken(
        f"the store is damaged ({how}). Nothing was changed; "
        "`hv doctor` checks the whole store, then restore a backup."
    )
