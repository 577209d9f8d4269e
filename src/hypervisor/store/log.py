"""Writing the event log: every change leaves its line in the same transaction."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from hypervisor.store.session import Session


class Line(NamedTuple):
    kind: str
    task: str
    batch: str
    attempt: int | None
    state: str | None
    actor: str
    data: str | None = None


def write(session: Session, now: int, lines: list[Line]) -> None:
    if lines:
        session.insert("events", [(now, *line) for line in lines])


def dump(value: Any) -> str | None:
    """JSON text for a column, None for nothing."""
    return None if value is None else json.dumps(value, separators=(",", ":"))


def load(text: str | None) -> Any:
    return None if text is None else json.loads(text)
