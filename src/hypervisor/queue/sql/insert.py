"""Adding tasks: all of a call or none; duplicates by key are reported and not added."""

from collections import Counter
from collections.abc import Sequence

from hypervisor.core import ids, randomness
from hypervisor.core.errors import DependencyCycle, InvalidInput, NotFound
from hypervisor.core.records import NamedTuple
from hypervisor.queue import lifecycle
from hypervisor.queue.lane import Lane, rank
from hypervisor.queue.sql import archive, counts, event_log, queries, readiness
from hypervisor.queue.sql.lanes import lane_book
from hypervisor.queue.task import Added, Batch, Duplicate, NewTask
from hypervisor.store.database import Session, marks, pad, slices

ADD_BATCH = (
    "INSERT INTO batches (id, name, created_at) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING"
)
BY_KEY = """
SELECT d.key_hash, d.task, t.state FROM details d JOIN tasks t ON t.id = d.task
WHERE d.batch = ? AND d.key_hash IN ({})
"""


NO_BATCH = "?"  # the id of no batch
_Fresh = tuple[str, int, NewTask, str | None]  # id, number, and the digest of its key


class _Planned(NamedTuple):
    id: str
    number: int
    new: NewTask
    digest: str | None  # of its key
    lane: Lane
    needs: tuple[str, ...]
    open_needs: int


def get_or_create_batch(session: Session, name: str, now: int, actor: str = "") -> Batch:
    """The batch of that name, created if it does not exist, and unarchived. It is not deleted
    before the transaction ends."""
    by_name = queries.BATCH_BY_NAME + session.for_key_share
    rows = session.rows(by_name, (name,))
    if not rows:
        batch_id = ids.encode(ids.new_numbers(1, now, randomness.entropy())[0])
        session.run(ADD_BATCH, (batch_id, name, now))
        rows = session.rows(by_name, (name,))
        if rows[0][0] == batch_id:
            event_log.note(session, "batch", {"name": name}, "", now, batch=batch_id)
    batch = queries.make_batch(rows[0])
    archive.refuse_if_deleting(batch.name, batch.deleting)
    if batch.archived_at is not None:
        archive.unarchive(session, batch.id, actor, now)
    return batch._replace(archived_at=None)


def add(
    session: Session,
    new: Sequence[NewTask],
    batch_name: str | None,
    actor: str,
    now: int,
    *,
    retry_delay: int | None = None,
) -> Added:
    """Add tasks to the batch of that name, or to none."""
    batch = "" if batch_name is None else get_or_create_batch(session, batch_name, now, actor).id
    if retry_delay is not None:
        from hypervisor.queue.sql import retry_delays

        retry_delays.keep(session, batch, retry_delay)
    if any(task.key is not None for task in new):
        session.lock(f"add {batch}")  # two calls with the same keys must see each other
    fresh, duplicates, by_key = _split_known(session, batch, new, now)
    planned = _plan(session, batch, fresh, _links(session, batch, fresh, by_key))
    if planned:
        _insert(session, planned, batch, actor, now)
    return Added(tuple(p.id for p in planned), tuple(duplicates))


def check_links(session: Session, new: Sequence[NewTask], batch_name: str) -> None:
    """Refuse tasks that `add` would refuse because of their dependencies; nothing is written."""
    rows = session.rows(queries.BATCH_BY_NAME, (batch_name,))
    batch = rows[0][0] if rows else NO_BATCH
    fresh, _, by_key = _split_known(session, batch, new, 0)
    _links(session, batch, fresh, by_key)


def _split_known(
    session: Session, batch: str, new: Sequence[NewTask], now: int
) -> tuple[list[_Fresh], list[Duplicate], dict[str, str]]:
    """The new tasks, the existing ones, and the ids of both by the digests of their keys."""
    numbers = ids.new_numbers(len(new), now, randomness.entropy())
    digests = [key_hash(task.key) for task in new]
    known = _known_keys(session, batch, digests)
    fresh: list[_Fresh] = []
    duplicates: list[Duplicate] = []
    for number, task, digest in zip(numbers, new, digests, strict=True):
        if digest in known:
            duplicates.append(Duplicate(task.key or "", *known[digest]))
            continue
        task_id = ids.encode(number)
        fresh.append((task_id, number, task, digest))
        if digest:
            known[digest] = (task_id, "new in this call")
    return fresh, duplicates, {d: known[d][0] for d in known if d}


def key_hash(key: str | None) -> str | None:
    return None if key is None else ids.key_digest(key).hex()


def _known_keys(
    session: Session, batch: str, digests: Sequence[str | None]
) -> dict[str | None, tuple[str, str]]:
    wanted = sorted({digest for digest in digests if digest})
    return {
        row[0]: (row[1], row[2])
        for part in slices(wanted)
        for row in session.rows(BY_KEY.format(marks(len(part))), [batch, *pad(part)])
    }


def _links(
    session: Session, batch: str, fresh: list[_Fresh], by_key: dict[str, str]
) -> dict[str, tuple[str, ...]]:
    """The ids of each task's dependencies, given by key in this call or batch, or by id."""
    created = {task_id for task_id, *_ in fresh}
    needs: dict[str, tuple[str, ...]] = {}
    for task_id, _, task, _ in fresh:
        if task.after:
            resolved = (_needed(session, batch, text, by_key) for text in task.after)
            needs[task_id] = tuple(dict.fromkeys(resolved))
    _refuse_cycle(
        {task: [n for n in ns if n in created] for task, ns in needs.items()},
        {task_id: task.key or task.title for task_id, _, task, _ in fresh if needs},
    )
    return needs


def _plan(
    session: Session, batch: str, fresh: list[_Fresh], needs: dict[str, tuple[str, ...]]
) -> list[_Planned]:
    created = {task_id for task_id, *_ in fresh}
    outside = sorted({n for ns in needs.values() for n in ns if n not in created})
    finished = readiness.done_among(session, outside)
    return [
        _Planned(
            task_id,
            number,
            task,
            digest,
            Lane(
                batch,
                task.type,
                task.branch,
                task.priority,
                task.requires,
                task.assignee,
                bool(task.exclusive),
            ),
            needs.get(task_id, ()),
            sum(n not in finished for n in needs.get(task_id, ())),
        )
        for task_id, number, task, digest in fresh
    ]


def _needed(session: Session, batch: str, text: str, by_key: dict[str, str]) -> str:
    """The task that `text` names: first by its key in this call or batch, then by its id."""
    digest = key_hash(text) or ""
    if digest not in by_key:
        rows = session.rows(BY_KEY.format("?"), (batch, digest))
        try:
            by_key[digest] = rows[0][1] if rows else queries.resolve(session, text)
        except (InvalidInput, NotFound):
            raise NotFound(
                f"after {text[:60]!r}: no task of this batch has that key, and none has that id. "
                "Nothing was added."
            ) from None
    return by_key[digest]


def _refuse_cycle(graph: dict[str, list[str]], names: dict[str, str]) -> None:
    """Only tasks of one call that name each other can form a cycle."""
    from graphlib import CycleError, TopologicalSorter

    if any(graph.values()):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            raise DependencyCycle([names[task] for task in error.args[1]]) from None


def _insert(session: Session, planned: list[_Planned], batch: str, actor: str, now: int) -> None:
    lane_book(session).ensure(session, {p.lane for p in planned})
    lane_ids = {lane: lane.id for lane in {p.lane for p in planned}}
    held = readiness.held_chunks(session, batch, {p.new.chunk for p in planned})
    readiness.reopen_chunks(session, batch, {p.new.chunk for p in planned} - held)
    states = [_first_state(p, p.new.chunk in held, now) for p in planned]
    pairs = list(zip(planned, states, strict=True))
    event_log.write(
        session, now, [event_log.Line("add", p.id, batch, None, state, actor) for p, state in pairs]
    )
    tasks = [
        (
            p.id,
            state,
            lane_ids[p.lane],
            rank(p.number, p.new.priority),
            batch,
            p.open_needs,
            readiness.future_start(p.new.start_at, now),
            p.new.retries,
            now,
            now,
            p.new.chunk,
            int(p.new.chunk in held),
        )
        for p, state in pairs
    ]
    details = [
        (p.id, batch, p.new.key, p.digest, p.new.title, p.new.body, event_log.dump(p.new.data))
        for p in planned
    ]
    session.together(
        [], [("tasks", tasks), ("details", details), ("events", event_log.take(session))]
    )
    added = Counter((batch, p.lane.type, state) for p, state in pairs)
    counts.change(session, [(*key, tasks) for key, tasks in added.items()])
    session.insert("dependencies", [(p.id, needed) for p in planned for needed in p.needs])
    session.insert(
        "task_keys",
        [
            (p.id, key, lane_ids[p.lane], rank(p.number, p.new.priority), 0)
            for p in planned
            for key in p.new.exclusive
        ],
    )
    readiness.promote(session, [p.id for p in planned if p.lane.keyed], now)


def _first_state(p: _Planned, held: bool, now: int) -> str:
    if p.new.inbox:
        return lifecycle.INBOX
    return lifecycle.queue_state(
        p.open_needs, readiness.future_start(p.new.start_at, now), p.lane.keyed, held
    )
