"""What attempts themselves say about when they ran: the witness for the tests of lost hosts.

An attempt writes a line with the time of the machine's steady clock as it begins, every 50 ms while
it runs, and as it ends. The clock is the same in all namespaces.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

TICK = 0.05


def attend(folder: str, task: str, host: str, seconds: float) -> None:
    """The command of a task."""
    path = Path(folder) / f"{task}.{host}.{time.monotonic_ns()}"
    with path.open("a", buffering=1) as file:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            file.write(f"{time.monotonic()}\n")
            time.sleep(TICK)
        file.write("done\n")
    print(f"{task} ran on {host}")


class Attended(NamedTuple):
    task: str
    host: str
    began: float
    last: float
    done: bool


def read(folder: Path) -> dict[str, list[Attended]]:
    """The runs of each task, in the order of their beginnings."""
    runs: dict[str, list[Attended]] = {}
    for path in folder.iterdir():
        task, host, _ = path.name.split(".")
        lines = path.read_text().split()
        times = [float(line) for line in lines if line != "done"]
        if times:
            run = Attended(task, host, min(times), max(times), "done" in lines)
            runs.setdefault(task, []).append(run)
    return {task: sorted(some, key=lambda run: run.began) for task, some in runs.items()}


def overlaps(runs: dict[str, list[Attended]]) -> list[tuple[Attended, Attended]]:
    """Pairs of runs of one task that were running at the same moment."""
    return [
        (earlier, later)
        for some in runs.values()
        for earlier, later in pairwise(some)
        if later.began <= earlier.last
    ]


if __name__ == "__main__":
    attend(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
