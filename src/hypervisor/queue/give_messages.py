"""Giving an attempt what people wrote about its task."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import LeaseLost
from hypervisor.queue.lease import Lease, parse_token
from hypervisor.queue.sql import messages as sql

if TYPE_CHECKING:
    from hypervisor.queue.task import Message
    from hypervisor.store.database import Database


def give_messages(store: Database, lease: Lease) -> list[Message]:
    """All messages about a claimed task; those that nobody has read are given to its attempt."""
    messages = store.read(sql.of_task, lease.task.id)
    if any(message.attempt is None for message in messages):
        with suppress(LeaseLost):  # its worker finds out
            store.write(sql.give, parse_token(lease.token), store.now())
    return messages


def give_unread(store: Database, token: str) -> list[Message]:
    """The messages that nobody has read, given to the attempt with this token."""
    parsed = parse_token(token)
    if not store.read(sql.unread, parsed.task):
        return []
    with suppress(LeaseLost):
        return store.write(sql.give, parsed, store.now())
    return []
