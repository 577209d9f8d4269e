"""The learner with real runs: supervisors killed under it, and work whose truth is known."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from hypervisor.learning.learn import learnings
from hypervisor.learning.sql import records
from hypervisor.queue.sql import queries
from hypervisor.resources.process_table import snapshot
from tests.torture.fleet import kill, wait_for

ROOT = Path(__file__).parents[2]
NAP = ("sh", "-c", "sleep 0.1", "{}")


def test_each_attempt_counts_at_most_once_after_kills(project):
    """Two supervisors are killed; what the others learned is there, and nothing twice."""
    client = project.start(
        "run",
        "--strategy",
        "adaptive",
        "--workers",
        "3",
        "--type",
        "nap",
        "--",
        *NAP,
        items=[str(n) for n in range(150)],  # attempts during which the number changes are not used
    )
    killed: set[int] = set()
    for samples in (5, 20):
        wait_for(partial(_has_samples, project, samples), "samples", story=project.story)
        wait_for(lambda: set(project.supervisors()) - killed, "a supervisor", story=project.story)
        for pid in set(project.supervisors()) - killed:
            if process := snapshot().get(pid):
                kill(process)
            killed.add(pid)
    ended = project.ended(client)
    assert ended.code == 0, (ended, project.story())
    wait_for(partial(_has_samples, project, 41), "the rest", story=project.story)
    with project.open() as hv:
        (record,) = records(hv, hv.probe.host()).values()
        assert record.done <= 150 and record.failed <= 3
        assert all(1 <= each.at_once <= 3.1 for each in record.recent)
        assert [e for e in queries.events(hv.store, 0, 10_000) if e.kind == "learner"]


def _has_samples(project, count):
    with project.open() as hv:
        return sum(each.samples for each in learnings(hv)) >= count


@pytest.mark.long
@pytest.mark.parametrize(
    "world", ["cpu", "sleep", "lock", "memory", "quota", "sleep-lock", "lock-sleep"]
)
def test_adaptive_comes_close_to_the_best_fixed_number(world, tmp_path):
    """Measures wall time, so it needs a quiet machine: on a busy one a process takes as long to
    start as it then sleeps, and the expected answers are wrong (with a lock, a second worker
    pays)."""
    command = [sys.executable, "-m", "bench.learn", world, "--dir", str(tmp_path)]
    found = str(tmp_path / "found.json")
    run = subprocess.run(
        [*command, "--json", found], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
