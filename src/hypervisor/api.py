"""The Python API: every operation as a method of an open store."""

from __future__ import annotations

import os
from types import TracebackType

from hypervisor import app
from hypervisor.agents import agents as _agents
from hypervisor.agents import answer as _answer
from hypervisor.agents import rate_limits as _rate_limits
from hypervisor.agents import spawn as _spawn
from hypervisor.batches import archive as _archive
from hypervisor.batches import delete as _delete
from hypervisor.batches import pipeline as _patterns
from hypervisor.batches import pipeline_status as _overview
from hypervisor.batches import preflight as _preflight
from hypervisor.batches import receipts as _batch_receipts
from hypervisor.batches import report as _report
from hypervisor.batches import review as _review
from hypervisor.batches import review_items as _review_items
from hypervisor.batches import run as _run
from hypervisor.batches import submit as _submit
from hypervisor.batches import summary as _summary
from hypervisor.batches import wait as _waiting
from hypervisor.batches.plans import apply as _applying
from hypervisor.batches.plans import plan as _plan
from hypervisor.batches.plans import propose as _proposing
from hypervisor.batches.plans import undo as _undo
from hypervisor.cluster import down as _cluster_down
from hypervisor.cluster import join as _cluster_join
from hypervisor.cluster import manifests as _manifests
from hypervisor.cluster import status as _cluster_status
from hypervisor.cluster import up as _cluster_up
from hypervisor.git import land as _land
from hypervisor.git import queue_status as _queue_status
from hypervisor.git import resolve as _resolve
from hypervisor.git import review as _git_review
from hypervisor.git import saved_work as _saved_work
from hypervisor.git import tidy as _tidy
from hypervisor.hive import branch as _branch
from hypervisor.hive import branch_report as _branch_report
from hypervisor.hive import recall as _recall
from hypervisor.hive import remember as _remember
from hypervisor.hive import review as _hive_review
from hypervisor.learning import learn as _learn
from hypervisor.monitoring import status as _status
from hypervisor.notifications import notify as _notify
from hypervisor.queue import add as _add
from hypervisor.queue import claim as _claim
from hypervisor.queue import queries as _queries
from hypervisor.queue import receipts as _receipts
from hypervisor.queue import rescue as _sweep
from hypervisor.queue import steer as _steer
from hypervisor.queue.context import Context
from hypervisor.runs import backup as _backup
from hypervisor.runs import control as _control
from hypervisor.runs import doctor as _doctor
from hypervisor.runs import results as _results
from hypervisor.runs import supervise as _supervise
from hypervisor.skills import create as _skill_making
from hypervisor.skills import skills as _skills


class Hypervisor(Context):
    """An open store with every operation as a method. Safe to share between threads."""

    add = _add.add
    list_tasks = _queries.list_tasks
    show = _queries.show
    claim = _claim.claim
    heartbeat = _claim.heartbeat
    complete = _claim.complete
    complete_and_claim = _claim.complete_and_claim
    block = _claim.block
    fail = _claim.fail
    release = _claim.release
    retry = _steer.retry
    answer = _answer.answer
    tell = _answer.tell
    cancel = _steer.cancel
    accept = _steer.accept
    approve = _git_review.approve
    reject = _git_review.reject
    take_back = _steer.take_back
    update = _steer.update
    diff = _saved_work.diff
    snapshots = _saved_work.snapshots
    restore = _saved_work.restore
    merge_queue = _queue_status.merge_queue
    land = _land.land
    resolve_conflict = _resolve.resolve_conflict
    receipt = _receipts.receipt
    receipts = _receipts.receipts
    verify = _batch_receipts.verify
    write_receipts = _batch_receipts.write_receipts
    stats = _queries.stats
    batches = _queries.batches
    archive_batch = _archive.archive_batch
    unarchive_batch = _archive.unarchive_batch
    delete_batch = _delete.delete_batch
    events = _queries.events
    run = _run.run
    map = _run.map
    submit = _submit.submit
    run_pattern = _patterns.run_pattern
    pattern = _overview.pattern
    skills = _skills.skills
    skill = _skills.skill
    new_skill = _skill_making.new_skill
    preflight = _preflight.preflight
    agents = _agents.agents
    check_agent = _agents.check_agent
    cooldowns = _rate_limits.cooldowns
    end_cooldown = _rate_limits.end_cooldown
    report = _report.report
    supervise = _supervise.supervise
    cluster_up = _cluster_up.cluster_up
    cluster_status = _cluster_status.cluster_status
    cluster_down = _cluster_down.cluster_down
    cluster_join = _cluster_join.cluster_join
    cluster_manifest = _manifests.cluster_manifest
    status = _status.status
    attempts = _status.attempts
    summary = _summary.summary
    results = _results.results
    output = _results.output
    pause = _control.pause
    resume = _control.resume
    scale = _control.scale
    kill = _control.kill
    stop_batch = _control.stop_batch
    chunks = _review.chunks
    awaiting = _review.awaiting
    review_items = _review_items.review_items
    review = _review.review
    decide = _review.decide
    retry_chunk = _review.retry_chunk
    amend = _review.amend
    plan = _plan.plan
    apply = _applying.apply
    undo = _undo.undo
    add_rule = _notify.add_rule
    rules = _notify.rules
    remove_rule = _notify.remove_rule
    try_rule = _notify.try_rule
    send_notices = _notify.send_notices
    dead_letters = _notify.dead_letters
    retry_notices = _notify.retry_notices
    drop_notices = _notify.drop_notices
    propose = _proposing.propose
    wait_for_events = _waiting.wait_for_events
    spawn_parallel_tasks = _spawn.spawn_parallel_tasks
    learn_parallelization = _learn.learn_parallelization
    learnings = _learn.learnings
    remember = _remember.remember
    forget = _remember.forget
    recall = _recall.recall
    joined = _recall.joined
    unreviewed_findings = _hive_review.unreviewed_findings
    approve_findings = _hive_review.approve_findings
    hive_report = _branch_report.hive_report
    branches = _branch.branches
    branch = _branch.branch
    gc = _tidy.gc
    backup = _backup.backup
    sweep = _sweep.sweep
    doctor = _doctor.doctor

    def __enter__(self) -> Hypervisor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open(store: str | os.PathLike[str] | None = None, *, relaxed: bool | None = None) -> Hypervisor:
    """Open a store: a path, a postgresql:// URL, or the project's own (made if missing).

    Claims belong to this process: they are kept while it lives and released when it has died.
    `relaxed` does not wait for the disk: a power cut may lose the last moments.
    """
    context = app.connect(
        None if store is None else os.fspath(store), relaxed=relaxed, pid=os.getpid()
    )
    return Hypervisor(context.store, context.probe, context.actor, context.pid, context.parts)
