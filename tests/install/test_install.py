"""The package as people get it: built, installed into an empty home, used, uninstalled."""

from __future__ import annotations

import json
import subprocess
import sys
from email.parser import HeaderParser
from zipfile import ZipFile

import pytest

import hypervisor
from tests.install.conftest import PATIENCE, PYTHON, ROOT, TOOLS, Home

pytestmark = pytest.mark.install
NAME = "hypervisor-queue"


def use(home: Home, hv) -> None:
    """The first commands of a newcomer."""
    assert home.run(hv, "version") == f"hv {hypervisor.__version__}\n"
    home.run(hv, "run", "--name", "first", "--items", "-", "--", "touch", stdin="one\ntwo\n")
    home.stop_supervisor(hv)
    files = {path.name for path in (home.folder / "project").iterdir()}
    assert files == {".hypervisor", "one", "two"}
    assert {task["state"] for task in json.loads(home.run(hv, "ls", "--json"))} == {"done"}
    assert "triage" in home.run(hv, "skills", "--names")  # a file that is not Python
    home.run(hv, "report", "first", "--out", "report.html")  # another: the template
    assert (home.folder / "project" / "report.html").exists()
    wrote = home.run(hv, "completion", "bash", "--install")
    assert wrote.startswith(f"wrote {home.folder}/.local/share/bash-completion/completions/hv\n")
    path = home.folder / "project" / ".hypervisor" / "config.toml"
    assert home.run(hv, "config", "init") == f"wrote {path}\n"
    assert home.run(hv, "config", "path") == f"{path}\n"


def keeps_the_store(home: Home) -> None:
    assert (home.folder / "project" / ".hypervisor" / "store.db").exists()


def test_pip(home, wheel):
    venv = home.folder / "venv"
    home.run(PYTHON, "-m", "venv", venv)
    home.run(venv / "bin" / "pip", "install", "--quiet", wheel)
    use(home, venv / "bin" / "hv")
    assert home.run(venv / "bin" / "python", "-m", "hypervisor", "version").startswith("hv ")
    assert (venv / "share" / "man" / "man1" / "hv.1").exists()
    home.run(venv / "bin" / "pip", "uninstall", "--quiet", "--yes", NAME)
    left = [path for path in venv.rglob("*") if path.name in ("hv", "hv.1", "hypervisor")]
    assert left == []
    keeps_the_store(home)


@pytest.mark.parametrize("source", ["wheel", "checkout"])
def test_pipx(home, wheel, source):
    pipx = TOOLS / "pipx"
    home.run(pipx, "install", "--python", PYTHON, wheel if source == "wheel" else ROOT)
    hv = home.folder / ".local" / "bin" / "hv"
    use(home, hv)
    manual = home.folder / ".local" / "share" / "man" / "man1" / "hv.1"
    assert manual.exists()
    home.run(pipx, "uninstall", NAME)
    assert not hv.exists() and not manual.exists()
    keeps_the_store(home)


@pytest.mark.parametrize("source", ["wheel", "checkout"])
def test_uv_tool(home, wheel, source):
    uv = TOOLS / "uv"
    home.run(uv, "tool", "install", "--python", PYTHON, wheel if source == "wheel" else ROOT)
    hv = home.folder / ".local" / "bin" / "hv"
    use(home, hv)
    home.run(uv, "tool", "uninstall", NAME)
    assert not hv.exists()
    keeps_the_store(home)


def test_the_wheel_has_the_scripts_of_the_dashboard(wheel):
    with ZipFile(wheel) as archive:
        names = {name.rpartition("/")[2] for name in archive.namelist() if "/libraries/" in name}
    assert {"htmx.js", "uPlot.iife.js", "uPlot.min.css", "htmx.LICENSE", "uPlot.LICENSE"} <= names


def test_the_metadata_is_complete(built, wheel):
    with ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
        names = archive.namelist()
    assert (metadata["Name"], metadata["Version"]) == (NAME, hypervisor.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    # No Project-URL: the project has no public address yet.
    for field in ("Summary", "Keywords", "Classifier", "Requires-Python"):
        assert metadata[field], field
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert "hypervisor/py.typed" in names
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *built.iterdir()],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout
