"""Writes requirements-dev.lock: pinned versions of the extras `cluster`, `dev`, `release`, `web`.

`scripts/venv.sh` installs extras with it as a constraints file. Names and versions only: where
packages come from is configured in the user's pip.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-dev.lock"
OWN = "hypervisor-queue"


def resolved() -> list[str]:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["--report", "-", ".[cluster,dev,release,web]"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    packages = [package["metadata"] for package in json.loads(done.stdout)["install"]]
    pins = {package["name"].lower(): package["version"] for package in packages}
    return sorted(f"{name}=={version}" for name, version in pins.items() if name != OWN)


def main() -> None:
    head = f"# Written by `make lock` with Python {platform.python_version()}; do not edit.\n"
    LOCK.write_text(head + "\n".join(resolved()) + "\n")
    print(f"{LOCK.name} written")


if __name__ == "__main__":
    main()
