"""What the processes in the background do: supervise, work, serve MCP clients, notify."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.app import connect, make_supervisor
from hypervisor.core.errors import StoreGone
from hypervisor.core.store_path import store_path

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

IDLE_MS = 3_000  # a supervisor in the background ends after so long with nothing to do
WORKER_CODE = (
    "hypervisor.runs.make_worker",
    "hypervisor.batches.reduce_input",
    "hypervisor.runs.processes.runner",
    "hypervisor.runs.processes.environment",
    "hypervisor.resources.host",
    "hypervisor.runs.processes.launcher",
    "hypervisor.runs.outputs.spool",
    "hypervisor.queue.claim",
    "hypervisor.queue.settle",
    "hypervisor.store.sqlite",
)
SUPERVISOR_CODE = (
    "hypervisor.resources.load",
    "hypervisor.resources.governor",
    "hypervisor.runs.supervisor",
    "hypervisor.runs.staffing",
    "hypervisor.agents.pools",
    "hypervisor.learning.learner",
    "hypervisor.notifications.notifier",
    "hypervisor.batches.chunk_reporter",
    "hypervisor.batches.pipeline",
)


def serve() -> None:
    """Entry point of the processes in the background."""
    from hypervisor.runs.processes import log_file, prestart

    role, *words = sys.argv[1:]
    if role == prestart.ROLE:
        role = "supervise" if prestart.wait(lambda: _load(*WORKER_CODE, *SUPERVISOR_CODE)) else ""
    log_file.configure()
    if role == "supervise":
        supervise()
    elif role == "mcp":
        serve_mcp()
    elif role == "notify":
        notify()
    elif role == "work":
        work(*words)


def prestart_supervisor(words: list[str]) -> None:
    """`hv run` is about to need a supervisor: unless there is one, let it load beside us."""
    from hypervisor.core.errors import HypervisorError
    from hypervisor.core.places import is_supervised, known_places
    from hypervisor.resources.host import LocalHost
    from hypervisor.runs.processes import prestart

    own = words[: words.index("--")] if "--" in words else words
    if {"--dry-run", "-h", "--help"} & {*own}:
        return
    named = [own[at + 1] for at, word in enumerate(own[:-1]) if word == "--store"]
    named += [word.partition("=")[2] for word in own if word.startswith("--store=")]
    where = (named[-1] if named else "") or os.environ.get("HYPERVISOR_STORE") or ""
    if "://" in where:  # its places are known only once it is open
        return
    with suppress(HypervisorError, OSError):  # whatever it is, the client reports it in time
        path = store_path(where, create=True)
        if not is_supervised(known_places(path, LocalHost().boot())):
            prestart.start()


def supervise() -> None:
    """Be the supervisor of the store on this host until there is nothing left to do."""
    from hypervisor.runs.processes.fork_server import ForkServer

    _load(*WORKER_CODE)
    fork_server = ForkServer(work)  # before the store is opened
    hv = connect(create=False)  # whoever starts one has the store
    make_supervisor(hv, IDLE_MS).run(fork_server)
    hv.close()


def work(batch: str, agent: str = "") -> None:
    """Be a worker of one batch until it has nothing more to claim. `agent`: with this agent."""
    import logging

    from hypervisor.batches.reduce_input import item_for
    from hypervisor.queue.claim import identity
    from hypervisor.queue.sql import queries
    from hypervisor.runs.make_worker import make_worker, start_of
    from hypervisor.runs.processes import log_file
    from hypervisor.runs.spec import spec_from

    log_file.bind(batch=batch)
    hv = connect(create=False, pid=os.getpid())
    spec = spec_from(hv.store.read(queries.batch, batch).spec)
    me = identity(hv, f"worker-{os.getpid()}", os.getpid())
    try:
        start = start_of(hv, me, batch, spec)
        if spec.agent:
            from hypervisor.agents.make_worker import make_agent_worker

            make_agent_worker(start, agent or spec.agent, _parts_of).run()
        else:
            make_worker(start, item_for, _parts_of).run()
    except StoreGone as error:
        logging.getLogger("hypervisor.runs").error("%s", error)
        sys.exit(1)
    hv.close()


def _parts_of(hv: Context, batch: str) -> tuple[str, ...]:
    """Loaded when a batch fails fast: most workers never need it."""
    from hypervisor.batches.pipeline import batches_of

    return batches_of(hv, batch)


def serve_mcp() -> None:
    """Be the MCP server that all clients of the store on this host share."""
    from hypervisor.mcp import shared_server

    shared_server.run(connect)


def notify() -> None:
    """Deliver notices until none is left, unless another process here does already."""
    from hypervisor.notifications.notifier import Deliverer

    hv = connect(create=False)
    if hv.launcher.acquire_notifier_lock() is not None:
        Deliverer(hv).run()
    hv.close()


def _load(*names: str) -> None:
    from importlib import import_module

    for name in names:
        import_module(name)
