"""Dozens of workspaces, compared with `git worktree add` in sequence.

Makes a repository of 5,000 files, a hub of it, and 50 workspaces, 8 at a time; before each eight,
one linked work tree. Prints time and disk space of each.
`python -m bench.workspaces`
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bench.support import progress, save, scratch, table

from hypervisor.git.command import Git
from hypervisor.git.hub import Hub, open_hub
from hypervisor.git.repository import discover
from hypervisor.git.workspace import create

BAR = 1.2  # times one `git worktree add`


def main() -> int:
    args = _arguments()
    with scratch(args.dir) as folder:
        project = make_project(folder / "project", args.files)
        repository = discover(str(project))
        assert repository is not None
        started = time.perf_counter()
        hub = open_hub(str(folder / "data"), repository)
        hub_seconds, hub_bytes = time.perf_counter() - started, disk(folder / "data")
        progress(f"hub: {hub_seconds:.2f} s, {hub_bytes / 1e6:.1f} MB")
        made = race(hub, project, folder, args)
        sizes = (
            disk(folder / "data/git/work") / max(made.count, 1),
            disk(folder / "trees") / made.rounds,
        )
    print(table((f"{args.files} files", "each", "disk", "failures"), rows_of(made, sizes)))
    passed = made.ratio <= BAR and not made.failures and made.count == args.count
    print(
        f"\n{made.count} of {args.count} workspaces, {args.at_once} at a time, in "
        f"{made.seconds:.1f} s: {made.ratio:.2f}× of one worktree each "
        f"(bar {BAR}×): {'ok' if passed else 'missed'}"
    )
    facts = {**made._asdict(), "ratio": made.ratio, "disk": sizes}
    print(f"written to {save(args.json, 'workspaces', facts)}")
    return 0 if passed else 1


class Made(NamedTuple):
    """`seconds` is for all `count` workspaces, `tree_seconds` for one work tree in each round."""

    count: int
    failures: int
    rounds: int
    seconds: float
    tree_seconds: float

    @property
    def ratio(self) -> float:
        return (self.seconds / max(self.count, 1)) / (self.tree_seconds / self.rounds)


def race(hub: Hub, project: Path, folder: Path, args: argparse.Namespace) -> Made:
    """Rounds of one work tree and then as many workspaces as are made at once, so that whatever
    else the machine does slows both down alike. No round starts after the time limit."""
    (folder / "trees").mkdir()
    base, deadline = hub.resolve(), time.monotonic() + args.max_seconds
    count = failures = rounds = 0
    seconds = tree_seconds = 0.0
    while count < args.count and time.monotonic() < deadline:
        rounds += 1
        tree_seconds += add_worktree(project, folder / "trees" / str(rounds))
        numbers = range(count, min(count + args.at_once, args.count))
        took, failed = workspaces(hub, folder / "data/git/work", base, numbers)
        count, seconds, failures = count + len(numbers), seconds + took, failures + failed
        progress(f"{count} workspaces in {seconds:.1f} s")
    return Made(count, failures, rounds, seconds, tree_seconds)


def rows_of(made: Made, sizes: tuple[float, float]) -> list[tuple[str, str, str, str]]:
    each, tree = made.seconds / max(made.count, 1), made.tree_seconds / made.rounds
    return [
        ("workspace", f"{each * 1000:.0f} ms", f"{sizes[0] / 1e6:.2f} MB", f"{made.failures}"),
        ("git worktree add", f"{tree * 1000:.0f} ms", f"{sizes[1] / 1e6:.2f} MB", "0"),
    ]


def make_project(folder: Path, files: int) -> Path:
    for number in range(files):
        path = folder / f"folder{number % 100}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n" * 100)
    git = Git(str(folder))
    git.run("init", "--quiet", "--initial-branch=main")
    git.run("add", "--all")
    git.run("commit", "--quiet", "--message", "files")
    return folder


def add_worktree(project: Path, folder: Path) -> float:
    """Seconds that it took."""
    started = time.perf_counter()
    words = ("worktree", "add", "--quiet", "-b", f"tree{folder.name}", str(folder))
    subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)
    return time.perf_counter() - started


def workspaces(hub: Hub, folder: Path, base: str, numbers: range) -> tuple[float, int]:
    """Make these at the same time: seconds for all of them, and how many failed."""

    def make(number: int) -> str:
        name = f"task{number}"
        return create(hub, str(folder / name), f"hv/bench/{name}", base).folder

    started = time.perf_counter()
    with ThreadPoolExecutor(len(numbers)) as pool:
        futures = [pool.submit(make, number) for number in numbers]
    seconds = time.perf_counter() - started
    made = [each.result() for each in futures if each.exception() is None]
    clean = [each for each in made if not Git(each).text("status", "--porcelain")]
    return seconds, len(numbers) - len(clean)


def disk(folder: Path) -> int:
    """Bytes on disk, a file with several names counted once."""
    seen: dict[int, int] = {}
    for here, _, names in os.walk(folder):
        for name in names:
            facts = os.lstat(os.path.join(here, name))
            if facts.st_nlink == 1 or facts.st_ino not in seen:
                seen[facts.st_ino] = facts.st_blocks * 512
    return sum(seen.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.workspaces", description=__doc__)
    parser.add_argument("--files", type=int, default=5000, help="of the repository (5000)")
    parser.add_argument("--count", type=int, default=50, help="workspaces (50)")
    parser.add_argument("--at-once", type=int, default=8, help="made at the same time (8)")
    parser.add_argument("--max-seconds", type=float, default=600, help="time limit (600)")
    parser.add_argument("--dir", help="where to work (bench/results)")
    parser.add_argument("--json", metavar="FILE", help="default: bench/results/workspaces.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
