"""Running work: submitting batches, steering them, and their results."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from hypervisor.agents.agents import Router, equipped_spec
from hypervisor.agents.routing import AUTO
from hypervisor.agents.running_status import money_of
from hypervisor.batches.chunk import Chunk
from hypervisor.batches.sql import chunks as chunks_sql
from hypervisor.batches.sql import summary as summary_sql
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, NotFound, WrongState
from hypervisor.queue import lifecycle
from hypervisor.queue.add import AlikeTasks, insert_tasks
from hypervisor.queue.context import Context, batch_id
from hypervisor.queue.result import NO_CATEGORY, category_of, items_in
from hypervisor.queue.sql import insert, queries, steer
from hypervisor.queue.steer import Moved
from hypervisor.queue.task import Batch, NewTask
from hypervisor.runs import sql
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.config import MOST_WORKERS
from hypervisor.runs.spec import ALL, BATCH, TYPE, Pause, RunSpec, TaskReport, spec_data
from hypervisor.store import settings

FIRST_SLICE, SLICE, LINKED_SLICE = 100, 1_000, 5_000
PAGE = 500  # more would take no less time: what is held at once, the collector looks through
INTERRUPTED = "interrupted"
BAD = (lifecycle.FAILED, lifecycle.BLOCKED, lifecycle.REVIEW, lifecycle.CANCELLED)
OPEN = (lifecycle.WAITING, lifecycle.ACTIVE, lifecycle.IN_PROGRESS, lifecycle.MERGING)


class Submitted(NamedTuple):
    """What `run` found to do: new tasks, failed ones to try again, and those still open."""

    batch: Batch
    since: int
    added: int = 0
    retried: int = 0
    still_open: int = 0
    already_done: int = 0
    environment_kept: bool = True  # False: commands get the supervisor's instead of the caller's

    @property
    def to_do(self) -> int:
        return self.added + self.retried + self.still_open


class Summary(NamedTuple):
    """What came of a batch."""

    batch: str
    id: str
    states: dict[str, int]
    total: int
    succeeded: bool
    runtime_seconds: float
    attempt_seconds: float
    cpu_seconds: float
    peak_bytes: int
    attempts: int
    tokens: int | None
    cost: float | None
    tasks: tuple[TaskReport, ...]
    categories: dict[str, int]
    chunks: tuple[Chunk, ...]
    skipped: int  # by the last run, because they were done before
    estimated: bool = False  # the cost is, at least in part, from a table of prices


def run(
    hv: Context,
    spec: RunSpec,
    tasks: Iterable[NewTask],
    name: str,
    now: int | None = None,
    *,
    chunks: Sequence[str] = (),
    together: bool = False,
) -> Submitted:
    """Run a command, function or agent once per item; items that are already done are skipped.

    `chunks` are the names of the chunks; a task's `chunk` is its place among them, from 1.
    `together` adds all in one step, so that any task may wait for any other.
    """
    check_spec(spec)
    if spec.agent and not spec.agents:
        spec = equipped_spec(hv, spec)
    router = Router(hv, spec) if spec.agent == AUTO else None
    validate.label("the batch's name", name)
    since = hv.now() + 1 if now is None else now  # what has just ended was done before
    if together:
        tasks = list(tasks)
        hv.store.read(insert.check_links, tasks, name)  # before anything of the batch is made
    with hv.launcher.submitting():
        batch = hv.store.write(sql.declare, name, spec_data(spec), hv.actor, hv.at(now))
        kept = hv.launcher.keep_environment(batch.id)
        hv.store.write(sql.resume, Pause(BATCH, batch.id, "run again", hv.actor, 0), hv.at(now))
        counts = Submitted(batch, since, environment_kept=kept)
        numbers = {
            chunk.name: chunk.number
            for chunk in (
                hv.store.write(chunks_sql.declare, batch.id, chunks, spec.gate) if chunks else ()
            )
        }
        placed = (
            task._replace(chunk=numbers[chunks[task.chunk - 1]]) if task.chunk else task
            for task in (tasks if router is None else map(router.labelled, tasks))
        )
        checked = map(AlikeTasks().check, placed)
        for part in [list(checked)] if together else _slices(checked):
            counts = _submit(hv, counts, part, now)
        hv.store.write(settings.set_setting, f"skipped {batch.id}", str(counts.already_done))
    return counts


def outcome(hv: Context, *parts: Submitted) -> dict[str, int]:
    """How many tasks have come into each state since a run began."""
    states: Counter[str] = Counter()
    for part in parts:
        states.update(hv.store.read(sql.changed_since, part.batch.id, part.since))
    return states


def unsuccessful(hv: Context, *parts: Submitted) -> int:
    """How many tasks of a run did not succeed; what failed in earlier runs does not count."""
    changed = outcome(hv, *parts)
    open_tasks = 0
    for part in parts:
        states = hv.store.read(queries.stats, part.batch.id, hv.now(), False).states
        open_tasks += sum(states[state] for state in OPEN)
    return open_tasks + sum(changed.get(state, 0) for state in BAD)


def pause(
    hv: Context,
    batch: str | None = None,
    type: str | None = None,
    reason: str = "",
    now: int | None = None,
) -> bool:
    """Pause a batch, a type or everything: no new claims; running attempts finish."""
    validate.text("the reason", reason)
    return hv.store.write(sql.pause, _scope(hv, batch, type, reason), hv.at(now))


def resume(
    hv: Context, batch: str | None = None, type: str | None = None, now: int | None = None
) -> bool:
    """End a pause of a batch, a type or everything."""
    return hv.store.write(sql.resume, _scope(hv, batch, type, ""), hv.at(now))


def scale(
    hv: Context, workers: int | None, batch: str | None = None, now: int | None = None
) -> None:
    """Set how many workers there may be, for a batch or for everything on each host."""
    if workers is not None:
        validate.number("the number of workers", workers, 0, MOST_WORKERS)
    found = batch_id(hv, batch)
    hv.store.write(sql.scale, workers, found, hv.actor, hv.at(now))


def kill(
    hv: Context, task: str, reason: str = "", retry: bool = False, now: int | None = None
) -> Moved:
    """Stop a running attempt with all its processes; its task fails, or is tried again."""
    found = hv.resolve(task)
    validate.text("the reason", reason)
    why = f"killed by {hv.actor}" + (f": {reason}" if reason else "")
    if hv.store.write(
        sql.ask_stop, found, "release" if retry else "fail", why, hv.actor, now=hv.at(now)
    ):
        return Moved(found, "stopping")
    state = hv.store.read(queries.task, found).state
    if state == lifecycle.IN_PROGRESS:
        raise WrongState(
            f"{found} was claimed by somebody that Hypervisor did not start. Nothing was changed; "
            "`hv cancel` and `hv release --task` end the claim."
        )
    raise WrongState(f"{found} is {state}: nothing of it runs. Nothing was changed.")


def stop_batch(hv: Context, batch: str, reason: str = "", now: int | None = None) -> int:
    """Stop all running attempts of a batch and put their tasks back; returns how many."""
    found = batch_id(hv, batch)
    validate.text("the reason", reason)
    why = f"stopped by {hv.actor}" + (f": {reason}" if reason else "")
    return sum(
        hv.store.write(sql.ask_stop, each.task, "release", why, hv.actor, now=hv.at(now))
        for each in hv.store.read(sql.running, found, 10_000)
    )


def summary(hv: Context, batch: str, now: int | None = None, tasks: bool = True) -> Summary:
    """Sum up a batch: every task with its outcome, and what the whole took.

    Without `tasks` it adds up the same and reads none of them. It has succeeded only if all that
    follows on it has, too."""
    from hypervisor.batches.pipeline_status import has_succeeded  # which is built on this module

    meant = hv.store.read(queries.batch, validate.text("the batch", batch))
    sums = hv.store.read(summary_sql.totals, meant.id, hv.at(now))
    total, done = sum(sums.states.values()), sums.states.get(lifecycle.DONE, 0)
    money = money_of(hv, meant, now)
    spent = None if money is None else money.spent
    return Summary(
        meant.name,
        meant.id,
        sums.states,
        total,
        has_succeeded(hv, meant.id, sums.states),
        (sums.ended - sums.begun) / 1000,
        sums.milliseconds / 1000,
        sums.cpu_ms / 1000,
        sums.peak_kb * 1024,
        sums.attempts,
        None if spent is None else spent.tokens,
        None if spent is None or not spent.cost_micros else spent.cost_micros / 1e6,
        tuple(reports(hv, meant.id, now)) if tasks else (),
        _categories(hv, meant.id, done),
        tuple(hv.store.read(chunks_sql.every, meant.id)),
        int(hv.store.read(settings.setting, f"skipped {meant.id}") or 0),
        bool(spent and spent.estimated),
    )


def all_done(states: Mapping[str, int]) -> bool:
    """Whether there is something, and all of it is done."""
    return 0 < sum(states.values()) == states.get(lifecycle.DONE, 0)


def _categories(hv: Context, batch: str, done: int) -> dict[str, int]:
    """How many of what is done are in which category; nothing where nobody named one."""
    found: Counter[str] = Counter()
    after, tasks = "", 0
    while page := hv.store.read(summary_sql.results, batch, after, PAGE):
        for _, result in page:
            found.update(map(category_of, list(items_in(result)) or [result]))
        after, tasks = page[-1][0], tasks + len(page)
    if set(found) <= {NO_CATEGORY}:
        return {}
    found[NO_CATEGORY] += max(done - tasks, 0)
    return {name: count for name, count in found.most_common() if count}


def reports(hv: Context, batch: str, now: int | None = None) -> Iterator[TaskReport]:
    """Every task of a batch with what its attempts took, page by page."""
    after = ""
    while page := hv.store.read(sql.report, batch, after, PAGE, hv.at(now)):
        yield from page
        after = page[-1].id


def output(
    hv: Context, task: str, attempt: int | None = None, start: int = 0, most: int = 1 << 20
) -> bytes:
    """Read the kept output of a task's last attempt, or of another one."""
    found = hv.resolve(task)
    number = attempt if attempt is not None else latest_output(hv, found)
    if hv.outputs.size(found, number) is None:
        raise NotFound(f"no output of {found}, attempt {number}, is kept here.")
    return hv.outputs.read(found, number, start, most)


def latest_output(hv: Context, task: str) -> int:
    """The last attempt that left an output; claims that were never started leave none."""
    last = hv.store.read(queries.task, task).attempts
    kept = (n for n in range(last, 0, -1) if hv.outputs.size(task, n) is not None)
    return next(kept, last)


def _slices(tasks: Iterable[NewTask]) -> Iterator[list[NewTask]]:
    """Small, the first above all: work begins while the rest is still being added, and nobody
    else can write while a slice is. Not where tasks wait for others, which may come in any
    order within a slice."""
    source, size = iter(tasks), min(FIRST_SLICE, SLICE)
    while part := list(islice(source, size)):
        if any(task.after for task in part):
            part += islice(source, LINKED_SLICE - len(part))
            size = LINKED_SLICE
        yield part
        size = max(size, SLICE)


def _submit(hv: Context, so_far: Submitted, part: list[NewTask], now: int | None) -> Submitted:
    added = insert_tasks(hv, part, so_far.batch.name, now)
    new = set(added.ids)
    states = {each.task: each.state for each in added.duplicates if each.task not in new}
    ended = [task for task, state in states.items() if state in ("failed", "cancelled", "blocked")]
    again = sum(_reopen(hv, task, now) for task in ended)
    finished = [task for task, state in states.items() if state == lifecycle.DONE]
    done = len(finished) - hv.store.read(
        sql.changed_among, finished, so_far.since
    )  # not done meanwhile
    return so_far._replace(
        added=so_far.added + len(added.ids),
        retried=so_far.retried + again,
        already_done=so_far.already_done + done,
        still_open=so_far.still_open + len(states) - again - done,
    )


def _reopen(hv: Context, task: str, now: int | None) -> bool:
    try:
        hv.store.write(steer.requeue, task, "reopen", "run again", hv.actor, now=hv.at(now))
    except WrongState:  # somebody else has just done so
        return False
    return True


def _scope(hv: Context, batch: str | None, type: str | None, reason: str) -> Pause:
    if batch is not None and type is not None:
        raise InvalidInput("name a batch or a type, not both.")
    if batch is not None:
        return Pause(BATCH, batch_id(hv, batch) or "", reason, hv.actor, 0)
    if type is not None:
        return Pause(TYPE, validate.name("the type", type), reason, hv.actor, 0)
    return Pause(ALL, "", reason, hv.actor, 0)
