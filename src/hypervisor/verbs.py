"""Every verb, once: its name and where it is defined.

The CLI, MCP and the Python API look verbs up here; a verb's summary is the first line of its
docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

VERBS = {
    "add": "hypervisor.queue.add",
    "list_tasks": "hypervisor.queue.queries",
    "show": "hypervisor.queue.queries",
    "claim": "hypervisor.queue.claim",
    "heartbeat": "hypervisor.queue.claim",
    "complete": "hypervisor.queue.claim",
    "complete_and_claim": "hypervisor.queue.claim",
    "block": "hypervisor.queue.claim",
    "fail": "hypervisor.queue.claim",
    "release": "hypervisor.queue.claim",
    "retry": "hypervisor.queue.steer",
    "answer": "hypervisor.agents.answer",
    "tell": "hypervisor.agents.answer",
    "cancel": "hypervisor.queue.steer",
    "accept": "hypervisor.queue.steer",
    "approve": "hypervisor.git.review",
    "reject": "hypervisor.git.review",
    "take_back": "hypervisor.queue.steer",
    "update": "hypervisor.queue.steer",
    "receipt": "hypervisor.queue.receipts",
    "receipts": "hypervisor.queue.receipts",
    "verify": "hypervisor.batches.receipts",
    "write_receipts": "hypervisor.batches.receipts",
    "stats": "hypervisor.queue.queries",
    "batches": "hypervisor.queue.queries",
    "archive_batch": "hypervisor.batches.archive",
    "unarchive_batch": "hypervisor.batches.archive",
    "delete_batch": "hypervisor.batches.delete",
    "events": "hypervisor.queue.queries",
    "run": "hypervisor.batches.run",
    "map": "hypervisor.batches.run",
    "submit": "hypervisor.batches.submit",
    "run_pattern": "hypervisor.batches.pipeline",
    "pattern": "hypervisor.batches.pipeline_status",
    "preflight": "hypervisor.batches.preflight",
    "report": "hypervisor.batches.report",
    "diff": "hypervisor.git.saved_work",
    "snapshots": "hypervisor.git.saved_work",
    "restore": "hypervisor.git.saved_work",
    "merge_queue": "hypervisor.git.queue_status",
    "land": "hypervisor.git.land",
    "resolve_conflict": "hypervisor.git.resolve",
    "skills": "hypervisor.skills.skills",
    "skill": "hypervisor.skills.skills",
    "new_skill": "hypervisor.skills.create",
    "agents": "hypervisor.agents.agents",
    "check_agent": "hypervisor.agents.agents",
    "cooldowns": "hypervisor.agents.rate_limits",
    "end_cooldown": "hypervisor.agents.rate_limits",
    "status": "hypervisor.monitoring.status",
    "attempts": "hypervisor.monitoring.status",
    "summary": "hypervisor.batches.summary",
    "results": "hypervisor.runs.results",
    "output": "hypervisor.runs.results",
    "pause": "hypervisor.runs.control",
    "resume": "hypervisor.runs.control",
    "scale": "hypervisor.runs.control",
    "kill": "hypervisor.runs.control",
    "stop_batch": "hypervisor.runs.control",
    "supervise": "hypervisor.runs.supervise",
    "cluster_up": "hypervisor.cluster.up",
    "cluster_status": "hypervisor.cluster.status",
    "cluster_down": "hypervisor.cluster.down",
    "cluster_join": "hypervisor.cluster.join",
    "cluster_manifest": "hypervisor.cluster.manifests",
    "chunks": "hypervisor.batches.review",
    "awaiting": "hypervisor.batches.review",
    "review": "hypervisor.batches.review",
    "review_items": "hypervisor.batches.review_items",
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
    "unreviewed_findings": "hypervisor.hive.review",
    "approve_findings": "hypervisor.hive.review",
    "hive_report": "hypervisor.hive.branch_report",
    "branches": "hypervisor.hive.branch",
    "branch": "hypervisor.hive.branch",
    "gc": "hypervisor.git.tidy",
    "sweep": "hypervisor.queue.rescue",
    "doctor": "hypervisor.runs.doctor",
    "backup": "hypervisor.runs.backup",
}


def operation(verb: str) -> Callable[..., Any]:
    """The function of a verb, imported when needed."""
    module = import_module(VERBS[verb])
    function: Callable[..., Any] = getattr(module, verb)
    return function


def summary(verb: str) -> str:
    return (operation(verb).__doc__ or "").strip().splitlines()[0]
