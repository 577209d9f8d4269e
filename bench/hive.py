"""make bench-hive: how long it takes to recall something among 100,000 findings, and to store one.

Texts are random words, frequent ones and rare ones as in a language, in a few branches. Half of
the queries look into one branch, half into all. A bar that is missed does not fail the run.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import accumulate
from statistics import median, quantiles
from typing import Any

from bench.support import postgres, progress, save, scratch, table, verdict

import hypervisor
from hypervisor.agents.prompt_findings import relevant_findings
from hypervisor.hive.finding import NewFinding, Query
from hypervisor.hive.sql import findings as hive
from hypervisor.queue.task import NewTask

BAR = 20.0  # milliseconds, median of recalls on SQLite
WORDS = [f"w{number:x}" for number in range(20_000)]
FREQUENT = list(accumulate(1 / (number + 5) for number in range(len(WORDS))))
BRANCHES = 5
TOPICS = ("sql", "xss", "auth", "")
AT_ONCE = 1_000
BEGUN = 1_800_000_000_000


def main() -> int:
    args = _arguments()
    figures = {}
    with ExitStack() as stack:
        folder = stack.enter_context(scratch(args.dir))
        places = {"SQLite": str(folder / "store.db")}
        if args.postgres:
            places["PostgreSQL"] = stack.enter_context(postgres(folder)).fresh("hive")
        for name, url in places.items():
            with hypervisor.open(url, relaxed=True) as hv:
                figures[name] = _measure(name, hv, args)
    return _report(figures, args)


def _measure(name: str, hv: Any, args: argparse.Namespace) -> dict[str, list[float]]:
    chance = random.Random(1)
    started = time.perf_counter()
    for done in range(0, args.findings, AT_ONCE):
        _fill(hv, [_finding(chance) for _ in range(min(AT_ONCE, args.findings - done))], done)
        progress(f"{name}: {done + AT_ONCE:,} findings, {time.perf_counter() - started:.0f} s")
    ids = hv.add([NewTask(_text(chance, 12), branch="b1") for _ in range(args.queries)]).ids
    tasks = [hv.store.task(id) for id in ids]
    queries = [_words(chance, chance.randint(1, 4)) for _ in range(args.queries)]
    wanted = [
        Query(words, (f"b{n % BRANCHES}",) if n % 2 else None) for n, words in enumerate(queries)
    ]
    new = [_finding(chance) for _ in range(args.queries)]
    return {
        "recall": _timed(lambda n: hv.store.recall(wanted[n], 10), args.queries),
        "what a prompt tells": _timed(
            lambda n: relevant_findings(hv.store, tasks[n]), args.queries
        ),
        "report": _timed(lambda n: hv.hive_report("b1"), 5),
        "remember": _timed(lambda n: hv.store.remember(new[n], "me"), args.queries),
    }


def _fill(hv: Any, findings: list[NewFinding], done: int) -> None:
    """Many in one transaction; otherwise as always."""
    ready = [hive.prepare(finding) for finding in findings]

    def work(session: Any) -> None:
        for number, each in enumerate(ready, done):
            hive.remember(session, each, f"agent{number % 7}", BEGUN + number)

    hv.store._write(work)


def _timed(call: Callable[[int], object], times: int) -> list[float]:
    taken = []
    for number in range(times):
        started = time.perf_counter()
        call(number)
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def _finding(chance: random.Random) -> NewFinding:
    branch = f"b{chance.randrange(BRANCHES)}"
    return NewFinding(_text(chance, chance.randint(8, 40)), branch, chance.choice(TOPICS))


def _text(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(WORDS, cum_weights=FREQUENT, k=count))


def _words(chance: random.Random, count: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chance.choices(WORDS, cum_weights=FREQUENT, k=count)))


def _report(figures: dict[str, dict[str, list[float]]], args: argparse.Namespace) -> int:
    cells = [
        (f"{name}: {what}", f"{median(taken):.1f}", f"{quantiles(taken, n=20)[-1]:.1f}")
        for name, each in figures.items()
        for what, taken in each.items()
    ]
    print(table((f"{args.findings:,} findings", "median ms", "95 % below"), cells))
    found = median(figures["SQLite"]["recall"])
    print()
    bar = ("recall on SQLite, median", f"≤ {BAR:.0f} ms", f"{found:.1f} ms", verdict(found <= BAR))
    print(table(("bar", "wanted", "measured", ""), [bar]))
    answer = {"findings": args.findings, "milliseconds": figures, "bars": [bar]}
    print(f"\nwritten to {save(args.json, 'hive', answer)}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.hive", description=__doc__)
    parser.add_argument("--findings", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--postgres", action="store_true", help="PostgreSQL as well")
    parser.add_argument("--dir", help="where to work (bench/results)")
    parser.add_argument("--json", metavar="FILE", help="default: bench/results/hive.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
