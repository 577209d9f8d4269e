"""Who gets how many workers when not everybody can have all they want."""

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import NamedTuple

from hypervisor.queue.pool import Pool
from hypervisor.queue.priority import PRIORITIES


class Demand(NamedTuple):
    """How many workers a pool could use; `rank` orders pools of the same priority."""

    pool: Pool
    priority: str
    rank: int
    workers: int


def assign_workers(demands: Sequence[Demand], total: int) -> dict[Pool, int]:
    """Workers by pool: the more urgent first; of equals each one, then the older first."""
    given: dict[Pool, int] = {}
    ordered = sorted(demands, key=lambda d: (PRIORITIES.index(d.priority), d.rank, d.pool))
    for _, group in groupby(ordered, key=lambda d: d.priority):
        equals = list(group)
        for fill in (False, True):
            for demand in equals:
                has = given.get(demand.pool, 0)
                more = min(demand.workers - has if fill else min(demand.workers, 1), total)
                given[demand.pool] = has + max(more, 0)
                total -= max(more, 0)
    return given


def cap_demands(demands: Sequence[Demand], together: Collection[Pool], most: int) -> list[Demand]:
    """The same demands, but these pools ask for no more than `most` in all."""
    given = assign_workers([demand for demand in demands if demand.pool in together], most)
    return [each._replace(workers=given.get(each.pool, each.workers)) for each in demands]
