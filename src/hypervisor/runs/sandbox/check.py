"""Checks before a run that its sandbox can be built on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput
from hypervisor.runs.sandbox.level import NO_FUNCTIONS, Level, chosen_level

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.runs.spec import RunSpec


def levels_of(hv: Context, spec: RunSpec) -> dict[str, Level]:
    """The level of each agent of a batch, by name; of its command by "". Without "none"."""
    settings = hv.settings.sandbox
    names = dict.fromkeys((spec.agent.name, *spec.agent.agents)) if spec.agent else {"": None}
    profiles = hv.agent_settings.profiles if spec.agent else {}
    levels = {
        name: chosen_level(
            spec.sandbox, profiles[name].sandbox if name in profiles else "", settings
        )
        for name in names
    }
    return {name: level for name, level in levels.items() if level != "none"}


def check_sandbox(hv: Context, spec: RunSpec) -> None:
    """SandboxUnavailable, InvalidInput: attempts could not start. With a store that other hosts
    share, each host finds out for itself, and starts nothing without the sandbox either."""
    levels = levels_of(hv, spec)
    if levels and spec.function:
        raise InvalidInput(f"{NO_FUNCTIONS}. Nothing was started.")
    if not levels or "://" in hv.store.where:
        return
    from hypervisor.runs.sandbox.host import walls_for

    for level in set(levels.values()):
        walls_for(level, hv.settings.sandbox)


def described(hv: Context, spec: RunSpec, agent: str = "") -> str:
    """The sandbox of a run, in words; "" if it has none."""
    level = levels_of(hv, spec).get(agent)
    if level is None:
        return ""
    from hypervisor.runs.sandbox.host import root_note, walls_for

    walls = walls_for(level, hv.settings.sandbox)
    note = root_note()
    return f"{level}, built with {walls.wall}" + (f" ({note})" if note else "")
