"""requirements-dev.lock: every development tool is pinned, by name and version only."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LINES = (ROOT / "requirements-dev.lock").read_text().splitlines()
PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)")


def pins():
    found = (PIN.fullmatch(line) for line in LINES if not line.startswith("#"))
    return {canonicalize_name(pin[1]): pin[2] for pin in found if pin}


def test_it_has_names_and_versions_only():
    assert [x for x in LINES if not x.startswith("#") and not PIN.fullmatch(x)] == []
    assert len(pins()) > 50


NAMED = ("cluster", "dev", "release", "web")
PINNED = [*PROJECT["dependencies"], *(line for name in NAMED for line in EXTRAS[name])]


@pytest.mark.parametrize("line", PINNED)
def test_what_the_project_requires_is_pinned(line):
    requirement = Requirement(line)
    version = pins().get(canonicalize_name(requirement.name))
    assert version is not None, "run `make lock`"
    assert requirement.specifier.contains(version, prereleases=True), "run `make lock`"
