"""Fills a store with millions of tasks in seconds: the product's rows, written in bulk.

`check` proves on a small store that the product writes the very same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import hypervisor
from hypervisor.core import ids
from hypervisor.queue.lane import Lane, rank
from hypervisor.queue.sql.lanes import ADD

KINDS = ("active", "done", "blocked", "delayed")
FUTURE = 4_000_000_000_000
ACTOR = "bench"
WORKER = "bench"
VOLATILE = {"id", "task", "needs", "rank", "at", "nonce", "worker", "actor"}
VOLATILE |= {"claimed_at", "ended_at", "created_at", "updated_at"}
COLUMNS = {
    "tasks": "id state lane rank batch attempt open_deps start_at created_at updated_at",
    "details": "task batch title body",
    "attempts": "task number nonce worker claimed_at ended_at outcome state_after",
    "dependencies": "task needs",
    "events": "at kind task batch attempt state actor data",
    "count_changes": "batch type state tasks",
}


class Plan(NamedTuple):
    """Tasks of one kind in one lane; the first is numbered `first`, later ones are younger."""

    kind: str
    size: int
    first: int
    batch: str = ""
    type: str = "task"
    requires: tuple[str, ...] = ()
    needs: str = ""

    @property
    def lane(self) -> Lane:
        return Lane(self.batch, self.type, "", "medium", self.requires, "", False)


def rows(plan: Plan, at: int) -> dict[str, Iterator[tuple[Any, ...]]]:
    """For each table its rows, made as they are read."""
    lane = plan.lane.id
    state, attempt, open_deps, start = {
        "active": ("active", 0, 0, None),
        "done": ("done", 1, 0, None),
        "blocked": ("waiting", 0, 1, None),
        "delayed": ("waiting", 0, 0, FUTURE),
    }[plan.kind]
    born = "active" if plan.kind == "done" else state

    def named() -> Iterator[tuple[int, str]]:
        return ((n, ids.encode(n)) for n in range(plan.first, plan.first + plan.size))

    def events() -> Iterator[tuple[Any, ...]]:
        for _, task in named():
            yield at, "add", task, plan.batch, None, born, ACTOR, None
            if plan.kind == "done":
                yield at, "claim", task, plan.batch, 1, "in_progress", WORKER, None
                yield at, "complete", task, plan.batch, 1, "done", WORKER, None

    made: dict[str, Iterator[tuple[Any, ...]]] = {
        "tasks": (
            (task, state, lane, rank(n, "medium"), plan.batch, attempt, open_deps, start, at, at)
            for n, task in named()
        ),
        "details": ((task, plan.batch, f"item {n}", "") for n, task in named()),
        "events": events(),
        "count_changes": iter([(plan.batch, plan.type, born, plan.size)]),
    }
    if plan.kind == "done":
        made["attempts"] = (
            (task, 1, "0000", WORKER, at, at, "done", "done") for _, task in named()
        )
    if plan.kind == "blocked":
        made["dependencies"] = ((task, plan.needs) for _, task in named())
    return made


def fill_sqlite(path: str, plans: Sequence[Plan], at: int) -> None:
    """Into a store that exists and that nobody else is using."""
    import apsw

    connection = apsw.Connection(path)
    connection.execute("PRAGMA synchronous=OFF; PRAGMA cache_size=-200000; BEGIN IMMEDIATE")
    for plan in plans:
        connection.execute(ADD, _lane_row(plan))
        for name, values in rows(plan, at).items():
            columns = COLUMNS[name].split()
            sql = (
                f"INSERT INTO {name} ({','.join(columns)}) VALUES ({','.join('?' * len(columns))})"
            )
            connection.executemany(sql, values)
    connection.execute("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def fill_postgres(url: str, plans: Sequence[Plan], at: int) -> None:
    """By COPY, then vacuumed as autovacuum would have done by now."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path TO hypervisor")
        for plan in plans:
            connection.execute(_LANE_POSTGRES, _lane_row(plan))
            for name, values in rows(plan, at).items():
                copy = f"COPY {name} ({','.join(COLUMNS[name].split())}) FROM STDIN"
                with connection.cursor().copy(copy) as target:
                    for row in values:
                        target.write_row(row)
        connection.execute("VACUUM ANALYZE")


def check(folder: str) -> None:
    """Fill and product must agree on every column but the `VOLATILE` ones."""
    by_product, by_fill = f"{folder}/product.db", f"{folder}/fill.db"
    task = hypervisor.NewTask
    with hypervisor.open(by_product, relaxed=True) as hv:
        hv.actor = ACTOR
        hv.add([task("item 0"), task("item 1")])
        leases = hv.claim(WORKER, limit=2)
        hv.complete_and_claim([(lease.token, None) for lease in leases], WORKER)
        held = hv.add([task("item 2", inbox=True)]).ids[0]
        hv.add([task("item 3", after=(held,))])
        hv.add([task("item 4", start_at=FUTURE), task("item 5")])
    with hypervisor.open(by_fill, relaxed=True) as hv:
        hv.actor = ACTOR
        held = hv.add([task("item 2", inbox=True)]).ids[0]
    plans = [Plan("done", 2, 0), Plan("blocked", 1, 3, needs=held), Plan("delayed", 1, 4)]
    fill_sqlite(by_fill, [*plans, Plan("active", 1, 5)], 1)
    for table in COLUMNS:
        wanted, found = _comparable(by_product, table), _comparable(by_fill, table)
        if wanted != found:
            raise SystemExit(f"{table}: the product writes\n{wanted}\nbut fill wrote\n{found}")


def _comparable(path: str, table: str) -> list[str]:
    import apsw

    connection = apsw.Connection(path)
    cursor = connection.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.get_description()]
    return sorted(
        repr([v is None if n in VOLATILE else v for n, v in zip(names, row, strict=True)])
        for row in cursor
    )


def _lane_row(plan: Plan) -> tuple[Any, ...]:
    lane = plan.lane
    flags = int(lane.keyed), int(lane.paused)
    return (lane.id, *lane[:4], " ".join(lane.requires), lane.assignee, *flags)


_LANE_POSTGRES = ADD.replace("?", "%s")
