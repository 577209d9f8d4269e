"""How loaded this host is: CPU, memory and memory stalls, and which part is our own.

Memory is measured wherever it can run out: on the host, in our cgroup (either
version) and those above it, and against the budget of all workers. The one with
the least free memory counts. What does not exist or cannot be read is left out.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from math import inf

from hypervisor.core.mounts import Mount, parse_mounts
from hypervisor.core.records import NamedTuple
from hypervisor.resources.process_table import (
    TICKS,
    Process,
    families,
    proportional,
    read_proc,
    read_process,
)
from hypervisor.resources.zones import DEFAULTS, Load

MIN_TICKS = 5  # per CPU; a shorter interval is too inaccurate
NEAR_BUDGET = 0.6
UNKNOWN = 1 << 52  # kilobytes: more than any host has
EXACT_EVERY = 10  # reads; measuring memory exactly takes 15 ms per gigabyte


class MemoryUse(NamedTuple):
    """Memory use and its limit, of a host, a cgroup or a budget."""

    used: int
    limit: int

    def room(self, ceiling: float) -> float:
        return ceiling * self.limit - self.used


class Times(NamedTuple):
    """CPU time of the machine in ticks."""

    busy: float
    total: float
    cpus: int
    disk: float = 0.0


class HostLoad:
    """`read` returns the load since the last call, at first since it was made.

    `memory_limit` is a budget for all workers and their processes.
    """

    def __init__(
        self,
        memory_limit: int | None = None,
        ceiling: float = DEFAULTS.ceiling,
        proc: str = "/proc",
    ) -> None:
        self._proc = Proc(proc)
        self._budget = Budget(memory_limit, proc) if memory_limit else None
        self._ceiling = ceiling
        self._times = self._proc.times()
        self._spent = self._proc.own_cpu()
        self._workers: dict[tuple[int, int], float] = {}
        self._cpu = self._own = self._disk = 0.0
        self._is_first = True

    def read(self, workers: Collection[int]) -> Load:
        trees = self._proc.trees(workers)
        self._measure_cpu(trees)
        places = [place for place in self._proc.places() if place.limit > 0]
        if self._budget:
            places.append(self._budget.place(trees))
        used, limit = min(
            places, key=lambda place: place.room(self._ceiling), default=MemoryUse(0, 0)
        )
        return Load(self._cpu, self._own, max(0, used), limit, self._proc.stall(), disk=self._disk)

    def _measure_cpu(self, trees: Mapping[int, Mapping[int, Process]]) -> None:
        times, last = self._proc.times(), self._times
        if times is None:
            return
        if last is not None and times.total - last.total < MIN_TICKS * times.cpus:
            return
        spent = self._proc.own_cpu()
        workers = {
            (pid, tree[pid].start): TICKS
            * sum(process.cpu + process.waited for process in tree.values())
            for pid, tree in trees.items()
        }
        if last is not None:
            passed = times.total - last.total
            # A new worker has not used more than one CPU.
            own = (
                spent
                - self._spent
                + sum(
                    max(0.0, cpu - self._workers.get(worker, max(0.0, cpu - passed / times.cpus)))
                    for worker, cpu in workers.items()
                )
            )
            self._cpu = min(1.0, max(0.0, (times.busy - last.busy) / passed))
            if self._is_first:
                self._cpu = min(self._cpu, max(0.0, self._proc.load_average() / times.cpus))
                self._is_first = False
            self._own = min(self._cpu, max(0.0, own / passed))
            self._disk = min(1.0, max(0.0, (times.disk - last.disk) / passed))
        self._times, self._spent, self._workers = times, spent, workers


class Budget:
    """The memory that all workers and their processes may use together."""

    def __init__(self, limit: int, proc: str) -> None:
        self._limit = limit
        self._proc = proc
        self._rss = self._exact = 0
        self._reads = 0

    def place(self, trees: Mapping[int, Mapping[int, Process]]) -> MemoryUse:
        processes = {pid: process for tree in trees.values() for pid, process in tree.items()}
        rss = sum(process.rss for process in processes.values())
        if rss < NEAR_BUDGET * self._limit:
            self._reads = 0
            return MemoryUse(rss, self._limit)
        if self._reads % EXACT_EVERY == 0:
            self._rss, self._exact = rss, proportional(processes, self._proc)
        self._reads += 1
        return MemoryUse(min(rss, self._estimate(rss)), self._limit)

    def _estimate(self, rss: int) -> int:
        """Memory added since the exact measurement may be unshared; freed memory was average."""
        if rss >= self._rss:
            return self._exact + rss - self._rss
        return self._exact * rss // self._rss


class Proc:
    """The files below /proc that show the load."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._groups = list(_groups(proc))

    def times(self) -> Times | None:
        """Time stolen by other virtual machines is neither busy nor idle."""
        stat = _read(f"{self._proc}/stat")
        fields = [_number(field) for field in stat.partition("\n")[0].split()[1:9]]
        ticks = [field for field in fields if field is not None]
        if len(ticks) < 4:
            return None
        user, nice, system, idle, iowait, irq, softirq, steal = (*ticks, 0, 0, 0, 0)[:8]
        busy = user + nice + system + irq + softirq
        return Times(busy, busy + idle + iowait + steal, max(1, stat.count("\ncpu")), iowait)

    def load_average(self) -> float:
        """The average of the last minute: the current load may be a peak."""
        with suppress(ValueError, IndexError):
            return float(_read(f"{self._proc}/loadavg").split()[0])
        return inf

    def own_cpu(self) -> float:
        own = read_process("self", self._proc)
        return own.cpu * TICKS if own else 0

    def trees(self, workers: Collection[int]) -> dict[int, dict[int, Process]]:
        return _trees(families(workers, self._proc), workers) if workers else {}

    def places(self) -> Iterator[MemoryUse]:
        meminfo = _read(f"{self._proc}/meminfo")
        total, available = _field(meminfo, "MemTotal:"), _field(meminfo, "MemAvailable:")
        if total is not None and available is not None:
            yield MemoryUse((total - available) * 1024, total * 1024)
        for group in self._groups:
            if place := group.place(most=(total or UNKNOWN) * 1024):
                yield place

    def stall(self) -> float | None:
        """The worst of host and cgroups: our attempts wait with everything else there."""
        own = (group.pressure for group in self._groups)
        paths = [f"{self._proc}/pressure/memory", *filter(None, own)]
        return max((stall for path in paths for stall in _stalls(_read(path))), default=None)


def total_memory(proc: str = "/proc") -> int:
    """The memory that this host, or a cgroup around us, has in bytes; 0 if unknown."""
    return min((place.limit for place in Proc(proc).places() if place.limit > 0), default=0)


def has_cpu_quota(proc: str = "/proc") -> bool:
    """Whether a cgroup limits our CPU time, so that idle CPUs say nothing."""
    return any(group.has_cpu_quota() for group in _groups(proc, "cpu"))


class Group(NamedTuple):
    """A cgroup that we are in, or one above it."""

    path: str
    unified: bool

    @property
    def pressure(self) -> str:
        return f"{self.path}/memory.pressure" if self.unified else ""

    def has_cpu_quota(self) -> bool:
        if self.unified:
            return _read(f"{self.path}/cpu.max").partition(" ")[0].isdecimal()
        return (_number(_read(f"{self.path}/cpu.cfs_quota_us")) or 0) > 0

    def place(self, most: int) -> MemoryUse | None:
        """None without a limit, or with one above `most`.

        Page cache can be reclaimed, so it does not count as used.
        """
        if self.unified:
            names, usage, prefix = ["memory.max", "memory.high"], "memory.current", ""
        else:
            names, usage, prefix = ["memory.limit_in_bytes"], "memory.usage_in_bytes", "total_"
        limits = [_number(_read(f"{self.path}/{name}")) for name in names]
        limit = min((value for value in limits if value is not None), default=None)
        if limit is None or limit > most:
            return None
        used = _number(_read(f"{self.path}/{usage}"))
        if used is None:
            return None
        stat = _read(f"{self.path}/memory.stat")
        kinds = ("inactive_file", "active_file", "slab_reclaimable")
        return MemoryUse(used - sum(_field(stat, f"{prefix}{kind}") or 0 for kind in kinds), limit)


def _trees(
    processes: Mapping[int, Process], workers: Collection[int]
) -> dict[int, dict[int, Process]]:
    """Each live worker with all its descendants; a process belongs to the nearest worker."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    trees = {}
    for worker in workers:
        tree, remaining = {}, [worker] if worker in processes else []
        while remaining:
            pid = remaining.pop()
            tree[pid] = processes[pid]
            remaining += [child for child in children.get(pid, ()) if child not in workers]
        if tree:
            trees[worker] = tree
    return trees


def _groups(proc: str, controller: str = "memory") -> Iterator[Group]:
    """The cgroups that may limit us, from our own up to the mounted root."""
    memberships = _read(f"{proc}/self/cgroup")
    for mount in parse_mounts(_read(f"{proc}/self/mountinfo")):
        unified = mount.kind == "cgroup2"
        if unified or (mount.kind == "cgroup" and controller in mount.options):
            own = _membership(memberships, unified, controller)
            if own is not None:
                yield from (Group(path, unified) for path in _upwards(own, mount))


def _membership(memberships: str, unified: bool, controller: str) -> str | None:
    for line in memberships.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (number == "0" and not controllers) if unified else controller in controllers.split(","):
            return path
    return None


def _upwards(own: str, mount: Mount) -> Iterator[str]:
    """The paths from our group up; in a container, the mount's root may be far below the host's."""
    root = mount.root.rstrip("/")
    below = own[len(root) :] if (own + "/").startswith(root + "/") else ""
    names = [name for name in below.split("/") if name not in ("", "..")]
    for length in range(len(names), -1, -1):
        yield "/".join((mount.point, *names[:length]))


def _stalls(pressure: str) -> Iterator[float]:
    for line in pressure.splitlines():
        if line.startswith("full "):
            with suppress(ValueError):
                yield float(line.partition("avg10=")[2].partition(" ")[0])


def _field(text: str, name: str) -> int | None:
    """The number after a name at the beginning of a line."""
    start = 0 if text.startswith(name) else text.find(f"\n{name}") + 1
    if not text.startswith(name, start):
        return None
    return _number(text[start + len(name) :].lstrip().partition("\n")[0].partition(" ")[0])


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _read(path: str) -> str:
    return read_proc(path).decode("utf-8", "replace")
