"""The four zones of host load, and how many workers each allows.

Our own attempts do not count as load: neither their CPU, because they run niced, nor the memory
they were admitted for. An emergency counts all memory.

A zone is entered at once and left slowly: the load must have been lower by a margin for some time,
so that the zone does not flap near a threshold.
"""

from typing import Final, Literal

from hypervisor.core.records import NamedTuple

Zone = Literal["safe", "warning", "danger", "emergency"]
SAFE: Final = "safe"
WARNING: Final = "warning"
DANGER: Final = "danger"
EMERGENCY: Final = "emergency"
ZONES: tuple[Zone, ...] = (SAFE, WARNING, DANGER, EMERGENCY)


class Thresholds(NamedTuple):
    """Shares of the host at which a zone is entered, 1 for never; `stall` is in percent."""

    cpu_warning: float = 0.60
    cpu_danger: float = 0.80
    ram_warning: float = 0.70
    ram_danger: float = 0.85
    ram_emergency: float = 0.95
    stall: float = 20.0
    ceiling: float = 0.90  # how much memory may be planned for
    margin: float = 0.05
    hold_ms: int = 3000


DEFAULTS = Thresholds()


class Load(NamedTuple):
    """CPU as shares of the whole machine, `own` being our workers' part; memory in bytes.

    `stall` is the percentage of time in which everything waited for memory, None if unknown.
    `planned` is the part of the used memory that our attempts were admitted for, `disk` the share
    of CPU time in which processes waited for a disk.
    """

    cpu: float
    own: float
    memory_used: int
    memory_limit: int
    stall: float | None = None
    planned: int = 0
    disk: float = 0.0

    @property
    def ram(self) -> float:
        return self._share(self.memory_used)

    @property
    def unplanned_ram(self) -> float:
        return self._share(max(0, self.memory_used - self.planned))

    @property
    def foreign_cpu(self) -> float:
        return max(0.0, self.cpu - self.own)

    def _share(self, amount: int) -> float:
        return amount / self.memory_limit if self.memory_limit > 0 else 0.0


class ZoneState(NamedTuple):
    """The zone of a host, and what is needed to leave it.

    `calm` has for each zone but the last since when the load, with the margin, has been no higher
    than that zone.
    """

    zone: Zone = SAFE
    since: int = 0
    calm: tuple[int | None, ...] = (None, None, None)


def zone_for(load: Load, thresholds: Thresholds, margin: float = 0.0) -> Zone:
    """The zone for this load alone, regardless of earlier ones."""
    cpu = load.foreign_cpu + margin
    ram = load.unplanned_ram + margin
    stalls = load.stall is not None and load.stall + 100 * margin > thresholds.stall
    if stalls or load.ram + margin > thresholds.ram_emergency:
        return EMERGENCY
    if cpu > thresholds.cpu_danger or ram > thresholds.ram_danger:
        return DANGER
    if _reaches(cpu, thresholds.cpu_warning) or _reaches(ram, thresholds.ram_warning):
        return WARNING
    return SAFE


def _reaches(share: float, threshold: float) -> bool:
    return threshold < 1 and share >= threshold


def next_zone(state: ZoneState, load: Load, thresholds: Thresholds, now: int) -> ZoneState:
    """The zone after this load: up at once, down after a calm period."""
    least = ZONES.index(zone_for(load, thresholds))
    with_margin = ZONES.index(zone_for(load, thresholds, thresholds.margin))
    calm = tuple(
        None if with_margin > level else now if began is None else min(began, now)
        for level, began in enumerate(state.calm)
    )
    calm_enough = (began is not None and now - began >= thresholds.hold_ms for began in calm)
    lowest = next((level for level, is_enough in enumerate(calm_enough) if is_enough), len(calm))
    zone = ZONES[max(least, min(ZONES.index(state.zone), lowest))]
    return ZoneState(zone, state.since if zone == state.zone else now, calm)


def allowed(zone: Zone, limit: int) -> int:
    """How many of `limit` workers may run in that zone; at least one, so that work continues."""
    if zone == SAFE:
        return limit
    return min(limit, max(1, limit // 2) if zone == WARNING else 1)
