"""Which host may work on a batch, and with how many workers.

Hosts do not ask each other: each computes the same shares from the hosts in the store. So two hosts
never start the same worker, except in the moment in which a host joins or leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.queue.host import ON, Host
from hypervisor.resources.limits import size_text
from hypervisor.runs.spec import AUTO, RunSpec

AGENT = "agent:"


def is_live(host: Host, now: int) -> bool:
    return host.state == "up" and (not host.lease_until or host.lease_until > now)


def can_serve(host: Host, batch: str, spec: RunSpec) -> bool:
    """Whether a host has what a batch needs, as far as the store knows."""
    return (
        {ON + label for label in spec.on} <= {*host.labels}
        and has_agent(host, spec)
        and batch not in (host.status.get("refused") or {})
    )


def has_agent(host: Host, spec: RunSpec) -> bool:
    """Whether one of the agents of a batch, if it has agents, is installed."""
    wanted = {spec.agent.name, *spec.agent.agents} - {AUTO, ""} if spec.agent else set()
    return not wanted or bool(wanted & {*(host.resources.get("agents") or ())})


class Need(NamedTuple):
    """How many workers a batch may have: in all (None: as many as hosts want), on one host if that
    is limited, and as many as there is work for."""

    total: int | None
    per_host: int | None
    work: int


def share_of(me: str, hosts: Sequence[Host], need: Need, spec: RunSpec, usual: int) -> int:
    """The number of workers of a batch on the host `me`, one of the `hosts` that can serve it;
    `usual` is what this host would have alone."""
    per_host = need.per_host
    if me not in {host.id for host in hosts} or len(hosts) == 1:
        alone = usual if need.total is None else need.total
        return alone if per_host is None else min(alone, per_host)
    ordered = sorted(hosts, key=lambda host: (host.name, host.id))
    if spec.pack:
        return _packed(me, ordered, need, spec)
    if need.total is None:
        return usual if per_host is None else min(usual, per_host)
    share = even_share(me, hosts, need.total)
    return share if per_host is None else min(share, per_host)


def even_share(me: str, hosts: Sequence[Host], total: int) -> int:
    """The part of `total` that is this host's, if all get the same; all of it if it is unknown."""
    ordered = [host.id for host in sorted(hosts, key=lambda host: (host.name, host.id))]
    if me not in ordered:
        return total
    return total // len(ordered) + (ordered.index(me) < total % len(ordered))


def _packed(me: str, ordered: Sequence[Host], need: Need, spec: RunSpec) -> int:
    """Fill one host after another."""
    left = need.work if need.total is None else min(need.total, need.work)
    for host in ordered:
        size = need.per_host or (5 if spec.agent else int(host.resources.get("cpus") or 1))
        taken = min(size, left)
        if host.id == me:
            return taken
        left -= taken
    return 0


def lacking_memory(spec: RunSpec, me: str, hosts: Sequence[Host]) -> str:
    """Why this host leaves a batch to one with more memory; "" if it need not."""
    need = spec.limits.memory or 0
    sizes = {host.id: int(host.resources.get("memory") or 0) for host in hosts}
    here = sizes.get(me, 0)
    if not here or need <= here or not any(size >= need for size in sizes.values()):
        return ""
    return f"has {size_text(here)} of memory, and attempts may need {size_text(need)}"


def refusal_text(batch: str, hosts: Sequence[Host], now: int) -> str:
    """Why no live host works on a batch; "" if one may."""
    live = [host for host in hosts if is_live(host, now)]
    reasons = [(host.name, (host.status.get("refused") or {}).get(batch)) for host in live]
    if not live or not all(why for _, why in reasons):
        return ""
    return f"host {reasons[0][0]} {reasons[0][1]}"


def no_host_text(ready: int, requires: Sequence[str], hosts: Sequence[Host], now: int) -> str:
    """Why no live host can claim tasks with these requirements; "" if one may. Other capabilities
    than labels and agents may come from the profile of an agent."""
    live = [host for host in hosts if is_live(host, now)]
    known = [name for name in requires if name.startswith((ON, AGENT))]
    offered = [_offered(host) for host in live]
    if not live or not known or any({*known} <= names for names in offered):
        return ""
    missing = [name for name in known if not any(name in names for names in offered)]
    shown = ", ".join(host.name for host in live[:5]) + (", …" if len(live) > 5 else "")
    verb = "needs" if ready == 1 else "need"
    what = " and ".join(_requirement(name) for name in missing or known)
    together = "" if missing else " together"
    return f"{pluralize(ready, 'task')} {verb} {what}, which no live host has{together} ({shown})"


def _offered(host: Host) -> set[str]:
    return {*host.labels, *(AGENT + name for name in host.resources.get("agents") or ())}


def _requirement(name: str) -> str:
    is_label = name.startswith(ON)
    return f"the {'label' if is_label else 'agent'} {name.partition(':')[2]}"
