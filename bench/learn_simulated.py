"""python -m bench.learn_simulated: the learner in worlds whose truth is known, by many seeds.

Simulated time, durations that vary by a fifth, at most eight at once, nothing known at first.
`lost` is the time of sixty attempts over that of the best fixed number, found by trying all
with the same tasks; `after 20` the pace of the forty after, as a share of the best; `answer`
how often the number that it ends with does at least 85 % of the best (and is 1 for a lock).
Worlds that change do so after 60 of 120 attempts: `lost` is over all, `after 20` from the
twentieth after the change. Last: how often the intervals of 90 % hold the truth.
"""

from __future__ import annotations

import argparse
import random
import sys
from math import exp
from multiprocessing import Pool
from statistics import mean
from typing import NamedTuple

from bench.support import save, table, verdict
from tests.support.workloads import WORLDS, adaptive, best_fixed, efficiency, simulated

from hypervisor.domain.scaling import Evidence, believed, followed, grid

TASKS = 60
KNOWN = 20
CHANGES = ("sleep > lock", "lock > sleep", "sleep > cpu", "cpu > sleep", "memory > sleep")
LOST, PACE = 0.25, 0.85


class Found(NamedTuple):
    lost: float
    pace: float
    good: bool


def one(case: tuple[str, int]) -> Found:
    name, seed = case
    before, _, after = name.partition(" > ")
    world, later = WORLDS[before], WORLDS[after] if after else None
    tasks, since = (2 * TASKS, TASKS) if after else (TASKS, 0)
    run = simulated(world, tasks, adaptive(), seed, later=later)
    best = best_fixed(world, tasks, seed, later, since)
    took = run.seconds - run.ends[since + KNOWN - 1]
    answer = run.best[-1]
    good = answer == 1 if "lock" in (after or before) else efficiency(later or world, answer) > PACE
    lost = run.seconds / best_fixed(world, tasks, seed, later) - 1
    return Found(lost, best * (TASKS - KNOWN) / TASKS / took, good)


def coverage(count: int) -> float:
    """Worlds drawn from what is thought possible, numbers of workers as they come."""
    rnd, held, total = random.Random(7), 0, 0
    weights = [exp(point.log_prior) for point in grid()]
    for index, truth in enumerate(rnd.choices(grid(), weights, k=count)):
        known = Evidence()
        for n in rnd.choices((1, 2, 3, 4, 6, 8), k=4):
            for _ in range(n + 4 + index % 7):
                known = followed(known, n, 5 * truth.ratio(n) * rnd.lognormvariate(0, 0.2))
        belief = believed(known)
        for n in (2, 4, 8):
            low, high = belief.throughput(n)[1:]
            held += low - 1e-9 <= n / truth.ratio(n) <= high + 1e-9
            total += 1
    return held / total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("worlds", nargs="*", default=[*WORLDS, *CHANGES])
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--processes", type=int, help="one for each core")
    parser.add_argument("--json", help="where to write the figures")
    args = parser.parse_args()
    rows, kept, all_good = [], {}, True
    with Pool(args.processes) as pool:
        for name in args.worlds:
            found = pool.map(one, [(name, seed) for seed in range(args.seeds)])
            lost, pace = sorted(f.lost for f in found), sorted(f.pace for f in found)
            ninth = -(-len(found) // 10)  # one of ten is worse
            right = sum(f.good for f in found)
            good = lost[-ninth] < LOST and pace[ninth - 1] > PACE
            all_good &= good or name in CHANGES
            cells = [mean(lost), lost[-ninth], lost[-1], mean(pace), pace[ninth - 1], pace[0]]
            rows.append((name, *(f"{100 * c:.0f}" for c in cells), f"{right}/{len(found)}",
                         "" if name in CHANGES else verdict(good)))  # fmt: skip
            kept[name] = {"lost": lost, "pace": pace, "right": right, "seeds": args.seeds}
    print(table(("world", "lost %", "9 of 10", "most", "after 20 %", "9 of 10", "least", "answer",
                 ""), rows))  # fmt: skip
    share = coverage(400)
    print(f"\nintervals of 90 % hold the truth in {100 * share:.0f} %")
    save(args.json, "learn-simulated", {"worlds": kept, "coverage": share})
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
