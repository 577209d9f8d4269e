"""make bench-fleet: what Hypervisor adds to ten real claude agents that make one instant call.

The model is scripted, on loopback. Against the same agents started bare, and against agents that
have an MCP server each instead of the shared one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.mcp import ALONE_PROGRAM
from bench.support import progress, save, scratch, table, verdict
from tests.agents.real import clis
from tests.agents.real.fleet import AgentProject
from tests.agents.real.model_server import ModelServer
from tests.agents.real.moves import Move, Turn, result

from hypervisor.resources.process_table import snapshot
from hypervisor.runs.processes import tree

AGENTS = 10
MAX_CPU = 0.25  # seconds that Hypervisor adds per agent
MAX_MEMORY = 25.0  # MB (PSS) of its processes per agent
LOOK = 0.05  # seconds
PATIENCE = 180.0
DONE = result({"status": "completed", "summary": "done"})
ITEM = r"item-[0-9]+"
ROLES = {
    b"serve()\0supervise": "supervisor",
    b"serve()\0fork-server": "fork server",
    b"serve()\0work": "workers",
    b"serve()\0mcp": "MCP server",
    b"main()\0mcp": "MCP pipes",
    b"ClaimRegistry": "MCP servers",
    b"main()\0run": "hv run",
}


class Way(NamedTuple):
    """One way to run the ten agents; figures are per agent, except for the wall time."""

    name: str
    wall: float
    cpu: float  # of all processes, agents included
    own: dict[str, float]  # of ours, by role
    memory: float  # MB (PSS) of ours

    def cells(self, bare: Way) -> tuple[str, ...]:
        own = sum(self.own.values())
        added = self.cpu - bare.cpu
        if self is bare:
            return self.name, f"{self.wall:.1f} s", f"{self.cpu:.2f} s", "–", "–", "–"
        figures = (f"{self.cpu:.2f} s", f"{added:.2f} s", f"{own:.2f} s", f"{self.memory:.1f} MB")
        return self.name, f"{self.wall:.1f} s", *figures


class Gauge:
    """Follows the processes below this one: their CPU by role, and their memory at the most."""

    def __init__(self) -> None:
        tree.become_reaper()
        self._cpu: dict[tuple[int, int], tuple[str, float]] = {}
        self.memory = 0.0
        self._before = _children_cpu()

    def look(self) -> None:
        for process in tree.descendants(os.getpid(), snapshot()):
            role = _role(process.pid)
            if role:
                self._cpu[process.pid, process.start] = (role, process.cpu)

    def weigh(self) -> None:
        """Reads the memory, which takes a while: once, when all agents are at work."""
        ours = [p.pid for p in tree.descendants(os.getpid(), snapshot()) if _role(p.pid)]
        self.memory = tree.proportional(ours) / 1e6

    def end(self) -> float:
        """Ends what is left; returns the CPU of all processes."""
        tree.stop_descendants(5.0)
        return _children_cpu() - self._before

    def own(self) -> dict[str, float]:
        sums: dict[str, float] = defaultdict(float)
        for role, cpu in self._cpu.values():
            sums[role] += cpu / AGENTS
        return dict(sums)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _role(pid: int) -> str:
    words = tree.command_line(pid)
    line = b"\0".join(words)
    return next((role for mark, role in ROLES.items() if mark in line), "")


class Model(ModelServer):
    """Answers at once, or only when all agents have asked."""

    def __init__(self, holds: bool) -> None:
        super().__init__()
        self.is_held = holds
        self.waiting: set[str] = set()
        self.script(ITEM, self._answer)

    def _answer(self, turn: Turn) -> Move:
        self.waiting.update(re.findall(ITEM, turn.text))
        until = time.monotonic() + PATIENCE
        while self.is_held and time.monotonic() < until and not self.stopping.wait(LOOK):
            pass
        return DONE


def measure(name: str, folder: Path, start: Callable[[Path, Model], list[Any]]) -> Way:
    """In two runs: the time of one whose model answers at once, the memory of one that waits."""
    progress(name)
    wall, cpu, own, memory = 0.0, 0.0, {}, 0.0
    for holds in (False, True):
        place = folder / f"{name}-{holds}".replace(" ", "-")
        place.mkdir()
        with Model(holds) as model:
            gauge, began = Gauge(), time.perf_counter()
            clients = start(place, model)
            until = time.monotonic() + PATIENCE
            while any(client.poll() is None for client in clients):
                if time.monotonic() > until:
                    raise SystemExit(f"{name}: not done after {PATIENCE:.0f} s")
                gauge.look()
                if model.is_held and len(model.waiting) == AGENTS:
                    gauge.weigh()
                    model.is_held = False
                time.sleep(LOOK)
            spent = time.perf_counter() - began
            gauge.look()
            whole = gauge.end() / AGENTS
            if holds:
                memory = gauge.memory / AGENTS
            else:
                wall, cpu, own = spent, whole, gauge.own()
        if failed := [client.returncode for client in clients if client.returncode]:
            raise SystemExit(f"{name}: {failed}")
    return Way(name, wall, cpu, own, memory)


def bare(folder: Path, model: Model) -> list[Any]:
    """The program itself, ten times, with the options that Hypervisor uses and no MCP server."""
    clients = []
    for number in range(AGENTS):
        asking = clis.Asking(model.url, folder / str(number), f"item-{number}", mcp="none")
        line = clis.line("claude", asking)
        work = folder / str(number) / "work"
        work.mkdir(parents=True)
        client = subprocess.Popen(
            line.argv, env=line.env, cwd=work, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        assert client.stdin is not None
        client.stdin.write(line.stdin.encode())
        client.stdin.close()
        clients.append(client)
    return clients


def shared(folder: Path, model: Model) -> list[Any]:
    return _run(AgentProject(folder, model), "claude")


def alone(folder: Path, model: Model) -> list[Any]:
    """Each agent has an MCP server of its own."""
    config = folder / "alone.json"
    profile = f'''
[agents.alone]
like = "claude"
mcp = ["--mcp-config", "{config}", "--strict-mcp-config"]
'''
    project = AgentProject(folder, model, profile)
    env = {"HYPERVISOR_STORE": project.store}
    entry = {"command": sys.executable, "args": ["-I", "-c", ALONE_PROGRAM], "env": env}
    config.write_text(json.dumps({"mcpServers": {"hypervisor": {"type": "stdio", **entry}}}))
    return _run(project, "alone")


def _run(project: AgentProject, agent: str) -> list[Any]:
    words = project.words(agent, "--workers", str(AGENTS), "--workspace", "project")
    return [project.start("run", *words, items=[f"item-{n}" for n in range(AGENTS)])]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--dir", help="where the stores go")
    args = parser.parse_args()
    with scratch(args.dir) as folder:
        before = measure("bare", folder, bare)
        each = measure("one MCP server each", folder, alone)
        ours = measure("shared MCP server", folder, shared)
    ways = (before, each, ours)
    head = ("10 claude", "wall", "CPU", "more than bare", "CPU of ours", "memory of ours (PSS)")
    print(table(head, [way.cells(before) for way in ways]))
    roles = sorted({role for way in ways for role in way.own})
    parts = [(role, *(f"{way.own.get(role, 0):.3f} s" for way in (each, ours))) for role in roles]
    print(table(("CPU per agent", "one server each", "shared"), parts))
    own = sum(ours.own.values())
    bars = (
        (f"CPU of ours per agent: {own:.2f} s", f"< {MAX_CPU} s", own < MAX_CPU),
        (
            f"memory of ours per agent: {ours.memory:.1f} MB",
            f"< {MAX_MEMORY:.0f} MB",
            ours.memory < MAX_MEMORY,
        ),
    )
    print(table(("bar", "wanted", ""), [(*bar, verdict(ok)) for *bar, ok in bars]))
    save(None, "fleet", {"figures": [way._asdict() for way in ways]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
