"""A scratch project in which real commands are run, and a way to find what they leave running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hypervisor.core.records import NamedTuple
from hypervisor.resources.process_table import environment, snapshot

PROGRAM = (
    sys.executable,
    "-c",
    'import sys; sys.argv[0] = "hv"; from hypervisor.app import main; main()',
)


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Project:
    """Its processes are recognized by a variable in their environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        runtime = folder / "run"
        runtime.mkdir(mode=0o700)
        self._mark = f"XDG_RUNTIME_DIR={runtime}".encode()
        self._env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(runtime),
            "HYPERVISOR_STORE": str(self.folder / ".hypervisor" / "store.db"),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *words],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def hv(self, *words: str, seconds: float = 60.0) -> Ended:
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return Ended(process.returncode, out, err)

    def processes(self) -> list[int]:
        own = os.getpid()
        return [
            process.pid
            for process in snapshot().values()
            if process.lives and process.pid != own and self._mark in environment(process.pid)
        ]

    def close(self) -> None:
        """End what is still running."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
