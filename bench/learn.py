"""python -m bench.learn: the strategy adaptive against every fixed number of workers.

Work with known truth on this machine, by real runs: on the CPU, sleeping, one lock (flock),
copying memory, a server on loopback that serves three at a time, and one that sleeps first and
needs a lock from halfway on. Each fixed number of workers and `adaptive`, which knows nothing at
first, do the same tasks on a fresh store, in turns within one run. Time counts from the first
claim. Wanted: over the first sixty attempts adaptive loses less than a quarter to the best fixed
number; the forty after the twentieth go at 85 % of its pace or better; its answer to the lock
is 1. Some ten minutes on two cores; --quick takes four, with fewer numbers and several runs of
what only waits at once.

The governor is told to let all pass: it has tests of its own, and others on this machine
would otherwise decide how many may run.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bench.support import progress, save, scratch, table, verdict

ROOT = Path(__file__).parent.parent
HV = ROOT / "hv"
ADAPTIVE = 0
LEVELS = (1, 2, 3, 4, 6, 8, 12, 16)
CONFIG = """[governor]
cpu_warning = 1.0
cpu_danger = 1.0
ram_warning = 0.96
ram_danger = 0.97
ram_emergency = 0.99
ceiling = 0.98
"""
WORK = """
import fcntl, socket, sys, time

def hold(name, seconds):
    with open(name, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(seconds)

def ask(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.recv(1)  # when it is served

def burn(seconds):
    while time.process_time() < seconds:
        pass

def copy(times):
    source, target = bytearray(BLOCK), bytearray(BLOCK)
    for _ in range(times):
        target[:] = source

BLOCK = 32 << 20
world, amount, item, half = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
if world == "change":
    world = "sleep" if item <= half else "lock"
{"cpu": burn, "sleep": time.sleep, "lock": lambda s: hold("lock", s),
 "memory": lambda n: copy(int(n)), "quota": lambda port: ask(int(port))}[world](amount)
"""
WORLDS = ("cpu", "sleep", "lock", "memory", "quota", "change")
WAITING = ("sleep", "lock", "quota", "change")  # so several runs at once do not disturb each other
SERVED = 3
LOST, PACE = 0.25, 0.85
KNOWN = 20


class Server:
    """Serves three at a time on loopback, each for some seconds; the others wait."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._free = seconds, threading.Semaphore(SERVED)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._free, connection, suppress(OSError):
            time.sleep(self._seconds)
            connection.sendall(b"!")

    def close(self) -> None:
        self._socket.close()


def copies(seconds: float) -> int:
    """How often a block of memory is copied in so many seconds, if nobody else does."""
    source, target, count = bytearray(32 << 20), bytearray(32 << 20), 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        target[:] = source
        count += 1
    return count


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
            together = args.together if world in WAITING else 1
            with ThreadPoolExecutor(together) as pool:
                runs = {
                    workers: pool.submit(measure, world, workers, parent, args)
                    for workers in (ADAPTIVE, *args.levels)
                }
                found[world] = {workers: run.result() for workers, run in runs.items()}
    return _report(found, args)


def measure(world: str, workers: int, parent: Path, args: argparse.Namespace) -> Ran:
    """Run all tasks of a world with a fixed number of workers, or adaptive."""
    name = str(workers) if workers else "adaptive"
    progress(f"{world}: {name}")
    folder = parent / f"{world}-{name}"
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "work.py").write_text(WORK, encoding="utf-8")
    server = Server(args.seconds) if world == "quota" else None
    amount = {"memory": args.copies, "quota": server.port if server else 0}.get(world, args.seconds)
    try:
        return _run(world, workers, folder, amount, args)
    finally:
        if server:
            server.close()


def _run(world: str, workers: int, folder: Path, amount: float, args: argparse.Namespace) -> Ran:
    store = str(folder / "store.db")
    env = {**os.environ, "HYPERVISOR_STORE": store, "HOME": str(folder)}
    tasks = args.tasks * (2 if world == "change" else 1)
    how = "parallel" if workers else "adaptive"
    command = [
        str(HV), "run", "--strategy", how, "--workers", str(workers or args.workers), "--type",
        world, "--quiet", "--", sys.executable, "-S", "work.py", world, str(amount), "{}",
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
    (found,) = json.loads(out)
    return {"workers": found["next"]["best"], "why": found["next"]["why"]}


def _ends(store: str) -> list[float]:
    import hypervisor

    with hypervisor.open(store) as hv:
        events, last = [], 0
        while page := hv.store.events(last, 1000):
            events += page
            last = page[-1].seq
    begin = next(event.at for event in events if event.kind == "claim")
    return [(event.at - begin) / 1000 for event in events if event.kind == "complete"]


def _report(found: dict[str, dict[int, Ran]], args: argparse.Namespace) -> int:
    rows, kept, all_good = [], {}, True
    for world, runs in found.items():
        fixed = {n: run for n, run in runs.items() if n}
        ours = runs[ADAPTIVE]
        since = args.tasks if world == "change" else 0
        last = since + args.tasks
        lost = ours.between(0, last) / min(r.between(0, last) for r in fixed.values()) - 1
        half = min(r.between(since, last) for r in fixed.values())
        pace = half * (1 - KNOWN / args.tasks) / ours.between(since + KNOWN, last)
        good = pace > PACE and lost < LOST and (world != "lock" or ours.workers == 1)
        all_good &= good
        best = min(fixed, key=lambda n: fixed[n].between(since, last))
        rows.append((world, str(best), str(ours.workers), f"{100 * lost:.0f} %",
                     f"{100 * pace:.0f} %", verdict(good)))  # fmt: skip
        kept[world] = {
            "best": best, "answer": ours.workers, "why": ours.why, "lost": lost, "pace": pace,
            "seconds": {str(n): run.ends[-1] for n, run in runs.items()},
            "ends": {str(n): run.ends for n, run in runs.items()},
        }  # fmt: skip
    print(table(("work", "best fixed", "answer", "lost at first", "after 20, of best", ""), rows))
    save(args.json, "learn", {"tasks": args.tasks, "seconds": args.seconds, "worlds": kept})
    return 0 if all_good else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("worlds", nargs="*", default=WORLDS, help=", ".join(WORLDS))
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.3, help="what one takes alone")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="1, 2, 4 and 8 workers only")
    parser.add_argument("--dir", help="where to keep the stores")
    parser.add_argument("--json", help="where to write the figures")
    args = parser.parse_args()
    args.levels = [n for n in ((1, 2, 4, 8) if args.quick else LEVELS) if n <= args.workers]
    args.together = 3 if args.quick else 1
    args.copies = copies(args.seconds) if "memory" in args.worlds else 0
    return args


if __name__ == "__main__":
    sys.exit(main())
