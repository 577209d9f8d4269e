"""The parts of the self-test."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from hypervisor.core.records import NamedTuple
from hypervisor.selftest.part import Figures, Setting


class Part(NamedTuple):
    name: str
    summary: str
    module: str
    share: float  # of the time; 0: it takes as long as it takes

    @property
    def run(self) -> Callable[[Setting], Figures]:
        """Its module is imported when it is needed."""
        run: Callable[[Setting], Figures] = import_module(f"hypervisor.selftest.{self.module}").run
        return run


PARTS = (
    Part(
        "simulation",
        "simulated processes, clocks, power cuts, failing syncs and lost answers",
        "simulation",
        0.35,
    ),
    Part("kill-storm", "real workers killed at random", "kill_storm", 0.25),
    Part("zombies", "workers stopped until their lease expires", "zombies", 0.1),
    Part("power-cuts", "power cuts at many moments, on a recorded disk", "power_cuts", 0.3),
    Part("network", "PostgreSQL behind a network that fails", "network", 0.3),
    Part("merges", "the merge queue killed at random", "merges", 0.3),
    Part("removals", "the removal of workspaces killed at random", "removals", 0.1),
    Part("full-disks", "full disks", "full_disks", 0),
    Part("trees", "processes that try to outlive their attempt", "trees", 0),
    Part("http", "hostile requests to the MCP server and the dashboard", "http", 0),
    Part("memory", "a command that exceeds its memory limit", "memory", 0),
)
NOT_COVERED = (
    "a disk that reports a sync as done and loses the data anyway",
    "broken memory, file systems or kernels",
    "several hosts",
)
