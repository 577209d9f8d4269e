"""Where the static files are. Those from npm are in the package; a checkout fetches them once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypervisor.core.errors import HypervisorError

STATIC = Path(__file__).resolve().parents[1] / "static"
LIBRARIES = STATIC / "libraries"
NAMES = ("htmx.js", "uPlot.iife.js", "uPlot.min.css")
SCRIPT = Path(__file__).resolve().parents[4] / "scripts" / "web_assets.py"


def are_present() -> bool:
    return all((LIBRARIES / name).is_file() for name in NAMES)


def fetch() -> None:
    """Only a checkout lacks them; the package has them."""
    if not SCRIPT.is_file():
        raise HypervisorError(f"{LIBRARIES} is incomplete. Install Hypervisor again.")
    done = subprocess.run(
        [sys.executable, "-I", os.fspath(SCRIPT)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        reason = next(iter(done.stdout.strip().splitlines()[-1:]), "")
        raise HypervisorError(f"cannot fetch the scripts of the dashboard from npm: {reason}")
