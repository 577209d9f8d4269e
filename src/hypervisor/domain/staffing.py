"""Who gets how many workers when not everybody can have all they want."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from hypervisor.domain.priority import PRIORITIES


class Demand(NamedTuple):
    """How many workers a batch could use; `rank` orders batches of the same priority."""

    batch: str
    priority: str
    rank: int
    workers: int


def staffed(demands: Sequence[Demand], total: int) -> dict[str, int]:
    """Workers by batch: the more urgent first; of equals each one, then the older first."""
    given: dict[str, int] = {}
    ordered = sorted(demands, key=lambda d: (PRIORITIES.index(d.priority), d.rank, d.batch))
    for _, group in groupby(ordered, key=lambda d: d.priority):
        equals = list(group)
        for fill in (False, True):
            for demand in equals:
                has = given.get(demand.batch, 0)
                more = min(demand.workers - has if fill else min(demand.workers, 1), total)
                given[demand.batch] = has + max(more, 0)
                total -= max(more, 0)
    return given
