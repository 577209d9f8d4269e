"""python -m bench.learn: the strategy adaptive against every fixed number of workers.

Work with known truth on this machine, by real runs: on the CPU, sleeping, one lock (flock),
copying memory, a server on loopback that serves three at a time, and two that change halfway,
from sleeping to a lock and back. Each fixed number of workers and `adaptive`, which knows
nothing at first, do the same tasks on fresh stores, in turns. Numbers within a tenth of the best
(three at most) and adaptive then run a second time, in reverse; what counts is the mean. Time
counts from the first claim.

Wanted: over the first sixty attempts adaptive loses less than a quarter to the best fixed
number; the forty after the twentieth go at 85 % of its pace or better; its answer to the lock
is 1. What changes does so after thirty of sixty: it loses less than a quarter over all of them
to the best fixed number for all of them, and the ten after the twentieth since the change count
(`--half 60` has sixty before and sixty after). Each world is told as soon as it is known. Eight
minutes on two cores; --quick takes four: fewer numbers, each once.

Two cores do not use up the bandwidth of memory on every machine: where two copy as fast as one,
copying is work on the CPU like any other.

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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from bench.support import progress, save, scratch, verdict

ROOT = Path(__file__).parent.parent
HV = ROOT / "hv"
ADAPTIVE = 0
LEVELS = (1, 2, 3, 4, 6, 8, 12, 16)
QUICK = (1, 2, 4, 8)
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
before, _, after = world.partition("-")
world = after if after and item > half else before
{"cpu": burn, "sleep": time.sleep, "lock": lambda s: hold("lock", s),
 "memory": lambda n: copy(int(n)), "quota": lambda port: ask(int(port))}[world](amount)
"""
CHANGES = ("sleep-lock", "lock-sleep")
WORLDS = ("cpu", "sleep", "lock", "memory", "quota", *CHANGES)
WAITING = ("lock", "quota", *CHANGES)  # few attempts a second: such runs do not disturb each other
TOGETHER = 4
CLOSE = 1.1  # times the best: may be as good
CONTENDERS = 3
SERVED = 3
HELD = 1.5  # the lock for longer: what is done without it must not be worth a second worker
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
    """When attempts ended, in seconds since the first claim; what was learned in the end, and
    what adaptive reported."""

    ends: list[float]
    workers: int  # the answer of adaptive
    why: str
    story: list[str]

    def between(self, first: int, last: int) -> float:
        return self.ends[last - 1] - (self.ends[first - 1] if first else 0.0)


Runs = dict[int, list[Ran]]  # by the number of workers


def main() -> int:
    args = _arguments()
    kept: dict[str, Any] = {}
    begin = time.monotonic()
    print(_line(HEAD), flush=True)
    with scratch(args.dir) as parent:
        for world in args.worlds:
            kept[world], row = judged(world, compared(world, parent, args), args)
            print(_line(row), flush=True)
            save(args.json, "learn", {"tasks": args.tasks, "seconds": args.seconds, "worlds": kept})
    print(f"\n{time.monotonic() - begin:.0f} s")
    return 0 if all(each["good"] for each in kept.values()) else 1


def compared(world: str, parent: Path, args: argparse.Namespace) -> Runs:
    """All numbers once, adaptive among them; then those that may be best once more."""
    _, last = _span(world, args)
    half = len(args.levels) // 2
    order = [*args.levels[:half], ADAPTIVE, *args.levels[half:]]
    runs: Runs = {n: [] for n in order}
    _round(world, order, runs, parent, args)
    if not args.quick:
        took = {n: runs[n][0].between(0, last) for n in args.levels}
        close = [
            n for n in sorted(took, key=took.__getitem__) if took[n] < CLOSE * min(took.values())
        ]
        again = close[:CONTENDERS] if len(close) > 1 else []
        _round(world, [n for n in reversed(order) if n in (ADAPTIVE, *again)], runs, parent, args)
    return runs


def _round(world: str, order: list[int], runs: Runs, parent: Path, args: Any) -> None:
    with ThreadPoolExecutor(TOGETHER if world in WAITING else 1) as pool:
        found = {n: pool.submit(measure, world, n, len(runs[n]), parent, args) for n in order}
        for n, run in found.items():
            runs[n].append(run.result())


def _span(world: str, args: argparse.Namespace) -> tuple[int, int]:
    """The attempts in which the last truth holds."""
    return (args.half, 2 * args.half) if world in CHANGES else (0, args.tasks)


def measure(world: str, workers: int, turn: int, parent: Path, args: argparse.Namespace) -> Ran:
    """Run all tasks of a world with a fixed number of workers, or adaptive."""
    name = str(workers) if workers else "adaptive"
    progress(f"{world}: {name}")
    folder = parent / f"{world}-{name}-{turn}"
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "work.py").write_text(WORK, encoding="utf-8")
    server = Server(args.seconds) if world == "quota" else None
    amount = {
        "memory": args.copies,
        "quota": server.port if server else 0,
        "lock": HELD * args.seconds,
    }.get(world, args.seconds)
    try:
        return _run(world, workers, folder, amount, args)
    finally:
        if server:
            server.close()


def _run(world: str, workers: int, folder: Path, amount: float, args: argparse.Namespace) -> Ran:
    store = str(folder / "store.db")
    env = {**os.environ, "HYPERVISOR_STORE": store, "HOME": str(folder)}
    _, tasks = _span(world, args)
    how = "parallel" if workers else "adaptive"
    command = [
        str(HV),
        "run",
        "--strategy",
        how,
        "--workers",
        str(workers or args.workers),
        "--type",
        world,
        "--quiet",
        "--",
        sys.executable,
        "-S",
        "work.py",
        world,
        str(amount),
        "{}",
        str(args.half),
    ]
    items = "\n".join(str(number) for number in range(1, tasks + 1))
    subprocess.run(
        command, input=items, text=True, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL
    )
    answer = _learned(world, folder, env, args) if not workers else {}
    ends, story = _happened(store)
    return Ran(ends, answer.get("workers", workers), answer.get("why", ""), story)


def _learned(world: str, folder: Path, env: dict[str, str], args: Any) -> dict[str, Any]:
    out = subprocess.run(
        [str(HV), "learn", world, "--workers", str(args.workers), "--json"],
        cwd=folder,
        env=env,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    (found,) = json.loads(out)
    return {"workers": found["next"]["best"], "why": found["next"]["why"]}


def _happened(store: str) -> tuple[list[float], list[str]]:
    import hypervisor

    with hypervisor.open(store) as hv:
        events, last = [], 0
        while page := hv.store.events(last, 1000):
            events += page
            last = page[-1].seq
    begin = next(event.at for event in events if event.kind == "claim")
    ends, story = [], []
    for event in events:
        after = (event.at - begin) / 1000
        if event.kind == "complete":
            ends.append(after)
        elif event.kind == "learner":
            story.append(f"{after:.1f} s, {len(ends)} done: {event.data['message']}")
    return ends, story


HEAD = ("work", "best fixed", "repeats differ by", "answer", "lost", "after 20, of best", "")


def judged(world: str, runs: Runs, args: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    since, last = _span(world, args)

    def took(n: int, first: int) -> float:
        return mean(run.between(first, last) for run in runs[n])

    best = min(args.levels, key=lambda n: took(n, 0))
    lost = took(ADAPTIVE, 0) / took(best, 0) - 1
    half = min(took(n, since) for n in args.levels)
    pace = half * (1 - KNOWN / (last - since)) / took(ADAPTIVE, since + KNOWN)
    answers = [run.workers for run in runs[ADAPTIVE]]
    is_right = not world.endswith("lock") or world in CHANGES or set(answers) == {1}
    good = pace > PACE and lost < LOST and is_right
    differ = max(_differ([run.between(0, last) for run in runs[n]]) for n in args.levels)
    row = (
        world,
        str(best),
        f"{100 * differ:.0f} %",
        ", ".join(map(str, answers)),
        f"{100 * lost:.0f} %",
        f"{100 * pace:.0f} %",
        verdict(good),
    )
    return {
        "best": best,
        "answers": answers,
        "lost": lost,
        "pace": pace,
        "differ": differ,
        "good": good,
        "why": [run.why for run in runs[ADAPTIVE]],
        "seconds": {str(n): [run.ends[-1] for run in each] for n, each in runs.items()},
        "ends": {str(n): [run.ends for run in each] for n, each in runs.items()},
        "story": [run.story for run in runs[ADAPTIVE]],
    }, row


def _differ(took: list[float]) -> float:
    return max(took) / min(took) - 1


def _line(cells: Sequence[str]) -> str:
    first, *rest = cells
    widths = [len(each) for each in HEAD[1:]]
    right = [cell.rjust(max(width, 6)) for cell, width in zip(rest, widths, strict=True)]
    return "  ".join([first.ljust(10), *right]).rstrip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("worlds", nargs="*", default=WORLDS, help=", ".join(WORLDS))
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--half", type=int, default=30, help="attempts before a change")
    parser.add_argument("--seconds", type=float, default=0.3, help="what one takes alone")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="1, 2, 4 and 8 workers, each once")
    parser.add_argument("--dir", help="where to keep the stores")
    parser.add_argument("--json", help="where to write the figures")
    args = parser.parse_args()
    args.levels = [n for n in (QUICK if args.quick else LEVELS) if n <= args.workers]
    args.copies = copies(args.seconds) if "memory" in args.worlds else 0
    return args


if __name__ == "__main__":
    sys.exit(main())
