"""PostgreSQL behind a network that fails: acknowledged changes are there, each once."""

from __future__ import annotations

import random
import time
from contextlib import closing

import hypervisor
from hypervisor.selftest import history, sql
from hypervisor.selftest.crew import Child, ForkServer
from hypervisor.selftest.invariants import check_invariants
from hypervisor.selftest.part import Figures, Setting, Skipped, Violation, ensure
from hypervisor.selftest.proxy import FAULTS, Proxy

WORKERS = 4
GRACE = 120.0


def run(setting: Setting) -> Figures:
    if setting.kind != "postgres":
        raise Skipped("name a server with --store postgresql://…")
    from hypervisor.store.postgres_scratch import address_of, end_connections, through

    dice = random.Random(setting.seed)
    url = setting.new_store()
    folder = setting.folder / "network"
    folder.mkdir()
    figures = dict.fromkeys([*FAULTS, "ended by the server"], 0)
    with closing(Proxy(address_of(url))) as proxy, closing(ForkServer()) as crew:
        workers = [
            _start(crew, through(url, proxy.port), n, folder, setting) for n in range(WORKERS)
        ]
        for worker in workers:
            worker.hear(GRACE)
        until = time.monotonic() + setting.seconds
        while not any(figures.values()) or time.monotonic() < until:
            time.sleep(dice.random() * 0.3)  # faults come at random times
            if dice.random() < 0.15:
                end_connections(url)
                figures["ended by the server"] += 1
            else:
                fault = dice.choice(FAULTS)
                proxy.fail(fault, dice.random() * 0.5)
                figures[fault] += 1
            setting.tell(f"{sum(figures.values())} faults")
        for worker in workers:
            worker.tell("stop")
        codes = [worker.wait(GRACE) for worker in workers]
        ensure(codes == [0] * WORKERS, f"a worker failed: {codes}")
    with hypervisor.open(url) as hv:  # its connection was not among those that were ended
        _drain(hv)
        check_invariants(hv)
        twice = [task for task, count in hv.store.read(sql.rows, sql.COMPLETIONS)[0] if count > 1]
        ensure(not twice, f"completed more than once: {twice[:3]}")
        checked = history.check(hv, history.read(folder), {})
    return {**figures, **checked}


def _start(crew: ForkServer, url: str, number: int, folder: object, setting: Setting) -> Child:
    return crew.start("network_worker", url, f"worker{number}", str(folder), bug=setting.bug)


def _drain(hv: hypervisor.Hypervisor) -> None:
    """What is left is done: also tasks whose claim got no answer."""
    deadline = time.monotonic() + GRACE
    while hv.stats().remaining:
        if time.monotonic() > deadline:
            raise Violation(f"tasks are stuck: {hv.stats().states}")
        for number in range(WORKERS):
            for lease in hv.claim("last", limit=50, assignee=f"worker{number}"):
                hv.complete(lease.token)
