"""The host and the versions that a report of the self-test is about."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import hypervisor


def host_facts(folder: Path, where: str) -> dict[str, str]:
    with hypervisor.open(where) as hv:
        database = str(hv.store.facts()["database"])
    return {
        "Hypervisor": hypervisor.__version__,
        "database": database,
        "Python": platform.python_version(),
        "git": _git(),
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "processors": str(os.cpu_count()),
        "memory": _memory(),
        "file system": _file_system(folder),
    }


def _git() -> str:
    try:
        done = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return "not installed"
    return done.stdout.strip().removeprefix("git version ") or "not installed"


def _memory() -> str:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{size / (1 << 30):.1f} GB"


def _file_system(folder: Path) -> str:
    """The kind of file system that the folder is on."""
    best, kind = "", "unknown"
    real = os.path.realpath(folder)
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return kind
    for line in lines:
        _, mount, found, *_ = line.split()
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind
