"""make bench-mcp: what ten `hv mcp` at once cost, and how soon each of them answers.

Against one server per client: the same tools in a process of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.support import progress, save, scratch, table, verdict

import hypervisor
from hypervisor.mcp.address import address_of, connect
from hypervisor.mcp.shared_server import peer

CLIENTS = 10
MAX_MEMORY = 150.0  # MB of all ten and their server
MAX_LENGTH = 150.0  # ms from the start of `hv mcp` to the answer to tools/list, median
MEGABYTE = 1024  # in kB, as /proc counts
SHARED = [sys.executable, "-I", "-c", "from hypervisor.app import main; main()", "mcp"]
ALONE_PROGRAM = """
import os, sys
import anyio
from mcp.server.stdio import stdio_server
from hypervisor.app import connect
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.server import build

async def serve():
    server = build("all", ClaimRegistry(connect()))
    async with stdio_server() as (source, target):
        await server.run_streams(source, target)

anyio.run(serve)
"""
CLIENT = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


class Client:
    def __init__(self, command: Sequence[str], store: str) -> None:
        began = time.perf_counter()
        environment = {**os.environ, "HYPERVISOR_STORE": store}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._ask(0, "initialize", **CLIENT)
        self._ask(1, "tools/list")
        self.milliseconds = (time.perf_counter() - began) * 1e3

    def call(self, name: str) -> None:
        self._ask(2, "tools/call", name=name, arguments={})

    def leave(self) -> None:
        self.process.communicate()

    def _ask(self, number: int, method: str, **params: Any) -> None:
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer or answer["result"].get("isError"):
            raise SystemExit(f"{method}: {answer}")


class Figures(NamedTuple):
    system: str
    cold: float  # ms, the first of all
    one: float  # ms, started in sequence until there are ten, median
    together: float  # ms, ten that start in the same moment, median
    memory: float  # MB

    def cells(self) -> tuple[str, ...]:
        times = (f"{ms:,.0f} ms" for ms in (self.cold, self.one, self.together))
        return self.system, *times, f"{self.memory:,.0f} MB"


def measure(system: str, command: Sequence[str], store: str, rounds: int) -> Figures:
    progress(system)
    first = Client(command, store)
    one: list[float] = []
    together: list[float] = []
    memory: list[float] = []
    for _ in range(rounds):
        clients = [Client(command, store) for _ in range(CLIENTS)]
        one += [client.milliseconds for client in clients]
        for client in clients:
            client.call("list_tasks")
        shared = [server] if (server := _server(store)) else []
        pids = [*(client.process.pid for client in clients), *shared]
        memory.append(sum(map(_proportional, pids)))
        for client in clients:
            client.leave()
        with ThreadPoolExecutor(CLIENTS) as threads:
            clients = list(threads.map(lambda _: Client(command, store), range(CLIENTS)))
        together += [client.milliseconds for client in clients]
        for client in clients:
            client.leave()
    first.leave()
    if server := _server(store):
        os.kill(server, signal.SIGTERM)
    return Figures(system, first.milliseconds, median(one), median(together), median(memory))


def _server(store: str) -> int | None:
    """The process that all clients of the store share."""
    connection = connect(address_of(store, os.environ))
    if connection is None:
        return None
    with connection:
        return peer(connection)[0]


def _proportional(pid: int) -> float:
    """MB of a process; what several share is divided among them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / MEGABYTE
    return 0.0


def main() -> int:
    args = _arguments()
    with scratch(args.dir) as folder:
        store = str(folder / "store.db")
        hypervisor.open(store).close()
        alone = [sys.executable, "-I", "-c", ALONE_PROGRAM]
        shared = measure("one server for all", SHARED, store, args.rounds)
        rival = measure("one server each", alone, store, args.rounds)
    head = ("10 clients", "cold", "each", "if started together", "memory (PSS)")
    ratio = ("ratio", *(f"{b / a:.1f}×" for a, b in zip(shared[1:], rival[1:], strict=True)))
    print(table(head, [shared.cells(), rival.cells(), ratio]))
    bars = (
        ("memory of ten and their server", f"< {MAX_MEMORY:.0f} MB", shared.memory < MAX_MEMORY),
        ("initialize + tools/list, each", f"< {MAX_LENGTH:.0f} ms", shared.one < MAX_LENGTH),
    )
    print(table(("bar", "wanted", ""), [(*bar, verdict(ok)) for *bar, ok in bars]))
    save(None, "mcp", {"figures": [figures._asdict() for figures in (shared, rival)]})
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.mcp", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", help="where the store goes")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
