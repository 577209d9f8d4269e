"""What the worker tells the bridge: how to run an agent that speaks ACP."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.runs.spec import Permissions


class Order(NamedTuple):
    """In argv: JSON, then the agent's own words. `mode` is the session's mode, "" for the agent's
    choice; `granted` are actions that people allowed in answers."""

    mcp: str
    permissions: Permissions
    session: str
    allow: tuple[str, ...]
    mode: str
    granted: tuple[str, ...]
    command: tuple[str, ...]


def order_words(order: Order) -> tuple[str, ...]:
    """The arguments of the bridge."""
    head = order._asdict()
    command = head.pop("command")
    return (json.dumps(head), *command)


def order_from(words: Sequence[str]) -> Order:
    """The reverse of `order_words`."""
    head, *command = words
    values = json.loads(head)
    values |= {name: tuple(values[name]) for name in ("allow", "granted")}
    return Order(**values, command=tuple(command))
