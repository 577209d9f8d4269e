"""make bench-flat: what a claim costs with a thousand and with millions of tasks in the store.

Each figure of a big store is taken in turns with one of a store of 1,000 tasks,
so that the ratio holds on a noisy machine. Commits do not wait for the disk
here: a sync of constant length would only hide what grows.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.fill import Plan, check, fill_postgres, fill_sqlite
from bench.support import Server, postgres, progress, save, scratch, table, verdict

import hypervisor
from hypervisor.core.ids import ENTROPY_BITS, EPOCH

SMALL = 1_000
WANTED = 300  # youngest tasks of each kind that a filter looks for
BAR = 1.5
LANES_BAR = 2.0
LANES = {False: (1, 10, 100, 1_000), True: (1, 1_000)}
IN_A_ROW = 50  # claims before they are given back
HOUR = 3_600_000

# The tasks in front require a capability: a worker without it must skip them.
ASKED: dict[str, dict[str, Any]] = {
    "unfiltered": {"capabilities": ["bulk", "gpu"]},
    "batch": {"capabilities": ["bulk"], "batch": "wanted"},
    "type": {"capabilities": ["bulk"], "types": ["rare"]},
    "capability": {"capabilities": ["gpu"]},
}


class Store(NamedTuple):
    """Where it is, how it is filled, and the youngest tasks' age."""

    url: str
    fill: Callable[[str, list[Plan], int], None]
    born: int

    def plan(self, kind: str, count: int, hours: int, needs: str = "") -> Plan:
        """Tasks older than all wanted ones by so many hours."""
        first = (self.born - EPOCH - hours * HOUR) << ENTROPY_BITS
        return Plan(kind, count, first, requires=("bulk",), needs=needs)

    def add(self, *plans: Plan) -> None:
        for plan in plans:
            self.fill(self.url, [plan], self.born)


class Step(NamedTuple):
    name: str
    plans: Callable[[Store, str], list[Plan]]


def steps(most: int) -> list[Step]:
    return [
        Step(f"{most // 10:,} waiting", lambda s, held: [s.plan("active", most // 10 - SMALL, 2)]),
        Step(f"{most:,} waiting", lambda s, held: [s.plan("active", most - most // 10, 3)]),
        Step(f"+ {most:,} finished", lambda s, held: [s.plan("done", most, 4)]),
        Step(f"+ {most:,} dependency-blocked", lambda s, held: [s.plan("blocked", most, 5, held)]),
        Step(f"+ {most:,} delayed", lambda s, held: [s.plan("delayed", most, 6)]),
    ]


def prepare(store: Store) -> str:
    """The wanted tasks through the product, 1,000 older ones in front. Returns a held task."""
    task = hypervisor.NewTask
    with hypervisor.open(store.url, relaxed=True) as hv:
        hv.add([task("wanted", requires=("gpu",)) for _ in range(WANTED)])
        hv.add([task("wanted", type="rare") for _ in range(WANTED)])
        hv.add([task("wanted") for _ in range(WANTED)], batch="wanted")
        held = hv.add([task("held", inbox=True)]).ids[0]
    store.add(store.plan("active", SMALL, 1))
    return held


def costs(hv: Any, asked: dict[str, Any], samples: int) -> Iterator[list[float]]:
    """Microseconds of single claims, in runs; what was claimed is given back after each."""
    for _ in range(max(samples // IN_A_ROW, 1)):
        taken, micros = [], []
        for _ in range(IN_A_ROW):
            start = time.perf_counter()
            taken += hv.claim("bench", **asked)
            micros.append((time.perf_counter() - start) * 1e6)
        for lease in taken:
            hv.release(lease.token)
        if len(taken) != IN_A_ROW:
            raise SystemExit(f"claimed {len(taken)} of {IN_A_ROW}: the filter found too little")
        yield micros


def compare(small: Any, big: Any, samples: int) -> dict[str, tuple[float, float]]:
    """For each filter the median claim on the small and on the big store, taken in turns."""
    answer = {}
    for name, asked in ASKED.items():
        pairs = list(zip(costs(small, asked, samples), costs(big, asked, samples), strict=True))
        ours, theirs = (
            median([m for run in runs for m in run]) for runs in zip(*pairs, strict=True)
        )
        answer[name] = (ours, theirs)
    return answer


def run(database: str, small: Store, big: Store, most: int, samples: int) -> list[dict[str, Any]]:
    prepare(small)
    held = prepare(big)
    figures = []
    for step in [Step(f"{SMALL:,} waiting", lambda s, held: []), *steps(most)]:
        progress(f"{database}: {step.name}")
        big.add(*step.plans(big, held))
        with (
            hypervisor.open(small.url, relaxed=True) as one,
            hypervisor.open(big.url, relaxed=True) as two,
        ):
            compare(one, two, IN_A_ROW)  # warm both up
            for asked, (here, there) in compare(one, two, samples).items():
                figures.append(
                    {
                        "database": database,
                        "store": step.name,
                        "asked": asked,
                        "small_us": here,
                        "us": there,
                        "ratio": there / here,
                    }
                )
    return figures


def turns(hv: Any) -> list[float]:
    """Microseconds of single turns: one task completed, the next one claimed."""
    micros = []
    leases = hv.claim("bench")
    for _ in range(IN_A_ROW):
        start = time.perf_counter()
        leases = hv.complete_and_claim([(leases[0].token, None)], "bench").leases
        micros.append((time.perf_counter() - start) * 1e6)
    hv.release(leases[0].token)
    return micros


def lanes(
    database: str, url: Callable[[str], str], samples: int, mixed: bool
) -> list[dict[str, Any]]:
    """What claims cost with tasks in many lanes (here: types), in turns with one lane. Mixed: every
    second lane is for others."""
    progress(f"{database}: lanes{', half of them for others' if mixed else ''}")
    counts = LANES[mixed]
    rounds = max(samples // IN_A_ROW, 1)
    with ExitStack() as stack:
        stores = {}
        for count in counts:
            at = url(f"lanes{count}{'mixed' if mixed else ''}")
            stores[count] = stack.enter_context(hypervisor.open(at, relaxed=True))
            tasks = max(2_000, (rounds + 2) * IN_A_ROW * 2)
            stores[count].add([_typed(n % count, mixed) for n in range(tasks)])
        figures = []
        for asked in ("claim", "turn"):
            micros: dict[int, list[float]] = {count: [] for count in counts}
            for number in range(rounds + 1):
                for count, hv in stores.items():
                    some = next(costs(hv, {}, 1)) if asked == "claim" else turns(hv)
                    micros[count] += some if number else []  # the first warms up
            one = median(micros[1])
            figures += [
                {
                    "database": database,
                    "lanes": count,
                    "mixed": mixed,
                    "asked": asked,
                    "us": median(found),
                    "ratio": median(found) / one,
                }
                for count, found in micros.items()
            ]
    return figures


def _typed(lane: int, mixed: bool) -> Any:
    return hypervisor.NewTask("x", type=f"t{lane}", requires=("gpu",) if mixed and lane % 2 else ())


def drained(database: str, store: Store, tasks: int) -> dict[str, Any]:
    """What a turn costs at the beginning of a long drain and at its end."""
    progress(f"{database}: {tasks:,} drained")
    with hypervisor.open(store.url, relaxed=True) as hv:
        store.add(store.plan("active", tasks, 1))
        leases, micros = hv.claim("bench", capabilities=["bulk"]), []
        while leases:
            start = time.perf_counter()
            ended = [(leases[0].token, None)]
            leases = hv.complete_and_claim(ended, "bench", capabilities=["bulk"]).leases
            micros.append((time.perf_counter() - start) * 1e6)
    if len(micros) != tasks:
        raise SystemExit(f"drained {len(micros)} of {tasks}")
    first, last = median(micros[: tasks // 10]), median(micros[-tasks // 10 :])
    return {
        "database": database,
        "store": f"the last of {tasks:,} drained",
        "asked": "turn",
        "small_us": first,
        "us": last,
        "ratio": last / first,
    }


@contextmanager
def stores(folder: Path, server: Server | None) -> Iterator[tuple[Store, Store]]:
    born = time.time_ns() // 1_000_000
    if server:
        yield (
            Store(server.fresh("small"), fill_postgres, born),
            Store(server.fresh("big"), fill_postgres, born),
        )
    else:
        yield (
            Store(str(folder / "small.db"), fill_sqlite, born),
            Store(str(folder / "big.db"), fill_sqlite, born),
        )


def main() -> int:
    args = _arguments()
    figures: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = stack.enter_context(scratch(args.dir))
        check(str(folder))
        if args.most:
            small, big = stack.enter_context(stores(folder, None))
            figures += run("SQLite", small, big, args.most, args.samples)
            figures.append(
                drained("SQLite", small._replace(url=f"{folder}/drained.db"), args.drain)
            )
        many = [
            figure
            for mixed in LANES
            for figure in lanes("SQLite", lambda n: f"{folder}/{n}.db", args.samples, mixed)
        ]
        if args.postgres_most:
            server = stack.enter_context(postgres(folder))
            small, big = stack.enter_context(stores(folder, server))
            figures += run("PostgreSQL", small, big, args.postgres_most, args.samples)
            fresh = small._replace(url=server.fresh("drained"))
            figures.append(drained("PostgreSQL", fresh, args.drain))
            for mixed in LANES:
                many += lanes("PostgreSQL", server.fresh, args.samples, mixed)
    _report(figures, many, args)
    return 0


def _report(
    figures: list[dict[str, Any]], many: list[dict[str, Any]], args: argparse.Namespace
) -> None:
    head = ("store", "claim", "µs", f"µs at {SMALL:,} or first", "ratio", f"bar {BAR}×")
    cells = [
        (
            f"{f['database']} {f['store']}",
            f["asked"],
            f"{f['us']:.0f}",
            f"{f['small_us']:.0f}",
            f"{f['ratio']:.2f}",
            verdict(f["ratio"] < BAR),
        )
        for f in figures
    ]
    print(table(head, cells))
    print()
    head = ("lanes with tasks", "", "µs", "ratio to 1 lane", f"bar {LANES_BAR:.0f}×")
    cells = [
        (
            f"{f['database']} {f['lanes']:,}{', half for others' if f['mixed'] else ''}",
            f["asked"],
            f"{f['us']:.0f}",
            f"{f['ratio']:.2f}",
            "" if f["mixed"] else verdict(f["ratio"] <= LANES_BAR),
        )
        for f in many
    ]
    print(table(head, cells))
    answer = {"bar": BAR, "samples": args.samples, "claims": figures, "lanes": many}
    print(f"\nwritten to {save(args.json, 'flat', answer)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.flat", description=__doc__)
    parser.add_argument("--most", type=int, default=1_000_000, help="tasks of each kind, SQLite")
    parser.add_argument("--postgres-most", type=int, default=200_000, help="the same, PostgreSQL")
    parser.add_argument("--drain", type=int, default=50_000, help="tasks that are drained")
    parser.add_argument("--samples", type=int, default=400, help="claims of each figure")
    parser.add_argument("--dir", help="where to work (bench/results)")
    parser.add_argument("--json", metavar="FILE", help="default: bench/results/flat.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
