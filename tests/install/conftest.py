"""Empty environments to install into: an empty home, no checkout, only PATH set."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent  # pipx and uv
PATIENCE = 300  # seconds: of one command
DEADLINE = 60.0
# The Python that the tests' own environment was made with: it has none of our packages.
PYTHON = str(getattr(sys, "_base_executable", sys.executable))
INDEX = ("index-url", "extra-index-url", "find-links", "cert", "trusted-host", "proxy")


class Home(NamedTuple):
    """A new user. `env` is the whole environment of their commands."""

    folder: Path
    env: Mapping[str, str]

    def run(self, *command: str | Path, stdin: str = "") -> str:
        """Expects it to succeed; returns what it printed."""
        done = subprocess.run(
            command,
            cwd=self.folder / "project",
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def stop_supervisor(self, hv: Path) -> None:
        """Stop the supervisor that `hv run` has left in the background."""
        deadline = time.monotonic() + DEADLINE
        while (pid := json.loads(self.run(hv, "status", "--json"))["supervisor"]) is not None:
            assert time.monotonic() < deadline, "the supervisor does not end"
            os.kill(pid, signal.SIGTERM)
            time.sleep(0.2)


def _printed(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    return done.stdout.strip()


def index_settings() -> dict[str, str]:
    """How pip is configured to reach the package index."""
    lines = _printed(sys.executable, "-m", "pip", "config", "list").splitlines()
    pairs = (line.partition("=") for line in lines)
    settings = {name.rsplit(".", 1)[-1]: str(ast.literal_eval(value)) for name, _, value in pairs}
    return {name: value for name, value in settings.items() if name in INDEX}


def pip_config(settings: Mapping[str, str]) -> str:
    lines = (f"{name} = " + "\n    ".join(value.split()) for name, value in settings.items())
    return "\n".join(["[global]", *lines, ""])


def uv_config(settings: Mapping[str, str]) -> str:
    """The same index for uv, searched as pip searches it."""
    config: dict[str, Any] = {"index-strategy": "unsafe-best-match", "python-downloads": "never"}
    for name in ("extra-index-url", "find-links"):
        if name in settings:
            config[name] = settings[name].split()
    if "index-url" in settings:
        config["index-url"] = settings["index-url"]
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in config.items())


@pytest.fixture(scope="session")
def index(tmp_path_factory):
    """Variables that let pip, pipx and uv reach the package index this machine uses. What was
    downloaded before is not downloaded again."""
    folder = tmp_path_factory.mktemp("index")
    settings = index_settings()
    (folder / "pip.conf").write_text(pip_config(settings))
    (folder / "uv.toml").write_text(uv_config(settings))
    variables = {
        "PIP_CONFIG_FILE": str(folder / "pip.conf"),
        "PIP_CACHE_DIR": _printed(sys.executable, "-m", "pip", "cache", "dir"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_CONFIG_FILE": str(folder / "uv.toml"),
        "UV_CACHE_DIR": _printed(TOOLS / "uv", "cache", "dir"),
    }
    if "cert" in settings:
        variables["SSL_CERT_FILE"] = settings["cert"]
    return variables


@pytest.fixture
def home(tmp_path, index):
    folder = tmp_path / "empty home"
    (folder / "project").mkdir(parents=True)
    path = f"{folder}/.local/bin:{os.defpath}"
    return Home(folder, {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", **index})


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The folder with the sdist and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", folder, ROOT],
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    return folder


@pytest.fixture(scope="session")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path
