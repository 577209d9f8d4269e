"""A Ray of its own for a test: in a home and a temporary folder that no other process has.

All its processes, and the supervisors that it starts, have that home in their environment. So they
are found and ended without touching another Ray on the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.support.ungoverned import UNGOVERNED

DEADLINE = 90.0


def until(condition, what, seconds=DEADLINE):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.1)
    return value


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class RayHost:
    def __init__(self, store: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="hvray", dir="/tmp"))  # sockets need a short path
        self.port = free_port()
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "HOME": str(self.home),
            "RAY_TMPDIR": str(self.home),
            "HYPERVISOR_STORE": store,
        }
        self.env.pop("XDG_DATA_HOME", None)

    def configure(self, hv) -> None:
        """Let supervisors start as many workers as they like."""
        folder = self.home / ".local/share/hypervisor" / Path(hv.places.data).name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "config.toml").write_text(UNGOVERNED)

    def hv(self, *words, code=0, given=None):
        done = subprocess.run(
            [sys.executable, "-I", "-m", "hypervisor", *words],
            env=self.env,
            input=given or "",
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == code, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def json(self, *words):
        return json.loads(self.hv(*words, "--json"))

    def up(self, *options):
        return self.json("cluster", "up", "--listen", f"127.0.0.1:{self.port}", *options)

    def processes(self) -> dict[int, str]:
        """The command lines of all processes with this home."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"HOME={self.home}\0".encode() in (folder / "environ").read_bytes() + b"\0":
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(folder.name)] = line.strip()
        return {pid: line for pid, line in found.items() if line}

    def ray_processes(self) -> dict[int, str]:
        marks = ("ray::", "/ray/", "raylet", "gcs_server")
        return {
            pid: line
            for pid, line in self.processes().items()
            if any(mark in line for mark in marks) and "hypervisor" not in line
        }

    def end_ray(self) -> None:
        """What `ray stop --force` does, for this Ray only."""
        while found := self.ray_processes():
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        self.port = free_port()

    def end(self) -> None:
        for _ in range(100):
            found = self.processes()
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not found:
                break
            time.sleep(0.05)
        shutil.rmtree(self.home, ignore_errors=True)
