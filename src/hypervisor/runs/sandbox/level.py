"""Sandbox levels: what each promises, as values.

The table in docs/how-to/sandbox.md is made from PROMISES, and tests try each deed for real. What a
container refuses depends on its engine and image, so nothing is promised for it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

from hypervisor.core.records import NamedTuple

Level = Literal["none", "files", "network", "container"]
Wall = Literal["bubblewrap", "landlock", "container"]  # what a level is built with
LEVELS: tuple[Level, ...] = get_args(Level)


class Deed(NamedTuple):
    """What an attempt may try, and the walls that refuse it. The level network has the walls of
    bubblewrap, and one more."""

    text: str
    refused_by: tuple[str, ...]


BOTH = ("bubblewrap", "landlock")
PROMISES: Mapping[str, Deed] = MappingProxyType(
    {
        "home": Deed("read a file in your home, such as `~/.ssh/id_ed25519`", BOTH),
        "outside": Deed("write outside its folder", BOTH),
        "store": Deed("read the store", BOTH),
        "other": Deed("read the home of another attempt", BOTH),
        "socket": Deed("connect to the Docker socket or that of an ssh agent", BOTH),
        "signal": Deed("signal a process of another attempt", BOTH),
        "processes": Deed("see processes of other attempts", ("bubblewrap",)),
        "address": Deed("connect to an address that is not allowed", ("network",)),
    }
)


def refused(level: Level, wall: str) -> set[str]:
    """The deeds that a level refuses, as it is built here."""
    walls = {wall, "network"} if level == "network" else {wall} if level != "none" else set()
    return {name for name, deed in PROMISES.items() if not walls.isdisjoint(deed.refused_by)}


NO_FUNCTIONS = (
    "a sandbox works with commands and agents, not with --fn: one interpreter calls the function "
    "for many items; use --sandbox none"
)


class SandboxSettings(NamedTuple):
    """The table [sandbox] of config.toml."""

    level: Level = "none"
    allow: tuple[str, ...] = ()  # hosts, in addition to those of an agent's provider
    read: tuple[str, ...] = ()  # hidden paths that attempts may read
    image: str = ""
    engine: str = ""  # "": podman or docker


def chosen_level(batch: str, profile: str, settings: SandboxSettings) -> Level:
    """The level of an attempt: the batch decides, then the agent's profile, then config.toml."""
    level = batch or profile or settings.level
    return next(known for known in LEVELS if known == level)
