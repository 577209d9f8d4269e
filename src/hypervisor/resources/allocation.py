"""How many workers each pool gets when there are not enough for all."""

from collections.abc import Collection, Sequence
from itertools import groupby

from hypervisor.core.records import NamedTuple
from hypervisor.queue.lane import PRIORITIES


class Pool(NamedTuple):
    """The workers of a batch, or of one agent in it."""

    batch: str
    agent: str = ""


class Demand(NamedTuple):
    """How many workers a pool could use; `rank` orders pools of the same priority."""

    pool: Pool
    priority: str
    rank: int
    workers: int


def assign_workers(demands: Sequence[Demand], total: int) -> dict[Pool, int]:
    """Workers by pool: the most urgent first; of the same priority one each, then the oldest."""
    assigned: dict[Pool, int] = {}
    ordered = sorted(demands, key=lambda d: (PRIORITIES.index(d.priority), d.rank, d.pool))
    for _, group in groupby(ordered, key=lambda d: d.priority):
        equals = list(group)
        for fill in (False, True):
            for demand in equals:
                has = assigned.get(demand.pool, 0)
                more = min(demand.workers - has if fill else min(demand.workers, 1), total)
                assigned[demand.pool] = has + max(more, 0)
                total -= max(more, 0)
    return assigned


def cap_demands(demands: Sequence[Demand], pools: Collection[Pool], limit: int) -> list[Demand]:
    """The same demands, but at most `limit` for these pools together."""
    assigned = assign_workers([demand for demand in demands if demand.pool in pools], limit)
    return [d._replace(workers=assigned.get(d.pool, d.workers)) for d in demands]
