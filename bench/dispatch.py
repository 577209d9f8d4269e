"""make bench-dispatch: thousands of short commands, compared with other dispatchers.

Every dispatcher runs the same commands with the same number at once, in turns within one run.
Wall time is from the start of the dispatcher to its end, set-up included. CPU and memory are the
dispatcher's own: of all its processes, without the commands that they run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.support import progress, save, scratch, table, verdict

ROOT = Path(__file__).parent.parent
HV = ROOT / "hv"
PYTHON = ROOT / ".venv" / "bin" / "python"
MARK = "BENCH_DISPATCH"
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
OURS, XARGS, PARALLEL = "hv run", "xargs -P", "parallel --joblog --results"
LEAST = "bare Python loop"
QUICK = (OURS, XARGS, PARALLEL, LEAST)
BARS = ((PARALLEL, 5.0), (XARGS, 0.7))
MANY = 100_000
FLAT = 1.2  # how much more memory a hundred times the items may take

# The least that a dispatcher in Python can do: no record, no queue, an output file for each.
BARE = """
import os, shutil, sys
jobs, at_once, folder, *argv = sys.argv[1:]
program, write = shutil.which(argv[0]), os.O_WRONLY | os.O_CREAT | os.O_APPEND
for lane in range(int(at_once)):
    if os.fork():
        continue
    os.mkdir(f"{folder}/{lane}")
    for number in range(lane, int(jobs), int(at_once)):
        actions = [(os.POSIX_SPAWN_OPEN, 1, f"{folder}/{lane}/{number}", write, 0o600),
                   (os.POSIX_SPAWN_DUP2, 1, 2)]
        os.wait4(os.posix_spawn(program, [*argv, str(number)], os.environ,
                                file_actions=actions, setsid=True), 0)
    os._exit(0)
for lane in range(int(at_once)):
    os.wait()
"""

HYPERQUEUE = """
import sys
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
jobs, at_once, *argv = sys.argv[1:]
with LocalCluster(worker_config=WorkerConfig(cores=int(at_once))) as cluster:
    client, job = cluster.client(), Job()
    for number in range(int(jobs)):
        job.program([*argv, str(number)])
    client.wait_for_jobs([client.submit(job)])
"""


class Load(NamedTuple):
    """What is run: so many of these, the item as the last argument."""

    name: str
    jobs: int
    argv: tuple[str, ...]


class Measured(NamedTuple):
    seconds: float
    cpu: float
    memory: int


Command = Callable[[Load, int, Path], list[str]]


def hypervisor(load: Load, at_once: int, folder: Path) -> list[str]:
    return [
        str(HV),
        "run",
        "--store",
        str(folder / "store"),
        "--items",
        _items(load, folder),
        "--workers",
        str(at_once),
        "--quiet",
        "--",
        *load.argv,
    ]


def xargs(load: Load, at_once: int, folder: Path) -> list[str]:
    return ["xargs", "-P", str(at_once), "-n", "1", "-a", _items(load, folder), *load.argv]


def parallel_with_logs(load: Load, at_once: int, folder: Path) -> list[str]:
    logs = ["--joblog", str(folder / "joblog"), "--results", str(folder / "results")]
    items = _items(load, folder)
    return ["parallel", "--will-cite", "-j", str(at_once), *logs, *load.argv, "::::", items]


def make(load: Load, at_once: int, folder: Path) -> list[str]:
    command = " ".join(load.argv)
    names = " ".join(f"j{number}" for number in range(load.jobs))
    makefile = folder / "Makefile"
    makefile.write_text(f"all: {names}\n.PHONY: all {names}\n{names}:\n\t@{command} $@\n")
    return ["make", "-j", str(at_once), "-f", str(makefile)]


def bare(load: Load, at_once: int, folder: Path) -> list[str]:
    numbers = [str(load.jobs), str(at_once)]
    return [str(PYTHON), "-I", "-c", BARE, *numbers, str(folder), *load.argv]


def hyperqueue(load: Load, at_once: int, folder: Path) -> list[str]:
    return [str(PYTHON), "-c", HYPERQUEUE, str(load.jobs), str(at_once), *load.argv]


DISPATCHERS: dict[str, Command] = {
    OURS: hypervisor,
    XARGS: xargs,
    PARALLEL: parallel_with_logs,
    LEAST: bare,
    "make -j": make,
    "HyperQueue": hyperqueue,
}


def _items(load: Load, folder: Path) -> str:
    path = folder / "items"
    path.write_text("".join(f"{number}\n" for number in range(load.jobs)))
    return str(path)


class Observer:
    """Adds up the CPU and memory of a dispatcher's processes while they live.

    They carry a mark in their environment, and so do the commands; those are told
    apart by the name of their program. For a moment each of them is still a copy of the
    dispatcher that begins it, whose memory it shares: so a process counts only after it
    was seen twice.
    """

    def __init__(self, mark: str, commands: set[str]) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._commands = commands
        self._cpu: dict[int, float] = {}
        self._ours: set[int] = set()
        self._new: set[int] = set()
        self.memory = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._end.set()
        self._thread.join()
        return sum(self._cpu.values())

    def alive(self) -> int:
        return sum(self._is_ours(int(pid)) for pid in os.listdir("/proc") if pid.isdecimal())

    def _watch(self) -> None:
        while not self._end.wait(0.05):
            self.memory = max(self.memory, self._look())

    def _look(self) -> int:
        memory = 0
        found = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        ours = {pid for pid in found if pid in self._ours or self._is_ours(pid)}
        self._ours, self._new = ours & (self._new | self._ours), ours
        for pid in self._ours:
            fields = _stat(pid)
            if fields:
                self._cpu[pid] = (int(fields[11]) + int(fields[12])) / TICKS
                memory += int(fields[21]) * PAGE
        return memory

    def _is_ours(self, pid: int) -> bool:
        """A short command is mostly gone before it is looked at."""
        try:
            program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return self._mark in environment.split(b"\0") and program not in self._commands


def _stat(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def measure(name: str, load: Load, at_once: int, parent: Path) -> Measured:
    """Run a load through a dispatcher in a folder of its own."""
    folder = parent / f"{name.split()[0]}-{time.time_ns()}"
    folder.mkdir()
    command = DISPATCHERS[name](load, at_once, folder)
    mark = folder.name
    commands = {os.path.basename(os.path.realpath(shutil.which(load.argv[0]) or ""))}
    observer = Observer(mark, commands)
    began = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    seconds = time.perf_counter() - began
    cpu = observer.stop()
    if done.returncode:
        raise SystemExit(f"{name} ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    _wait_until_gone(observer)  # its files stay: on ext4, a removal slows down what follows
    return Measured(seconds, cpu, observer.memory)


def _wait_until_gone(observer: Observer) -> None:
    """A supervisor stays for a moment; it must not share the next one's time."""
    deadline = time.monotonic() + 20
    while observer.alive() and time.monotonic() < deadline:
        time.sleep(0.1)


def main() -> int:
    args = _arguments()
    if args.flat:
        return _only_flat(args)
    loads = [
        Load("true", args.jobs, ("true",)),
        Load("with output", args.jobs * 2 // 5, ("echo", "a line of output for item")),
    ]
    wanted = QUICK if args.quick else tuple(DISPATCHERS)
    names = [name for name in wanted if _is_there(name)]
    for missing in sorted(set(wanted) - set(names)):
        progress(f"{missing} is not installed: left out")
    figures: list[dict[str, Any]] = []
    judged: list[tuple[str, str, str, str]] = []
    with scratch(args.dir) as folder:
        for load in loads:
            for at_once in args.at_once:
                turns = _turns(names, load, at_once, folder, args.rounds)
                figures += _figures(load, at_once, turns)
                judged += _judge(load, at_once, turns)
        flat = [] if args.quick else _flatness(folder, MANY, args.at_once[0])
    _report(figures, judged, flat, args)
    return 0


def _only_flat(args: argparse.Namespace) -> int:
    with scratch(args.dir) as folder:
        flat = _flatness(folder, args.flat, args.at_once[0])
    print(table(("bar", "wanted", "measured", ""), flat))
    print(f"\nwritten to {save(args.json, 'dispatch-flat', {'bars': flat})}")
    return 0


def _turns(
    names: list[str], load: Load, at_once: int, folder: Path, rounds: int
) -> dict[str, list[Measured]]:
    turns: dict[str, list[Measured]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names:
            progress(f"{load.name}, {at_once} at once, round {number + 1} of {rounds}: {name}")
            turns[name].append(measure(name, load, at_once, folder))
    return turns


def _rate(load: Load, turns: list[Measured]) -> float:
    return load.jobs / median(turn.seconds for turn in turns)


def _figures(load: Load, at_once: int, turns: dict[str, list[Measured]]) -> list[dict[str, Any]]:
    ours = _rate(load, turns[OURS])
    return [
        {
            "load": load.name,
            "jobs": load.jobs,
            "at_once": at_once,
            "dispatcher": name,
            "jobs_per_second": _rate(load, measured),
            "ours_to_it": ours / _rate(load, measured),
            "cpu_us_per_job": median(m.cpu for m in measured) / load.jobs * 1e6,
            "memory_mb": median(m.memory for m in measured) / 1e6,
        }
        for name, measured in turns.items()
    ]


def _judge(
    load: Load, at_once: int, turns: dict[str, list[Measured]]
) -> list[tuple[str, str, str, str]]:
    ours = _rate(load, turns[OURS])
    cells = []
    for rival, wanted in BARS:
        if rival in turns:
            ratio = ours / _rate(load, turns[rival])
            what = f"{load.name}, {at_once} at once: ours / {rival}"
            cells.append((what, f"≥ {wanted}×", f"{ratio:.2f}×", verdict(ratio >= wanted)))
    return cells


def _flatness(folder: Path, items: int, at_once: int) -> list[tuple[str, str, str, str]]:
    few, many = Load("true", 1_000, ("true",)), Load("true", items, ("true",))
    memory = []
    for load in (few, many):
        progress(f"memory with {load.jobs:,} items")
        memory.append(measure(OURS, load, at_once, folder).memory)
    ratio = memory[1] / memory[0]
    what = f"memory with {many.jobs:,} items / with {few.jobs:,} ({memory[0] / 1e6:.0f} MB)"
    return [(what, f"≤ {FLAT}×", f"{ratio:.2f}×", verdict(ratio <= FLAT))]


def _is_there(name: str) -> bool:
    if name == "HyperQueue":
        from importlib.util import find_spec

        return find_spec("hyperqueue") is not None
    return name in (OURS, LEAST) or shutil.which(name.split()[0]) is not None


def _report(
    figures: list[dict[str, Any]],
    judged: list[tuple[str, str, str, str]],
    flat: list[tuple[str, str, str, str]],
    args: argparse.Namespace,
) -> None:
    cells = [
        (
            f"{f['dispatcher']}",
            f["load"],
            str(f["at_once"]),
            f"{f['jobs_per_second']:,.0f}",
            f"{f['ours_to_it']:.2f}×",
            f"{f['cpu_us_per_job']:,.0f}",
            f"{f['memory_mb']:.0f}",
        )
        for f in figures
    ]
    head = ("dispatcher", "load", "at once", "jobs/s", "ours / it", "CPU µs/job", "MB")
    print(table(head, cells))
    print()
    print(table(("bar", "wanted", "measured", ""), [*judged, *flat]))
    answer = {"rounds": args.rounds, "figures": figures, "bars": [*judged, *flat]}
    name = "dispatch-quick" if args.quick else "dispatch"
    print(f"\nwritten to {save(args.json, name, answer)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.dispatch", description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=5_000, help="how many `true`; two fifths of it with output"
    )
    parser.add_argument("--at-once", type=int, nargs="+", default=[2, 8], metavar="N")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="only those that the bars name, 2 at once, no look at memory: about a minute",
    )
    parser.add_argument(
        "--flat",
        type=int,
        nargs="?",
        const=MANY,
        metavar="ITEMS",
        help=f"only compare memory with so many items ({MANY:,})",
    )
    parser.add_argument("--dir", help="where to work (bench/results)")
    parser.add_argument("--json", metavar="FILE", help="default: bench/results/dispatch.json")
    args = parser.parse_args()
    if args.quick:
        args.at_once = args.at_once[:1]
    return args


if __name__ == "__main__":
    sys.exit(main())
