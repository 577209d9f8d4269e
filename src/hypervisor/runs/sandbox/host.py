"""Which walls this host can build, found by trying, and what is missing for the others."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from hypervisor.core.errors import SandboxUnavailable
from hypervisor.core.records import NamedTuple
from hypervisor.runs.sandbox import landlock
from hypervisor.runs.sandbox.bubblewrap import TRIAL
from hypervisor.runs.sandbox.container import ENGINES
from hypervisor.runs.sandbox.level import Level, SandboxSettings, Wall

PATIENCE = 20
INSTALL = "install bubblewrap (apt install bubblewrap, dnf install bubblewrap)"


class HostWalls(NamedTuple):
    bubblewrap: str  # the path of a program that works; "" if there is none …
    why_not: str  # … and why
    landlock: int  # its version; 0 without it
    can_confine: bool  # whether Landlock can do what a level promises

    def describe(self) -> str:
        parts = ["bubblewrap" if self.bubblewrap else f"no bubblewrap ({self.why_not})"]
        parts.append(f"Landlock {self.landlock}" if self.landlock else "no Landlock")
        return ", ".join(parts)


class Walls(NamedTuple):
    """What a level is built with, and its program."""

    wall: Wall
    program: str = ""


@cache
def host_walls() -> HostWalls:
    """Tried once per process."""
    program = shutil.which("bwrap") or ""
    why_not = _trouble(program) if program else "not installed"
    usable = landlock.is_usable()
    return HostWalls("" if why_not else program, why_not, landlock.version(), usable)


def walls_for(level: Level, settings: SandboxSettings, host: HostWalls | None = None) -> Walls:
    """SandboxUnavailable: this host cannot build that level; nothing weaker is used instead."""
    host = host or host_walls()
    if level == "container":
        return _container(settings)
    if host.bubblewrap:
        return Walls("bubblewrap", host.bubblewrap)
    if level == "files" and host.can_confine:
        return Walls("landlock")
    needs = "user, PID and network namespaces" if level == "network" else "namespaces or Landlock 6"
    found = f"bubblewrap: {host.why_not}"
    if level == "files":
        found += f"; Landlock: {f'version {host.landlock}' if host.landlock else 'not available'}"
    raise SandboxUnavailable(
        f"the sandbox level {level} needs {needs}, which this host does not offer ({found}). "
        f"{_fix(host)}, or use --sandbox none. Nothing was started."
    )


def levels_here(settings: SandboxSettings) -> dict[Level, str]:
    """What each level is built with here; "" if it cannot be."""
    found: dict[Level, str] = {}
    for level in ("files", "network", "container"):
        try:
            walls = walls_for(level, settings)
        except SandboxUnavailable:
            found[level] = ""
        else:
            found[level] = os.path.basename(walls.program) or walls.wall
    return found


def root_note() -> str:
    """What running as root means for a sandbox; "" if we do not."""
    if os.geteuid() != 0:
        return ""
    return (
        "as root: attempts lose all capabilities, but own every file of root, so they can read "
        "those outside of hidden folders, such as /etc/shadow; use an ordinary user"
    )


def _container(settings: SandboxSettings) -> Walls:
    names = (settings.engine,) if settings.engine else ENGINES
    program = next((path for name in names if (path := shutil.which(name))), "")
    if not settings.image:
        raise SandboxUnavailable(
            "the sandbox level container needs an image: set `image` in [sandbox] of config.toml. "
            "Nothing was started."
        )
    if not program:
        raise SandboxUnavailable(
            f"the sandbox level container needs {' or '.join(names)}, which is not installed. "
            "Nothing was started."
        )
    return Walls("container", program)


def _trouble(program: str) -> str:
    """Why bubblewrap does not work here; "" if it does."""
    try:
        ended = subprocess.run([program, *TRIAL], capture_output=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if ended.returncode == 0 else (lines or ["it failed"])[-1].removeprefix("bwrap: ")


def _fix(host: HostWalls) -> str:
    if host.why_not == "not installed":
        return INSTALL[0].upper() + INSTALL[1:]
    return (
        "Allow user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0 or an "
        "AppArmor profile for bwrap; in a container, its security options)"
    )
