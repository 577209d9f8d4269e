"""The wall clock is set between two commands: real processes, each of which reads it set."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

PROGRAM = """
import sys, time
by, read = int(sys.argv.pop(1)), time.time_ns
time.time_ns = lambda: read() + by * 10**9
from hypervisor.app import main
main()
"""
HOUR = 3600
DEADLINE = 120.0
NOTHING = 3


@pytest.fixture
def hv(tmp_path):
    """Run a command whose wall clock was set by some seconds."""
    env = {
        "HOME": str(tmp_path),
        "HYPERVISOR_STORE": str(tmp_path / "x.db"),
        "XDG_RUNTIME_DIR": str(tmp_path),
    }

    def run(*words, by=0):
        return subprocess.run(
            [sys.executable, "-I", "-c", PROGRAM, str(by), *words, "--json"],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )

    return run


def claimed(done):
    return json.loads(done.stdout)[0]["token"] if done.returncode == 0 else None


def wait_for(condition):
    deadline = time.monotonic() + DEADLINE
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


@pytest.mark.parametrize("by", [-HOUR, HOUR])
def test_a_retry_waits_its_ten_seconds(hv, by):
    hv("add", "x", "--retries", "1")
    token = claimed(hv("claim"))
    began = time.monotonic()
    assert hv("fail", token, "again").returncode == 0
    assert wait_for(lambda: claimed(hv("claim", by=by)))
    assert time.monotonic() - began > 9.5


def test_a_claim_without_a_process_lapses_though_the_clock_was_set_back(hv):
    hv("add", "x")
    first = claimed(hv("claim", "--lease", "2s"))
    assert first and wait_for(lambda: claimed(hv("claim", by=-HOUR)))


def test_a_claim_without_a_process_is_kept_though_the_clock_was_set_forward(hv):
    hv("add", "x")
    token = claimed(hv("claim", "--lease", "15m"))
    assert hv("claim", by=HOUR).returncode == NOTHING
    assert hv("done", token, by=HOUR).returncode == 0
