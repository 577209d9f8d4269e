"""make bench-queue: put, claim and complete no-op items, against other queues on the same disk.

Run as a module (python -m bench.queue). README.md says how to read the table.

A ratio is the median of the rounds' own ratios: rivals run within seconds of each other, first
one, then the other in front, so what slows the machine for a while slows both. The ratio of two
medians would compare a good round of one with a bad round of the other.

On PostgreSQL all systems start alike: a separate database, and before items are taken out its
statistics are gathered and a checkpoint is made. Left to autovacuum, which looks once a minute,
it was luck whether a round had statistics; Procrastinate sorts all that waits for each job
without, and takes half as long with them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.bars import BARS, COMMIT, SYNC, judge, ratio
from bench.crew import Crew, CrewError
from bench.limits import BareCommit, BareSync
from bench.queue_hypervisor import Hypervisor
from bench.queue_postgres import PgQueuer, Procrastinate
from bench.queue_sqlite import FULL, NORMAL, OFF, Huey, Litequeue, PersistQueue, Script
from bench.queue_systems import Draining, Putting, System
from bench.support import Server, postgres, progress, save, scratch, table

SYSTEMS: tuple[System, ...] = (
    Hypervisor(1),
    Huey(FULL),
    Litequeue(FULL),
    PersistQueue(),
    Hypervisor(10, pace=3),
    Hypervisor(50, pace=8),
    Script(),
    Hypervisor(1, relaxed=True, pace=3),
    Huey(NORMAL, pace=3),
    Huey(OFF, pace=3),
    Litequeue(NORMAL),
    Hypervisor(50, relaxed=True, pace=8),
    Hypervisor(1, postgres=True),
    Procrastinate(),
    PgQueuer(1),
    Hypervisor(10, postgres=True, pace=3),
    PgQueuer(10, pace=3),
    Hypervisor(25, postgres=True, pace=4),
)


class Figure(NamedTuple):
    """One measurement."""

    put: float
    drain: float
    duplicates: int
    losses: int
    error: str = ""


class Bench:
    """Measures systems in a folder with a crew; keeps every figure by (name, processes)."""

    def __init__(self, folder: Path, crew: Crew, server: Server | None, items: int) -> None:
        self._folder = folder
        self._crew = crew
        self._server = server
        self._items = items
        self.figures: dict[str, dict[int, list[Figure]]] = {}

    def measure(self, system: System, processes: int) -> None:
        items = max(int(self._items * system.pace), 50)
        where = self._place(system)
        try:
            system.create(where)
            put = self._crew.race(processes, Putting(system, where, items))
            if system.group == "postgres" and self._server is not None:
                self._server.calm("queue")
            drain = self._crew.race(processes, Draining(system, where))
        except CrewError as error:
            progress(str(error))
            self._note(system.name, processes, Figure(0, 0, 0, 0, str(error).splitlines()[-1]))
            return
        finally:
            shutil.rmtree(self._folder / "queue", ignore_errors=True)
        times = Counter(item for answer in drain.answers for item in answer)
        self._note(
            system.name,
            processes,
            Figure(
                items / put.seconds,
                items / drain.seconds,
                sum(times.values()) - len(times),
                items - len(times),
            ),
        )

    def measure_limits(self, processes: int) -> None:
        path = self._folder / "limit"
        commits = BareCommit(f"{path}.db", self._items)
        commits.create()
        for name, job in ((COMMIT, commits), (SYNC, BareSync(f"{path}.sync", self._items))):
            race = self._crew.race(processes, job)
            self._note(name, processes, Figure(0, sum(race.answers) / race.seconds, 0, 0))

    def _place(self, system: System) -> str:
        if system.group == "postgres":
            assert self._server is not None
            return self._server.fresh("queue")
        (self._folder / "queue").mkdir()
        return str(self._folder / "queue")

    def _note(self, name: str, processes: int, figure: Figure) -> None:
        self.figures.setdefault(name, {}).setdefault(processes, []).append(figure)
        progress(f"  {name:30} {processes} processes: {figure.drain:9,.0f}/s {figure.error}")


def main() -> int:
    args = _arguments()
    systems = [
        s for s in SYSTEMS if not args.only or any(n.lower() in s.name.lower() for n in args.only)
    ]
    with ExitStack() as stack:
        folder = stack.enter_context(scratch(args.dir))
        crew = stack.enter_context(Crew(args.processes))
        wanted = any(s.group == "postgres" for s in systems)
        server = stack.enter_context(postgres(folder)) if wanted else None
        if server and (server.setting("fsync"), server.setting("synchronous_commit")) != (
            "on",
            "on",
        ):
            raise SystemExit("PostgreSQL does not sync: its figures would mean nothing")
        bench = Bench(folder, crew, server, args.items)
        for number in range(args.rounds):
            progress(f"round {number + 1} of {args.rounds}")
            for processes in args.processes if number == 0 else [args.at]:
                bench.measure_limits(processes)
                for system in systems if number % 2 == 0 else reversed(systems):
                    bench.measure(system, processes)
    return _report(bench, systems, args)


def _report(bench: Bench, systems: list[System], args: argparse.Namespace) -> int:
    summary = _summary(bench.figures)
    verdicts = judge(BARS, summary, args.at)
    names = [name for name in (COMMIT, SYNC) if name in summary] + [s.name for s in systems]
    print(table(_head(args.processes), [_row(n, summary, args) for n in names]))
    print(
        f"\nput/s and ratios at {args.at} processes; medians of {args.rounds} rounds; "
        "ratios are taken in each round.\n"
    )
    print(table(("bar", "wanted", "measured", ""), [v.cells() for v in verdicts]))
    answer = {
        "items": args.items,
        "rounds": args.rounds,
        "systems": summary,
        "bars": [v._asdict() for v in verdicts],
    }
    print(f"\nwritten to {save(args.json, 'queue', answer)}")
    broken = [
        name
        for name, by_count in summary.items()
        for entry in by_count.values()
        if name.startswith("Hypervisor")
        and (entry["duplicates"] or entry["losses"] or entry["errors"])
    ]
    for name in sorted(set(broken)):
        print(f"{name} doubled or lost items", file=sys.stderr)
    return 1 if broken else 0


def _summary(figures: dict[str, dict[int, list[Figure]]]) -> dict[str, dict[int, dict[str, Any]]]:
    return {
        name: {
            processes: {
                "put_per_second": median([f.put for f in some]),
                "drain_per_second": median([f.drain for f in some]),
                "each": [round(f.drain, 1) for f in some],
                "duplicates": sum(f.duplicates for f in some),
                "losses": sum(f.losses for f in some),
                "errors": [f.error for f in some if f.error],
            }
            for processes, some in by_count.items()
        }
        for name, by_count in figures.items()
    }


def _head(processes: list[int]) -> list[str]:
    counts = [f"{p} proc/s" for p in processes]
    return [
        "system",
        "put/s",
        *counts,
        "×commit",
        "×Huey",
        "×litequeue",
        "×Procr.",
        "×PgQueuer",
        "twice",
        "lost",
    ]


def _row(
    name: str, summary: dict[str, dict[int, dict[str, Any]]], args: argparse.Namespace
) -> list[str]:
    by_count = summary[name]
    here = by_count.get(args.at, {})
    group = next((s.group for s in SYSTEMS if s.name == name), "durable")
    k1 = name.endswith("k=1")
    rivals = {
        "durable": (COMMIT, "Huey FULL", "litequeue FULL", "", ""),
        "relaxed": (COMMIT, "Huey NORMAL", "litequeue NORMAL", "", ""),
        "none": (COMMIT, "Huey NORMAL", "litequeue NORMAL", "", ""),
        "postgres": (COMMIT, "", "", "Procrastinate", "PgQueuer k=1" if k1 else "PgQueuer k=10"),
    }[group]

    def against(rival: str) -> str:
        found = ratio(summary, name, (rival,), args.at)
        return f"{found:.2f}" if found else ""

    return [
        name,
        f"{here['put_per_second']:,.0f}" if here.get("put_per_second") else "",
        *[f"{by_count[p]['drain_per_second']:,.0f}" for p in args.processes],
        *map(against, rivals),
        str(sum(entry["duplicates"] for entry in by_count.values())),
        str(sum(entry["losses"] for entry in by_count.values())),
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.queue", description=__doc__)
    parser.add_argument("--items", type=int, default=6000, help="items a measurement of k=1 takes")
    parser.add_argument(
        "--rounds", type=int, default=5, help="measurements at 4 processes; medians count"
    )
    parser.add_argument("--processes", default="1,2,4,8", help="process counts, comma separated")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="systems whose name has NAME"
    )
    parser.add_argument("--quick", action="store_true", help="one round, 1 and 4 processes")
    parser.add_argument("--dir", help="where to work; not a memory disk (bench/results)")
    parser.add_argument("--json", metavar="FILE", help="default: bench/results/queue.json")
    args = parser.parse_args()
    if args.quick:
        args.items, args.rounds, args.processes = min(args.items, 1000), 1, "1,4"
    args.processes = [int(text) for text in args.processes.split(",")]
    args.at = 4 if 4 in args.processes else args.processes[-1]
    return args


if __name__ == "__main__":
    sys.exit(main())
