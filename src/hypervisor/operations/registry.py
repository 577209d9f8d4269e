"""Every verb, once: its name and where it is defined.

Faces look verbs up here; a verb's summary is the first line of its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

VERBS = {
    "add": "add",
    "list_tasks": "look",
    "show": "look",
    "claim": "claim",
    "heartbeat": "claim",
    "complete": "claim",
    "complete_and_claim": "claim",
    "block": "claim",
    "fail": "claim",
    "release": "claim",
    "retry": "steer",
    "cancel": "steer",
    "accept": "steer",
    "take_back": "steer",
    "update": "steer",
    "receipt": "receipts",
    "receipts": "receipts",
    "verify": "receipts",
    "write_receipts": "receipts",
    "stats": "look",
    "batches": "look",
    "events": "look",
    "run": "run",
    "preflight": "preflight",
    "report": "report",
    "status": "run",
    "attempts": "run",
    "summary": "run",
    "output": "run",
    "pause": "run",
    "resume": "run",
    "scale": "run",
    "kill": "run",
    "stop_batch": "run",
    "supervise": "run",
    "chunks": "review",
    "awaiting": "review",
    "review": "review",
    "decide": "review",
    "retry_chunk": "review",
    "amend": "review",
    "plan": "plan",
    "apply": "applying",
    "undo": "applying",
    "gc": "retention",
    "sweep": "sweep",
    "doctor": "doctor",
}


def operation(verb: str) -> Callable[..., Any]:
    """The function behind a verb, imported when asked for."""
    module = import_module(f"hypervisor.operations.{VERBS[verb]}")
    function: Callable[..., Any] = getattr(module, verb)
    return function


def summary(verb: str) -> str:
    return (operation(verb).__doc__ or "").strip().splitlines()[0]
