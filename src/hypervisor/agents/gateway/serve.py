"""The process of the gateway: serves until no agent on this host needs it any more."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from typing import TYPE_CHECKING

from hypervisor.agents.gateway.ledger import SpendingLedger
from hypervisor.agents.gateway.proxy import Gateway
from hypervisor.agents.sql import spending
from hypervisor.core.errors import STORE_LOST, StoreError
from hypervisor.core.places import is_supervised
from hypervisor.runs import sql as runs_sql

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

logger = logging.getLogger("hypervisor.agents")
LOOK = 1.0  # seconds
IDLE_LOOKS = 60  # without an agent at work, under a supervisor that stays
GRACE = 5.0  # seconds for answers in progress after SIGTERM
BUFFER = 32_768


def serve(hv: Context, listening: socket.socket) -> None:
    asyncio.run(_serve(hv, listening))


async def _serve(hv: Context, listening: socket.socket) -> None:
    gateway = Gateway(SpendingLedger(hv))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    server = await asyncio.start_server(gateway.connected, sock=listening, limit=BUFFER)
    logger.info("the gateway listens on port %d", listening.getsockname()[1])
    idle = 0
    while not stopping.is_set() and idle < IDLE_LOOKS:
        try:
            async with asyncio.timeout(LOOK):
                await stopping.wait()
        except TimeoutError:
            gateway.tidy()
            idle = await _idle_looks(hv, gateway, idle)
    server.close()
    await _finish(gateway)
    gateway.close()


async def _idle_looks(hv: Context, gateway: Gateway, idle: int) -> int:
    """How many looks in a row found no agent at work; all of them if no supervisor is left."""
    try:
        busy = await gateway.in_order(_any_agent, hv)
    except STORE_LOST:
        return IDLE_LOOKS
    except StoreError as error:
        logger.debug("cannot look for agents: %s", error)
        return idle
    if busy or gateway.open_connections:
        return 0
    return idle + 1 if is_supervised(hv.launcher.places) else IDLE_LOOKS


def _any_agent(hv: Context) -> bool:
    """Whether a worker of an agent, or a person attached to one, lives on this host."""
    read, boot = hv.store.read, hv.probe.boot()
    workers = [worker.worker for worker in read(runs_sql.at_work, boot) if worker.agent]
    spenders = (*workers, *read(spending.spenders, boot))
    return any(hv.probe.is_gone(worker) is False for worker in spenders)


async def _finish(gateway: Gateway) -> None:
    """Let answers in progress arrive."""
    until = asyncio.get_running_loop().time() + GRACE
    while gateway.busy and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.05)
