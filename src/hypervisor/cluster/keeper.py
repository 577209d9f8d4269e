"""Keeps the supervisor of one host running: the actor that Ray puts on each node.

The supervisor runs in a session of its own. Ray kills the process group of a worker that dies, so
anything else would end the agents of the host with it. The next keeper finds the supervisor that
runs by its lock and watches it instead of starting a second one.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hypervisor.cluster.launcher import Launched
from hypervisor.runs.host_keeper import LAUNCHER

START = (sys.executable, "-I", "-m", "hypervisor", "supervise", "--detach", "--stay", "--json")
START_LIMIT = 60.0  # seconds for the command that starts it
LOOK = 1.0  # seconds between two looks at whether it was released
FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0  # seconds before it is started again after a failure
LIVED = 30.0  # seconds that a supervisor must live for the next failure to count as the first
# Set by Ray for its own workers; agents must not inherit them.
OF_RAY = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "PYTHONPATH")


class SupervisorKeeper:
    def __init__(self, store: str, host: str, address: str) -> None:
        """`store` is its URL, without a password: Ray keeps the arguments of its actors."""
        self._store, self._host, self._address = store, host, address
        self._supervisor: int | None = None
        self._trouble = ""
        self._released = threading.Event()
        threading.Thread(target=self._keep, daemon=True).start()

    def look(self) -> Launched:
        return Launched(self._host, self._address, self._supervisor, self._trouble)

    def process(self) -> int:
        """The process id of this keeper."""
        return os.getpid()

    def _keep(self) -> None:
        delay = FIRST_DELAY
        while not self._released.is_set():
            self._supervisor, self._trouble = start(environment(self._store, self._host))
            began = time.monotonic()
            if self._supervisor is not None:
                self._wait(self._supervisor)
            if time.monotonic() - began > LIVED:
                delay = FIRST_DELAY
            self._released.wait(delay)
            delay = min(delay * 2, LONGEST_DELAY)

    def _wait(self, pid: int) -> None:
        """Until the process ends. It is not our child."""
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                poll = select.poll()
                poll.register(handle, select.POLLIN)
                while not self._released.is_set() and not poll.poll(LOOK * 1000):
                    pass
            finally:
                os.close(handle)
        self._supervisor = None


def start(env: Mapping[str, str]) -> tuple[int | None, str]:
    """Start the supervisor of this host if none is running: its process id, or what went wrong."""
    try:
        done = subprocess.run(
            START,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_LIMIT,
            cwd=os.path.expanduser("~"),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    answer = _last_object(done.stdout)
    if done.returncode == 0 and answer.get("supervisor"):
        return int(answer["supervisor"]), ""
    lines = (done.stderr or done.stdout).strip().splitlines()
    return None, lines[-1] if lines else f"exited with {done.returncode}"


def environment(store: str, host: str, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """That of a Ray worker without what Ray has set, and with the store, which is thus not named in
    an argument."""
    kept = {
        name: value
        for name, value in inherited.items()
        if name not in OF_RAY and not name.startswith("RAY_")
    }
    return {**kept, "HYPERVISOR_STORE": store, LAUNCHER: f"ray:{host}"}


def _last_object(text: str) -> dict[str, Any]:
    lines = text.strip().splitlines()
    with suppress(ValueError, IndexError):
        value = json.loads(lines[-1])
        return value if isinstance(value, dict) else {}
    return {}
