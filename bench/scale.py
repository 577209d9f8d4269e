"""make bench-scale: what many hosts ask of one PostgreSQL, measured and compared with the model.

1. Costs: CPU, log and disk of the server for adding, claiming and completing tasks, for renewing
   leases, and for what a supervisor reads per tick.
2. The simulation: the renewals of 1,000 hosts and the claims of 10,000 agents, at their real pace.
3. Hosts: sleep-bound tasks on 1, 2 and 4 simulated hosts, and claims alone, against Procrastinate.

A simulated host is a process with a thread and a connection for each of its workers.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from bench.crew import Crew
from bench.scale_costs import Meter, measure_costs, register
from bench.scale_hosts import claims_only, scale_hosts
from bench.scale_model import LEASE, RENEWALS_PER_LEASE, Costs, Fleet, Load, load
from bench.support import Server, postgres, save, scratch, table, verdict

FLEETS = (Fleet(100, 5, 5), Fleet(1_000, 20, 5), Fleet(10_000, 100, 5), Fleet(10_000, 1_000, 5))
SIMULATED = Fleet(10_000, 1_000, 5)
PACES = (1.0, 10.0)
FIGURES = ("renewals/s", "tasks/s", "cores", "log/s", "a renewal, p99", "a claim, p99")
MAX_DEVIATION = 0.5  # of the server's CPU from what the model says
BAR = 0.9  # of the throughput of one host, per host


# The simulation


class Simulating(NamedTuple):
    """A share of the renewals and turns of a fleet, at their real pace."""

    where: str
    fleet: Fleet
    seconds: float
    pace: float  # how many times as fast as in reality

    def ready(self, seat: int, of: int) -> tuple[Callable[[], Any], Callable[[], None]]:
        import hypervisor

        hv = hypervisor.open(self.where)
        renewals = self.fleet.hosts * RENEWALS_PER_LEASE / LEASE * self.pace / of
        return lambda: self._run(hv, seat, of, renewals), hv.close

    def _run(self, hv: Any, seat: int, of: int, renewals: float) -> dict[str, Any]:
        from hypervisor.queue.host import HostStatus
        from hypervisor.queue.sql import hosts as hosts_sql

        status = HostStatus("safe", 10, {"cpu": 0.3, "ram": 0.4, "message": "10 of 10 may run"})
        hosts = list(range(seat, self.fleet.hosts, of))
        tokens: list[str] = []
        times: dict[str, list[float]] = {"renew": [], "turn": []}

        def renew(number: int) -> None:
            host = hosts[number % len(hosts)]
            answer = hv.store.write_unsynced(hosts_sql.renew, f"host-{host}", 1, status)
            assert answer is not None, "a renewal was refused"

        def turn(number: int) -> None:
            if tokens:
                _, leases = hv.complete_and_claim([(tokens.pop(0), None)], f"w{seat}")
            else:
                leases = hv.claim(f"w{seat}")
            tokens.extend(lease.token for lease in leases)

        paces = {
            "renew": (renewals, renew),
            "turn": (self.fleet.tasks_per_second * self.pace / of, turn),
        }
        begin = time.monotonic()
        done = dict.fromkeys(paces, 0)
        while (now := time.monotonic() - begin) < self.seconds:
            name = min(paces, key=lambda each: (done[each] + 1) / paces[each][0])
            due = (done[name] + 1) / paces[name][0]
            if due > now:
                time.sleep(min(due - now, self.seconds - now) if due > now else 0)
                if due > self.seconds:
                    break
            start = time.monotonic()
            paces[name][1](done[name])
            times[name].append((time.monotonic() - start) * 1000)
            done[name] += 1
        return {"done": done, "times": times}


class Simulation(NamedTuple):
    renewals_per_second: float
    turns_per_second: float
    renew_p99: float
    turn_p99: float
    cores: float
    wal_per_second: float


def simulate(
    server: Server, data: Path, crew: Crew, args: argparse.Namespace, pace: float
) -> Simulation:
    import hypervisor

    where = server.fresh("simulated")
    with hypervisor.open(where) as hv:
        register(hv, SIMULATED.hosts)
        needed = int(SIMULATED.tasks_per_second * pace * args.seconds * 1.5) + 100
        hv.add([hypervisor.NewTask(f"task {number}") for number in range(needed)])
    server.calm("simulated")
    meter = Meter(server, data, "simulated")
    race = crew.race(args.processes, Simulating(where, SIMULATED, args.seconds, pace))
    cpu, wal, passed = meter.since()
    times = {
        name: [value for answer in race.answers for value in answer["times"][name]]
        for name in ("renew", "turn")
    }
    return Simulation(
        len(times["renew"]) / race.seconds,
        len(times["turn"]) / race.seconds,
        quantiles(times["renew"], n=100)[98],
        quantiles(times["turn"], n=100)[98],
        cpu / 1000 / passed,
        wal / passed,
    )


# The report


def main() -> int:
    args = _arguments()
    with ExitStack() as stack:
        folder = stack.enter_context(scratch(args.dir))
        crew = stack.enter_context(Crew([*args.hosts, args.processes]))
        server, data = stack.enter_context(postgres(folder)), folder / "pg"
        measured = measure_costs(server, data, args.items)
        simulated = {pace: simulate(server, data, crew, args, pace) for pace in PACES}
        sleeping = scale_hosts(server, crew, args)
        claims = claims_only(server, crew, args)
    _print_model(measured.costs)
    ok = _print_simulation(measured.costs, simulated)
    ok &= _print_hosts("sleep-bound tasks/s", sleeping, args.hosts, bar=True)
    _print_hosts("claims/s", claims, args.hosts)
    answer = {
        "costs": measured.costs._asdict(),
        "simulation": {pace: found._asdict() for pace, found in simulated.items()},
        "sleeping": sleeping,
        "claims": claims,
        "fleets": [{**f._asdict(), **load(f, measured.costs)._asdict()} for f in FLEETS],
    }
    print(f"\nwritten to {save(args.json, 'scale', answer)}")
    return 0 if ok else 1


def _print_model(costs: Costs) -> None:
    print(
        table(
            ("cost", "value"), [(name, f"{value:,.3f}") for name, value in costs._asdict().items()]
        )
    )
    rows = []
    for fleet in FLEETS:
        asked = load(fleet, costs)
        rows.append(
            (
                f"{fleet.agents:,} agents, {fleet.hosts:,} hosts",
                f"{asked.tasks_per_second:.1f}",
                f"{asked.tasks_per_day / 1e6:.2f} M",
                f"{asked.cores:.2f}",
                f"{asked.wal_per_second / 1e6:.2f} MB",
                f"{asked.disk_per_day / 1e9:.1f} GB",
                f"{asked.connections:,}",
                f"{asked.connection_memory / 1e9:.1f} GB",
            )
        )
    head = ("fleet", "tasks/s", "tasks/day", "cores", "log/s", "disk/day", "connections", "memory")
    print("\n" + table(head, rows))


def _print_simulation(costs: Costs, simulated: dict[float, Simulation]) -> bool:
    """Supervisors are not part of it, so neither are their ticks."""
    model = load(SIMULATED, costs._replace(tick_ms=0.0, add_ms=0.0, add_wal=0.0))
    head, rows = ["1,000 hosts, 10,000 agents"], [[name] for name in FIGURES]
    for pace, found in simulated.items():
        head += [f"model x{pace:g}", f"simulation x{pace:g}"]
        expected = (
            f"{model.renewals_per_second * pace:.0f}",
            f"{model.tasks_per_second * pace:.0f}",
            f"{model.cores * _reached(model, found):.3f}",
            f"{model.wal_per_second * _reached(model, found) / 1e3:.0f} KB",
            "",
            "",
        )
        measured = (
            f"{found.renewals_per_second:.0f}",
            f"{found.turns_per_second:.0f}",
            f"{found.cores:.3f}",
            f"{found.wal_per_second / 1e3:.0f} KB",
            f"{found.renew_p99:.1f} ms",
            f"{found.turn_p99:.1f} ms",
        )
        for row, *pair in zip(rows, expected, measured, strict=True):
            row.extend(pair)
    print("\n" + table(head, rows))
    kept_up = _reached(model, simulated[1.0]) > 0.95
    found = simulated[max(simulated)]
    close = abs(found.cores / (model.cores * _reached(model, found)) - 1) <= MAX_DEVIATION
    print(f"\nkept up: {verdict(kept_up)}; cores within {MAX_DEVIATION:.0%}: {verdict(close)}")
    return kept_up and close


def _reached(model: Load, found: Simulation) -> float:
    """How many times the real pace was reached: the model is compared with what was done."""
    return found.turns_per_second / model.tasks_per_second


def _print_hosts(
    what: str, figures: dict[str, dict[int, float]], hosts: list[int], bar: bool = False
) -> bool:
    head = (what, *(f"{count} hosts" for count in hosts), "per host")
    rows, ok = [], True
    for name, by_hosts in figures.items():
        share = by_hosts[hosts[-1]] / by_hosts[hosts[0]] / (hosts[-1] / hosts[0])
        rows.append((name, *(f"{by_hosts[count]:,.1f}" for count in hosts), f"{share:.2f}"))
        ok &= not (bar and name == "Hypervisor") or share >= BAR
    print("\n" + table(head, rows))
    return ok


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, default=1000, help="tasks per cost and claim race")
    parser.add_argument("--seconds", type=float, default=10, help="length of a simulation")
    parser.add_argument("--processes", type=int, default=4, help="of the simulation")
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--workers", type=int, default=15, help="of each simulated host")
    parser.add_argument("--turns", type=int, default=6, help="tasks per worker")
    parser.add_argument("--sleep", type=float, default=1.0, help="seconds per task")
    parser.add_argument("--dir", help="where to put the databases")
    parser.add_argument("--json", help="where to write the figures")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
