"""Entry points of background processes: supervisor, worker, servers, notifier, merger, cleaner and
gateway."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from hypervisor.app import connect, make_supervisor
from hypervisor.core.errors import STORE_LOST

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

CLEANER_NICE = 10
IDLE_MS = 3_000  # milliseconds without work after which a background supervisor exits
WORKER_CODE = (
    "hypervisor.runs.make_worker",
    "hypervisor.batches.reduce_input",
    "hypervisor.core.config_file",
    "hypervisor.inputs.items",
    "hypervisor.runs.processes.runner",
    "hypervisor.runs.processes.environment",
    "hypervisor.resources.host",
    "hypervisor.runs.processes.launcher",
    "hypervisor.runs.outputs.spool",
    "hypervisor.queue.claim",
    "hypervisor.queue.settle",
    "hypervisor.store.sqlite",
)
AGENT_CODE = (
    "hypervisor.agents.make_worker",
    "hypervisor.agents.stream_errors",
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
    "hypervisor.batches.sql.pipelines",
)


def serve() -> None:
    """Entry point of all background processes."""
    from hypervisor.runs.processes import log_file, prestart

    role, *words = sys.argv[1:]
    if role == prestart.ROLE:
        role = "supervise" if prestart.wait(lambda: _load(*WORKER_CODE, *SUPERVISOR_CODE)) else ""
    log_file.configure()
    if role == "supervise":
        supervise(*words)
    elif role == "mcp":
        serve_mcp()
    elif role == "notify":
        notify()
    elif role == "merge":
        merge()
    elif role == "clean":
        clean()
    elif role == "telemetry":
        send_traces()
    elif role == "gateway":
        serve_gateway()
    elif role == "work":
        work(*words)
    elif role == "dashboard":
        serve_dashboard(*words)


def supervise(*words: str) -> None:
    """Run the supervisor of the store on this host until there is nothing left to do, or until it
    is stopped."""
    from hypervisor.runs.processes.fork_server import ForkServer
    from hypervisor.runs.processes.launcher import STAY

    _load(*WORKER_CODE)
    fork_server = ForkServer(work, _load_for)  # before the store is opened
    hv = connect(create=False)  # the process that starts it has created the store
    make_supervisor(hv, None if STAY in words else IDLE_MS).run(fork_server)
    hv.close()


def work(batch: str, agent: str = "") -> None:
    """Run a worker of one batch, with this agent if given, until nothing is left to claim."""
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

            make_agent_worker(start, agent or spec.agent.name, _parts_of).run()
        else:
            make_worker(start, item_for, _parts_of).run()
    except STORE_LOST as error:
        logging.getLogger("hypervisor.runs").error("%s", error)
        sys.exit(1)
    hv.close()


def _parts_of(hv: Context, batch: str) -> tuple[str, ...]:
    """Imported when a batch fails fast; most workers never need it."""
    from hypervisor.batches.pipeline_names import batches_of

    return batches_of(hv, batch)


def serve_mcp() -> None:
    """Run the MCP server that all clients of the store on this host share."""
    from hypervisor.mcp import shared_server

    shared_server.run(connect)


def serve_dashboard(options: str) -> None:
    """Serve the dashboard on the socket that was inherited as stdin."""
    import socket

    from hypervisor.web.dashboard.server import options_from, serve

    listening = socket.socket(fileno=os.dup(0))
    os.chdir("/")
    hv = connect(create=False)
    serve(hv, options_from(options), listening)
    hv.close()


def notify() -> None:
    """Deliver notices until none is left, unless another process already does."""
    from hypervisor.notifications.deliverer import Deliverer

    hv = connect(create=False)
    if hv.launcher.acquire_lock_of("notifier") is not None:
        Deliverer(hv).run()
    hv.close()


def send_traces() -> None:
    """Send traces of what has ended until there is nothing new, unless another process does."""
    from hypervisor.monitoring.telemetry.sender import TraceSender

    hv = connect(create=False)
    if hv.launcher.acquire_lock_of("telemetry") is not None:
        TraceSender(hv, os.environ).run()
    hv.close()


def merge() -> None:
    """Merge finished work until none is left, unless another process here does already."""
    from hypervisor.git.merger import Merger

    hv = connect(create=False)
    if hv.launcher.acquire_lock_of("merger") is not None:
        Merger(hv).run()
    hv.close()


def clean() -> None:
    """Delete what is too old, like `hv gc`, unless another process here does already."""
    import logging

    from hypervisor.core.errors import HypervisorError
    from hypervisor.git.tidy import gc

    os.nice(CLEANER_NICE)
    hv = connect(create=False)
    if hv.launcher.acquire_lock_of("cleaner") is not None:
        try:
            gc(hv)
        except HypervisorError as error:  # tomorrow again
            logging.getLogger("hypervisor.git").warning("%s", error)
    hv.close()


def serve_gateway() -> None:
    """Pass on the model calls of agents, on the socket that was inherited as stdin."""
    import socket

    from hypervisor.agents.gateway.serve import serve

    listening = socket.socket(fileno=os.dup(0))
    hv = connect(create=False)
    if hv.launcher.acquire_lock_of("gateway") is not None:
        serve(hv, listening)
    hv.close()


def _load_for(batch: str, agent: str = "") -> None:
    """Load what the worker of an agent needs, once for all that the fork server makes."""
    if agent:
        _load(*AGENT_CODE)


def _load(*names: str) -> None:
    from importlib import import_module

    for name in names:
        import_module(name)
