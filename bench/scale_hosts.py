"""Simulated hosts: sleep-bound tasks and claims on several of them, against Procrastinate."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.crew import Crew
from bench.queue_hypervisor import Hypervisor
from bench.queue_postgres import Procrastinate
from bench.queue_systems import Draining, Putting
from bench.support import Server, progress


class SleepingHost(NamedTuple):
    """A host whose workers claim a task, sleep, and complete it, until nothing is left."""

    where: str
    workers: int
    seconds: float

    def ready(self, seat: int, of: int) -> tuple[Callable[[], Any], Callable[[], None]]:
        import hypervisor

        stores = [hypervisor.open(self.where) for _ in range(self.workers)]

        def close() -> None:
            for hv in stores:
                hv.close()

        return lambda: self._work(stores, seat), close

    def _work(self, stores: list[Any], seat: int) -> int:
        done: list[int] = []

        def worker(hv: Any, number: int) -> None:
            name = f"host{seat}-{number}"
            leases = hv.claim(name)
            while leases:
                time.sleep(self.seconds)
                _, leases = hv.complete_and_claim([(leases[0].token, None)], name)
                done.append(1)

        threads = [
            threading.Thread(target=worker, args=(hv, number)) for number, hv in enumerate(stores)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(done)


class SleepingProcrastinate(NamedTuple):
    where: str
    workers: int
    seconds: float

    def ready(self, seat: int, of: int) -> tuple[Callable[[], Any], Callable[[], None]]:
        import asyncio
        import logging

        from procrastinate import App, PsycopgConnector

        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        runner = asyncio.Runner()
        size = {"min_size": 1, "max_size": self.workers}
        app = App(connector=PsycopgConnector(conninfo=self.where, **size))
        done: list[int] = []

        @app.task(name="sleep")
        async def sleep(number: int) -> None:
            await asyncio.sleep(self.seconds)
            done.append(number)

        runner.run(app.connector.open_async())

        def work() -> int:
            options: dict[str, Any] = {"wait": False, "listen_notify": False}
            runner.run(app.run_worker_async(concurrency=self.workers, **options))
            return len(done)

        def close() -> None:
            runner.run(app.connector.close_async())
            runner.close()

        return work, close


def put_sleeping(where: str, items: int, system: str) -> None:
    if system == "Procrastinate":
        import asyncio

        from procrastinate import App, PsycopgConnector

        async def put() -> None:
            app = App(connector=PsycopgConnector(conninfo=where))

            @app.task(name="sleep")
            async def sleep(number: int) -> None: ...

            async with app.open_async():
                await app.schema_manager.apply_schema_async()
                await sleep.batch_defer_async(*({"number": number} for number in range(items)))

        asyncio.run(put())
        return
    import hypervisor

    with hypervisor.open(where) as hv:
        hv.add([hypervisor.NewTask(f"task {number}") for number in range(items)])


def scale_hosts(
    server: Server, crew: Crew, args: argparse.Namespace
) -> dict[str, dict[int, float]]:
    """Tasks per second, by system and number of hosts."""
    kinds: dict[str, Any] = {"Hypervisor": SleepingHost, "Procrastinate": SleepingProcrastinate}
    figures: dict[str, dict[int, float]] = {name: {} for name in kinds}
    for hosts in args.hosts:
        items = hosts * args.workers * args.turns
        for name, kind in kinds.items():
            where = server.fresh("sleeping")
            put_sleeping(where, items, name)
            server.calm("sleeping")
            race = crew.race(hosts, kind(where, args.workers, args.sleep))
            assert sum(race.answers) == items, f"{name} lost or doubled tasks"
            figures[name][hosts] = items / race.seconds
            progress(f"  {name} on {hosts} hosts: {items / race.seconds:.1f} tasks/s")
    return figures


def claims_only(
    server: Server, crew: Crew, args: argparse.Namespace
) -> dict[str, dict[int, float]]:
    figures: dict[str, dict[int, float]] = {}
    for system in (Hypervisor(1, postgres=True), Procrastinate()):
        for hosts in args.hosts:
            where = server.fresh("claims")
            system.create(where)
            crew.race(hosts, Putting(system, where, args.items))
            server.calm("claims")
            race = crew.race(hosts, Draining(system, where))
            figures.setdefault(system.name, {})[hosts] = args.items / race.seconds
            progress(f"  {system.name} on {hosts} hosts: {args.items / race.seconds:.0f} claims/s")
    return figures
