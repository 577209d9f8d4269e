"""The Python API for asyncio: the operations of `Hypervisor`, awaited.

Each runs in a thread, so the event loop keeps running.
"""

from __future__ import annotations

import os
from asyncio import sleep, to_thread
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

from hypervisor import api
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
from hypervisor.batches import submit as _submit
from hypervisor.batches import summary as _summary
from hypervisor.batches import wait as _waiting
from hypervisor.batches.plans import apply as _applying
from hypervisor.batches.plans import plan as _plan
from hypervisor.batches.plans import propose as _proposing
from hypervisor.batches.plans import undo as _undo
from hypervisor.batches.run import RunOptions
from hypervisor.batches.run_handle import MAX_PAUSE, MIN_PAUSE, ItemResult, Run, seconds_of
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
from hypervisor.queue.task import Json
from hypervisor.runs import backup as _backup
from hypervisor.runs import control as _control
from hypervisor.runs import doctor as _doctor
from hypervisor.runs import results as _results
from hypervisor.runs import supervise as _supervise
from hypervisor.runs.results import TaskResult
from hypervisor.runs.spec import ResultFormat, Stdin
from hypervisor.skills import create as _skill_making
from hypervisor.skills import skills as _skills

P = ParamSpec("P")
R = TypeVar("R")


class AsyncMethod(Generic[P, R]):
    """An operation as an async method."""

    def __init__(self, operation: Callable[Concatenate[Any, P], R]) -> None:
        self.__doc__ = operation.__doc__
        self.__wrapped__ = operation

    def __get__(
        self, instance: AsyncHypervisor, owner: type[AsyncHypervisor]
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        async def method(*args: P.args, **kwargs: P.kwargs) -> R:
            return await to_thread(self.__wrapped__, instance.hv, *args, **kwargs)

        method.__doc__ = self.__doc__
        return method


class AsyncRun:
    """A `Run` whose results are awaited: `async for result in run`."""

    def __init__(self, run: Run) -> None:
        self.run, self.batch = run, run.batch

    def __len__(self) -> int:
        return len(self.run)

    async def __aiter__(self) -> AsyncIterator[ItemResult]:
        for position in range(len(self)):
            while (result := self.run.result_at(position)) is None:
                await self._more(None)
            yield result

    @property
    def is_finished(self) -> bool:
        return self.run.is_finished

    @property
    def failed(self) -> tuple[ItemResult, ...]:
        return self.run.failed

    async def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until all items have finished, at most `timeout`; returns whether they have."""
        deadline = None if timeout is None else monotonic() + seconds_of(timeout)
        await to_thread(self.run.look)
        while not self.is_finished:
            if not await self._more(deadline):
                return False
        return True

    async def results(self) -> list[Json]:
        """Wait, and get the results in the order of the items."""
        await self.wait()
        return self.run.results()

    async def cancel(self, reason: str = "") -> int:
        """Cancel the items that have not finished; returns how many."""
        return await to_thread(self.run.cancel, reason)

    async def _more(self, deadline: float | None) -> bool:
        """Reads the store in a thread and waits here, where it can be cancelled."""
        began = monotonic()
        while not await to_thread(self.run.look):
            now = monotonic()
            if deadline is not None and now >= deadline:
                return False
            pause = min(max((now - began) / 10, MIN_PAUSE), MAX_PAUSE)
            await sleep(pause if deadline is None else min(pause, deadline - now))
        return True


class AsyncHypervisor:
    """An open store with every operation as an async method; `hv` is the synchronous one."""

    def __init__(self, hv: api.Hypervisor) -> None:
        self.hv = hv

    add = AsyncMethod(_add.add)
    list_tasks = AsyncMethod(_queries.list_tasks)
    show = AsyncMethod(_queries.show)
    claim = AsyncMethod(_claim.claim)
    heartbeat = AsyncMethod(_claim.heartbeat)
    complete = AsyncMethod(_claim.complete)
    complete_and_claim = AsyncMethod(_claim.complete_and_claim)
    block = AsyncMethod(_claim.block)
    fail = AsyncMethod(_claim.fail)
    release = AsyncMethod(_claim.release)
    retry = AsyncMethod(_steer.retry)
    answer = AsyncMethod(_answer.answer)
    tell = AsyncMethod(_answer.tell)
    cancel = AsyncMethod(_steer.cancel)
    accept = AsyncMethod(_steer.accept)
    approve = AsyncMethod(_git_review.approve)
    reject = AsyncMethod(_git_review.reject)
    take_back = AsyncMethod(_steer.take_back)
    update = AsyncMethod(_steer.update)
    diff = AsyncMethod(_saved_work.diff)
    snapshots = AsyncMethod(_saved_work.snapshots)
    restore = AsyncMethod(_saved_work.restore)
    merge_queue = AsyncMethod(_queue_status.merge_queue)
    land = AsyncMethod(_land.land)
    resolve_conflict = AsyncMethod(_resolve.resolve_conflict)
    receipt = AsyncMethod(_receipts.receipt)
    receipts = AsyncMethod(_receipts.receipts)
    verify = AsyncMethod(_batch_receipts.verify)
    write_receipts = AsyncMethod(_batch_receipts.write_receipts)
    stats = AsyncMethod(_queries.stats)
    batches = AsyncMethod(_queries.batches)
    archive_batch = AsyncMethod(_archive.archive_batch)
    unarchive_batch = AsyncMethod(_archive.unarchive_batch)
    delete_batch = AsyncMethod(_delete.delete_batch)
    events = AsyncMethod(_queries.events)
    submit = AsyncMethod(_submit.submit)
    run_pattern = AsyncMethod(_patterns.run_pattern)
    pattern = AsyncMethod(_overview.pattern)
    skills = AsyncMethod(_skills.skills)
    skill = AsyncMethod(_skills.skill)
    new_skill = AsyncMethod(_skill_making.new_skill)
    preflight = AsyncMethod(_preflight.preflight)
    agents = AsyncMethod(_agents.agents)
    check_agent = AsyncMethod(_agents.check_agent)
    cooldowns = AsyncMethod(_rate_limits.cooldowns)
    end_cooldown = AsyncMethod(_rate_limits.end_cooldown)
    report = AsyncMethod(_report.report)
    supervise = AsyncMethod(_supervise.supervise)
    cluster_up = AsyncMethod(_cluster_up.cluster_up)
    cluster_status = AsyncMethod(_cluster_status.cluster_status)
    cluster_down = AsyncMethod(_cluster_down.cluster_down)
    cluster_join = AsyncMethod(_cluster_join.cluster_join)
    cluster_manifest = AsyncMethod(_manifests.cluster_manifest)
    status = AsyncMethod(_status.status)
    attempts = AsyncMethod(_status.attempts)
    summary = AsyncMethod(_summary.summary)
    output = AsyncMethod(_results.output)
    pause = AsyncMethod(_control.pause)
    resume = AsyncMethod(_control.resume)
    scale = AsyncMethod(_control.scale)
    kill = AsyncMethod(_control.kill)
    stop_batch = AsyncMethod(_control.stop_batch)
    chunks = AsyncMethod(_review.chunks)
    awaiting = AsyncMethod(_review.awaiting)
    review_items = AsyncMethod(_review_items.review_items)
    review = AsyncMethod(_review.review)
    decide = AsyncMethod(_review.decide)
    retry_chunk = AsyncMethod(_review.retry_chunk)
    amend = AsyncMethod(_review.amend)
    plan = AsyncMethod(_plan.plan)
    apply = AsyncMethod(_applying.apply)
    undo = AsyncMethod(_undo.undo)
    add_rule = AsyncMethod(_notify.add_rule)
    rules = AsyncMethod(_notify.rules)
    remove_rule = AsyncMethod(_notify.remove_rule)
    try_rule = AsyncMethod(_notify.try_rule)
    send_notices = AsyncMethod(_notify.send_notices)
    dead_letters = AsyncMethod(_notify.dead_letters)
    retry_notices = AsyncMethod(_notify.retry_notices)
    drop_notices = AsyncMethod(_notify.drop_notices)
    propose = AsyncMethod(_proposing.propose)
    wait_for_events = AsyncMethod(_waiting.wait_for_events)
    spawn_parallel_tasks = AsyncMethod(_spawn.spawn_parallel_tasks)
    learn_parallelization = AsyncMethod(_learn.learn_parallelization)
    learnings = AsyncMethod(_learn.learnings)
    remember = AsyncMethod(_remember.remember)
    forget = AsyncMethod(_remember.forget)
    recall = AsyncMethod(_recall.recall)
    joined = AsyncMethod(_recall.joined)
    unreviewed_findings = AsyncMethod(_hive_review.unreviewed_findings)
    approve_findings = AsyncMethod(_hive_review.approve_findings)
    hive_report = AsyncMethod(_branch_report.hive_report)
    branches = AsyncMethod(_branch.branches)
    branch = AsyncMethod(_branch.branch)
    gc = AsyncMethod(_tidy.gc)
    backup = AsyncMethod(_backup.backup)
    sweep = AsyncMethod(_sweep.sweep)
    doctor = AsyncMethod(_doctor.doctor)

    async def run(
        self,
        command: Sequence[str] | str,
        items: Iterable[Any],
        *,
        shell: bool = False,
        stdin: Stdin = "closed",
        result: ResultFormat = "none",
        **options: Unpack[RunOptions],
    ) -> AsyncRun:
        """Run a command for each item, as `Hypervisor.run` does."""
        run = partial(self.hv.run, shell=shell, stdin=stdin, result=result, **options)
        return AsyncRun(await to_thread(run, command, items))

    async def map(
        self,
        function: Callable[[Any], Any] | str,
        items: Iterable[Any],
        *,
        python: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncRun:
        """Call a function with each item, as `Hypervisor.map` does."""
        return AsyncRun(await to_thread(self.hv.map, function, items, python=python, **options))

    async def results(self, batch: str) -> list[TaskResult]:
        """Get the result of every task of a batch."""
        return await to_thread(lambda: list(self.hv.results(batch)))

    async def close(self) -> None:
        await to_thread(self.hv.close)

    async def __aenter__(self) -> AsyncHypervisor:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Opening:
    """A store to be opened with `async with` or `await`."""

    def __init__(self, open_store: Callable[[], api.Hypervisor]) -> None:
        self._open_store = open_store

    async def _open(self) -> AsyncHypervisor:
        return AsyncHypervisor(await to_thread(self._open_store))

    def __await__(self) -> Generator[Any, Any, AsyncHypervisor]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncHypervisor:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *error: object) -> None:
        await self._opened.close()


def open_async(
    store: str | os.PathLike[str] | None = None, *, relaxed: bool | None = None
) -> Opening:
    """Open a store as `hypervisor.open` does: `async with hypervisor.open_async() as hv`."""
    return Opening(lambda: api.open(store, relaxed=relaxed))
