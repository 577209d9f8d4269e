"""The rivals on PostgreSQL: Procrastinate and PgQueuer, by their own fetch and finish functions.

Their complete workers are no faster with no-op items (PgQueuer's also waits when it
starts and drains); `RUN_WORKERS` in the environment measures those instead.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from bench.queue_systems import groups

RUN_WORKERS = bool(os.environ.get("RUN_WORKERS"))


class ProcrastinateQueue:
    def __init__(self, url: str) -> None:
        from procrastinate import App, PsycopgConnector

        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        self._runner = asyncio.Runner()
        self._app = App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=2))
        self._done: list[int] = []

        @self._app.task(name="item")
        async def item(number: int) -> None:
            self._done.append(number)

        self._task = item
        self._runner.run(self._app.connector.open_async())

    def create(self) -> None:
        self._runner.run(self._app.schema_manager.apply_schema_async())

    def put(self, items: Sequence[int]) -> None:
        async def put_all() -> None:
            for item in items:
                await self._task.defer_async(number=item)

        self._runner.run(put_all())

    def drain(self) -> list[int]:
        if RUN_WORKERS:
            self._runner.run(self._app.run_worker_async(wait=False, listen_notify=False))
            return self._done
        return self._runner.run(self._fetch_and_finish())

    async def _fetch_and_finish(self) -> list[int]:
        from procrastinate.jobs import Status

        manager = self._app.job_manager
        me = await manager.register_worker()
        done: list[int] = []
        while (job := await manager.fetch_job(queues=None, worker_id=me)) is not None:
            await manager.finish_job(job, Status.SUCCEEDED, delete_job=False)
            done.append(job.task_kwargs["number"])
        return done

    def close(self) -> None:
        self._runner.run(self._app.connector.close_async())
        self._runner.close()


class Procrastinate(NamedTuple):
    pace: float = 1
    name: str = "Procrastinate"
    group: str = "postgres"

    def create(self, where: str) -> None:
        queue = ProcrastinateQueue(where)
        queue.create()
        queue.close()

    def open(self, where: str, seat: int) -> ProcrastinateQueue:
        return ProcrastinateQueue(where)


class PgQueuerQueue:
    def __init__(self, url: str, k: int) -> None:
        logging.getLogger("pgqueuer").setLevel(logging.ERROR)
        self._runner = asyncio.Runner()
        self._k = k
        self._connection, self._queries = self._runner.run(self._connect(url))

    async def _connect(self, url: str) -> tuple[Any, Any]:
        import psycopg
        from pgqueuer.db import PsycopgDriver
        from pgqueuer.queries import Queries

        connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
        return connection, Queries(PsycopgDriver(connection))

    def create(self) -> None:
        self._runner.run(self._queries.install())

    def put(self, items: Sequence[int]) -> None:
        async def put_all() -> None:
            for some in groups(items, self._k):
                payloads = [str(item).encode() for item in some]
                count = len(payloads)
                await self._queries.enqueue(["item"] * count, payloads, [0] * count)

        self._runner.run(put_all())

    def drain(self) -> list[int]:
        return self._runner.run(self._work() if RUN_WORKERS else self._dequeue_and_log())

    async def _dequeue_and_log(self) -> list[int]:
        from uuid import uuid4

        from pgqueuer.ports.repository import EntrypointExecutionParameter

        entrypoints = {"item": EntrypointExecutionParameter(concurrency_limit=0)}
        me, patience = uuid4(), timedelta(seconds=30)
        done: list[int] = []
        while jobs := await self._queries.dequeue(self._k, entrypoints, me, None, patience):
            await self._queries.log_jobs([(job, "successful", None) for job in jobs])
            done += [int(job.payload) for job in jobs]
        return done

    async def _work(self) -> list[int]:
        from pgqueuer.qm import QueueManager
        from pgqueuer.types import QueueExecutionMode

        done: list[int] = []
        manager = QueueManager(self._queries)

        @manager.entrypoint("item")
        async def item(job: Any) -> None:
            done.append(int(job.payload))

        await manager.run(batch_size=self._k, mode=QueueExecutionMode.drain)
        return done

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()


class PgQueuer(NamedTuple):
    k: int
    pace: float = 1
    group: str = "postgres"

    @property
    def name(self) -> str:
        return f"PgQueuer k={self.k}"

    def create(self, where: str) -> None:
        queue = PgQueuerQueue(where, self.k)
        queue.create()
        queue.close()

    def open(self, where: str, seat: int) -> PgQueuerQueue:
        return PgQueuerQueue(where, self.k)
