"""The state of a store and of this host as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypervisor.agents.rate_limits import cooldowns
from hypervisor.core.records import NamedTuple
from hypervisor.monitoring.metrics import ZONES
from hypervisor.queue.context import Context
from hypervisor.queue.counts import keep_short
from hypervisor.queue.lifecycle import STATES
from hypervisor.queue.sql import agent_sessions, counts, queries

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_SERIES = 200  # task types; the rest is summed up, so that a store cannot flood a server


Values = Mapping[tuple[tuple[str, str], ...], float]


class Metric(NamedTuple):
    """One metric with its values by labels."""

    name: str
    kind: str
    help: str
    values: Values


def prometheus_text(hv: Context, now: int | None = None) -> str:
    """Write the counts, load, rate limits and costs in the text format of Prometheus."""
    return "".join(map(_text, _metrics(hv, hv.at(now))))


def _metrics(hv: Context, now: int) -> Iterable[Metric]:
    keep_short(hv)
    yield Metric(
        "hypervisor_tasks",
        "gauge",
        "Tasks by type and state.",
        _tasks(hv.store.read(counts.counts)),
    )
    yield Metric(
        "hypervisor_events_total",
        "counter",
        "Events in the log.",
        {(): queries.end_of_log(hv.store)},
    )
    host = hv.launcher.read_status() or {}
    for name, text in {
        "cpu": "Share of the CPU in use, of 1.",
        "own": "Share of the CPU used by attempts, of 1.",
        "ram": "Share of the memory in use, of 1.",
        "workers": "Workers on this host.",
        "target": "Workers that this host may have.",
    }.items():
        if name in host:
            yield Metric(f"hypervisor_host_{name}", "gauge", text, {(): float(host[name])})
    zones: Values = {(("zone", zone),): float(zone == host.get("zone")) for zone in ZONES}
    yield Metric("hypervisor_host_zone", "gauge", "1 for the zone of this host.", zones)
    is_up = float(hv.launcher.supervisor() is not None)
    yield Metric("hypervisor_supervisor_up", "gauge", "1 if a supervisor runs here.", {(): is_up})
    limited: Values = {
        (("account", limit.account), ("provider", limit.provider)): limit.until / 1000
        for limit in cooldowns(hv, now)
    }
    yield Metric(
        "hypervisor_rate_limited_until_seconds", "gauge", "When a rate limit ends.", limited
    )
    spent = hv.store.read(agent_sessions.spent)
    yield Metric("hypervisor_agent_tokens_total", "counter", "Tokens used.", {(): spent.tokens})
    cost: Values = {(): spent.cost_micros / 1e6}
    yield Metric("hypervisor_agent_cost_dollars_total", "counter", "Cost of agents.", cost)


def _tasks(counted: Mapping[counts.Key, int]) -> Values:
    by_type: dict[str, dict[str, int]] = {}
    for (_, kind, state), tasks in counted.items():
        states = by_type.setdefault(kind, dict.fromkeys(STATES, 0))
        states[state] += tasks
    largest = sorted(by_type, key=lambda kind: -sum(by_type[kind].values()))
    for kind in largest[MAX_SERIES:]:
        other = by_type.setdefault("(other)", dict.fromkeys(STATES, 0))
        for state, tasks in by_type.pop(kind).items():
            other[state] += tasks
    return {
        (("type", kind), ("state", state)): float(tasks)
        for kind, states in sorted(by_type.items())
        for state, tasks in states.items()
    }


def _text(metric: Metric) -> str:
    lines = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
    for labels, value in metric.values.items():
        named = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
        lines.append(f"{metric.name}{'{' + named + '}' if named else ''} {value:.15g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
