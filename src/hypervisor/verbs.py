"""Every verb, once: its name and where it is defined.

Faces look verbs up here; a verb's summary is the first line of its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

VERBS = {
    "add": "hypervisor.queue.add",
    "list_tasks": "hypervisor.queue.look",
    "show": "hypervisor.queue.look",
    "claim": "hypervisor.queue.claim",
    "heartbeat": "hypervisor.queue.claim",
    "complete": "hypervisor.queue.claim",
    "complete_and_claim": "hypervisor.queue.claim",
    "block": "hypervisor.queue.claim",
    "fail": "hypervisor.queue.claim",
    "release": "hypervisor.queue.claim",
    "retry": "hypervisor.queue.steer",
    "cancel": "hypervisor.queue.steer",
    "accept": "hypervisor.queue.steer",
    "take_back": "hypervisor.queue.steer",
    "update": "hypervisor.queue.steer",
    "receipt": "hypervisor.queue.receipts",
    "receipts": "hypervisor.queue.receipts",
    "verify": "hypervisor.queue.receipts",
    "write_receipts": "hypervisor.queue.receipts",
    "stats": "hypervisor.queue.look",
    "batches": "hypervisor.queue.look",
    "events": "hypervisor.queue.look",
    "run": "hypervisor.runs.run",
    "run_pattern": "hypervisor.batches.pipeline",
    "pattern": "hypervisor.batches.pipeline_status",
    "preflight": "hypervisor.batches.preflight",
    "report": "hypervisor.batches.report",
    "skills": "hypervisor.skills.skills",
    "skill": "hypervisor.skills.skills",
    "new_skill": "hypervisor.skills.create",
    "agents": "hypervisor.agents.agents",
    "check_agent": "hypervisor.agents.agents",
    "brakes": "hypervisor.agents.rate_limits",
    "lift_brake": "hypervisor.agents.rate_limits",
    "status": "hypervisor.runs.status",
    "attempts": "hypervisor.runs.status",
    "summary": "hypervisor.runs.run",
    "output": "hypervisor.runs.run",
    "pause": "hypervisor.runs.run",
    "resume": "hypervisor.runs.run",
    "scale": "hypervisor.runs.run",
    "kill": "hypervisor.runs.run",
    "stop_batch": "hypervisor.runs.run",
    "supervise": "hypervisor.runs.supervise",
    "chunks": "hypervisor.batches.review",
    "awaiting": "hypervisor.batches.review",
    "review": "hypervisor.batches.review",
    "decide": "hypervisor.batches.review",
    "retry_chunk": "hypervisor.batches.review",
    "amend": "hypervisor.batches.review",
    "plan": "hypervisor.batches.plans.plan",
    "apply": "hypervisor.batches.plans.apply",
    "undo": "hypervisor.batches.plans.undo",
    "add_rule": "hypervisor.notifications.notify",
    "rules": "hypervisor.notifications.notify",
    "remove_rule": "hypervisor.notifications.notify",
    "try_rule": "hypervisor.notifications.notify",
    "send_notices": "hypervisor.notifications.notify",
    "dead_letters": "hypervisor.notifications.notify",
    "retry_notices": "hypervisor.notifications.notify",
    "drop_notices": "hypervisor.notifications.notify",
    "propose": "hypervisor.batches.plans.propose",
    "wait_for_events": "hypervisor.batches.wait",
    "spawn_parallel_tasks": "hypervisor.agents.spawn",
    "learn_parallelization": "hypervisor.learning.learn",
    "learnings": "hypervisor.learning.learn",
    "remember": "hypervisor.hive.remember",
    "forget": "hypervisor.hive.remember",
    "recall": "hypervisor.hive.recall",
    "joined": "hypervisor.hive.recall",
    "hive_report": "hypervisor.hive.branch_report",
    "branches": "hypervisor.hive.branch",
    "branch": "hypervisor.hive.branch",
    "gc": "hypervisor.runs.outputs.retention",
    "sweep": "hypervisor.queue.rescue",
    "doctor": "hypervisor.queue.doctor",
}


def operation(verb: str) -> Callable[..., Any]:
    """The function behind a verb, imported when asked for."""
    module = import_module(VERBS[verb])
    function: Callable[..., Any] = getattr(module, verb)
    return function


def summary(verb: str) -> str:
    return (operation(verb).__doc__ or "").strip().splitlines()[0]
