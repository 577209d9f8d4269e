"""The lock file of the programs under test: complete, as `npm ci` wants it, and of no registry."""

from __future__ import annotations

import json
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
LOCKED = json.loads((PROGRAMS / "package-lock.json").read_text())["packages"]


def is_locked(parent: str, name: str) -> bool:
    """Whether there is an entry where Node would look: beside the parent, or further up."""
    inside = parent
    while True:
        if f"{inside}/node_modules/{name}".lstrip("/") in LOCKED:
            return True
        if not inside:
            return False
        inside = inside.rpartition("node_modules/")[0].rstrip("/")


def test_the_lock_file_has_what_package_json_names():
    wanted = json.loads((PROGRAMS / "package.json").read_text())["dependencies"]
    assert LOCKED[""]["dependencies"] == wanted
    assert {name: LOCKED[f"node_modules/{name}"]["version"] for name in wanted} == wanted


def test_every_dependency_is_locked_on_every_platform():
    missing = [
        f"{name} of {path}"
        for path, package in LOCKED.items()
        for kind in ("dependencies", "optionalDependencies")
        for name in package.get(kind, {})
        if not is_locked(path, name)
    ]
    assert missing == []


def test_no_registry_is_named():
    assert not [path for path, package in LOCKED.items() if "resolved" in package]
