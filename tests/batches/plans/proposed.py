"""Proposed actions, and their outcome."""

from __future__ import annotations

from hypervisor.batches.sql import actions
from hypervisor.queue.sql import queries

BATCH = "tidy"
TEXT = "---\nstatus: open\n---\nhello\n"


def move(path, to):
    return {"do": "move", "path": path, "to": to}


def edit(path, **fields):
    return {"do": "edit", "path": path, "set": fields}


def write(path, text):
    return {"do": "write", "path": path, "text": text}


def create(path, text="new"):
    return {"do": "create", "path": path, "text": text}


def delete(path):
    return {"do": "delete", "path": path}


def apply(hv, **more):
    return hv.apply(BATCH, hv.plan(BATCH).hash, **more)


def states(hv):
    return [
        row.state for row in hv.store.read(actions.every, hv.store.read(queries.batch, BATCH).id)
    ]


def receipts(hv):
    return [each.text for each in hv.receipts(BATCH)]


class Interrupted(BaseException):
    """As if the process had ended here."""
