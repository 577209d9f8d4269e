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
    "run_pattern": "patterns",
    "pattern": "overview",
    "preflight": "preflight",
    "report": "report",
    "skills": "skills",
    "skill": "skills",
    "new_skill": "skill_making",
    "agents": "agents",
    "check_agent": "agents",
    "brakes": "brakes",
    "lift_brake": "brakes",
    "status": "status",
    "attempts": "status",
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
    "add_rule": "notify",
    "rules": "notify",
    "remove_rule": "notify",
    "try_rule": "notify",
    "send_notices": "notify",
    "dead_letters": "notify",
    "retry_notices": "notify",
    "drop_notices": "notify",
    "propose": "proposing",
    "wait_for_events": "waiting",
    "spawn_parallel_tasks": "spawn",
    "learn_parallelization": "learn",
    "learnings": "learn",
    "remember": "hive",
    "forget": "hive",
    "recall": "hive",
    "joined": "hive",
    "hive_report": "hive",
    "branches": "hive",
    "branch": "hive",
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
