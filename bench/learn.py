"""python -m bench.learn: the strategy adaptive against every fixed number of workers.

Work with known truth on this machine, by real runs: CPU-bound, sleeping, one lock, a quota of
three at once, and one that sleeps first and needs a lock from halfway on. Each fixed number of
workers and `adaptive`, which knows nothing at first, do the same tasks on a fresh store, in
turns within one run. Time counts from the first claim. Wanted: over the first sixty attempts
adaptive loses less than a quarter to the best fixed number; from the twentieth on it is within
15 % of it; and its answer to the lock is 1.

The governor is told to let all pass: it has tests of its own, and others on this machine
would otherwise decide how many may run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from bench.support import progress, save, scratch, table, verdict

ROOT = Path(__file__).parent.parent
HV = ROOT / "hv"
ADAPTIVE = 0
CONFIG = """[governor]
cpu_warning = 1.0
cpu_danger = 1.0
ram_warning = 0.96
ram_danger = 0.97
ram_emergency = 0.99
ceiling = 0.98
"""
WORK = '''
import fcntl, os, sys, time

def hold(name, seconds):
    with open(name, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(seconds)

def slot(seconds):
    """Whichever of three is free first."""
    while True:
        for number in range(3):
            with open(f"slot{number}", "w") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                return time.sleep(seconds)
        time.sleep(0.01)

def burn(seconds):
    while time.process_time() < seconds:
        pass

world, seconds, item, half = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
if world == "change":
    world = "sleep" if item <= half else "lock"
if world == "cpu":
    burn(seconds)
elif world == "sleep":
    time.sleep(seconds)
elif world == "lock":
    hold("lock", seconds)
elif world == "quota":
    slot(seconds)
'''
WORLDS = ("cpu", "sleep", "lock", "quota", "change")


class Ran(NamedTuple):
    """When attempts ended, in seconds since the first claim, and what was learned in the end."""

    ends: list[float]
    workers: int  # the answer of adaptive
    why: str

    def between(self, first: int, last: int) -> float:
        return self.ends[last - 1] - (self.ends[first - 1] if first else 0.0)


def main() -> int:
    args = _arguments()
    found: dict[str, dict[int, Ran]] = {}
    with scratch(args.dir) as parent:
        for world in args.worlds:
            found[world] = {}
            for workers in (*_levels(args.workers), ADAPTIVE):
                name = str(workers) if workers else "adaptive"
                progress(f"{world}: {name}")
                folder = parent / f"{world}-{name}"
                folder.mkdir()
                found[world][workers] = measure(world, workers, folder, args)
    return _report(found, args)


def measure(world: str, workers: int, folder: Path, args: argparse.Namespace) -> Ran:
    """Run all tasks of a world with a fixed number of workers, or adaptive."""
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "work.py").write_text(WORK, encoding="utf-8")
    store = str(folder / "store.db")
    env = {**os.environ, "HYPERVISOR_STORE": store, "HOME": str(folder)}
    tasks = args.tasks * (2 if world == "change" else 1)
    how = "parallel" if workers else "adaptive"
    command = [
        str(HV), "run", "--strategy", how, "--workers", str(workers or args.workers), "--type",
        world, "--quiet", "--", sys.executable, "-S", "work.py", world, str(args.seconds), "{}",
        str(args.tasks),
    ]  # fmt: skip
    items = "\n".join(str(number) for number in range(1, tasks + 1))
    subprocess.run(command, input=items, text=True, cwd=folder, env=env, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    answer = _learned(world, folder, env, args) if not workers else {}
    return Ran(_ends(store), answer.get("workers", workers), answer.get("why", ""))


def _learned(world: str, folder: Path, env: dict[str, str], args: Any) -> dict[str, Any]:
    out = subprocess.run(
        [str(HV), "learn", world, "--workers", str(args.workers), "--json"], cwd=folder, env=env,
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    answer: dict[str, Any] = json.loads(out)[0]["next"]
    return answer


def _ends(store: str) -> list[float]:
    import hypervisor

    with hypervisor.open(store) as hv:
        events, last = [], 0
        while page := hv.store.events(last, 1000):
            events += page
            last = page[-1].seq
    begin = next(event.at for event in events if event.kind == "claim")
    return [(event.at - begin) / 1000 for event in events if event.kind == "complete"]


def _levels(most: int) -> list[int]:
    return [n for n in (1, 2, 3, 4, 6, 8, 12, 16) if n <= most]


def _report(found: dict[str, dict[int, Ran]], args: argparse.Namespace) -> int:
    rows, kept, all_good = [], {}, True
    for world, runs in found.items():
        fixed = {n: run for n, run in runs.items() if n}
        ours = runs[ADAPTIVE]
        last = len(ours.ends)
        begin = last - args.tasks // 2 if world == "change" else args.tasks // 3
        first = args.tasks
        regret = ours.between(0, first) / min(r.between(0, first) for r in fixed.values()) - 1
        later = ours.between(begin, last) / min(r.between(begin, last) for r in fixed.values())
        good = later < 1 / 0.85 and (regret < 0.25 or world == "change")
        good &= world != "lock" or ours.workers == 1
        all_good &= good
        best = min(fixed, key=lambda n: fixed[n].between(0, last))
        rows.append((world, str(best), str(ours.workers), f"{100 * regret:.0f} %",
                     f"{100 / later:.0f} %", verdict(good)))  # fmt: skip
        kept[world] = {
            "best": best, "answer": ours.workers, "why": ours.why, "regret": regret,
            "later": 1 / later, "seconds": {str(n): run.ends[-1] for n, run in runs.items()},
        }  # fmt: skip
    print(table(("work", "best fixed", "answer", "lost at first", "later, of best", ""), rows))
    save(args.json, "learn", {"tasks": args.tasks, "seconds": args.seconds, "worlds": kept})
    return 0 if all_good else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("worlds", nargs="*", default=WORLDS, help=", ".join(WORLDS))
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.5, help="what one takes alone")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--dir", help="where to keep the stores")
    parser.add_argument("--json", help="where to write the figures")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
