"""Hosts on one PostgreSQL, each with a name, a pid namespace and a data folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.ungoverned import UNGOVERNED

ALONE = ("unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child=KILL")
NAMED = 'echo "$1" > /proc/sys/kernel/hostname; shift; exec "$@"'
HIDING = 'mount -t tmpfs -o size=64k none "$1"; shift; exec "$@"'
PROGRAM = (
    sys.executable,
    "-c",
    'import sys; sys.argv[0] = "hv"; from hypervisor.app import main; main()',
)
DEADLINE = 60.0


def need_namespaces() -> None:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare")


class Host:
    """A supervisor in namespaces of its own, and a way to run `hv` on the same host."""

    def __init__(self, folder: Path, name: str, url: str, config: str = "") -> None:
        self.name, self.home, self.url = name, folder / name, url
        self.home.mkdir()
        self.env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "HV_ACTOR": "tester",
            "HYPERVISOR_STORE": url,
        }
        path = self.hv("config", "path").stdout.strip()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_text(UNGOVERNED + config)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, hidden: Path | None = None) -> None:
        """`hidden`: a folder that this host does not see."""
        hiding = () if hidden is None else ("sh", "-c", HIDING, "sh", str(hidden))
        words = [*ALONE, "sh", "-c", NAMED, "sh", self.name, *hiding, *PROGRAM, "supervise"]
        log = (self.home / "log").open("ab")
        self._process = subprocess.Popen(words, env=self.env, stdout=log, stderr=log)

    def pid(self) -> int:
        """Of its supervisor, seen from outside."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return int(wait_for(lambda: children.read_text().split())[0])

    def inside(self, *words: str, cwd: Path, stdin: str = "", timeout: float = DEADLINE) -> Any:
        """Run `hv` on the host, beside its supervisor."""
        enter = (
            "nsenter",
            "--target",
            str(self.pid()),
            "--uts",
            "--pid",
            "--mount",
            "--wd=" + str(cwd),
        )
        return subprocess.run(
            [*enter, *PROGRAM, *words],
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def hv(self, *words: str, stdin: str = "", timeout: float = DEADLINE) -> Any:
        """Run `hv` outside of its namespaces, with its folders: it reads what the host stored."""
        return subprocess.run(
            [*PROGRAM, *words],
            env=self.env,
            input=stdin,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def kill(self) -> None:
        """As a power cut: every process of the host ends at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


def wait_for(condition: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)
    return found
