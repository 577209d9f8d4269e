"""Workers, agents, supervisor, merger, or all of them killed at random moments of whole runs."""

from __future__ import annotations

import time

from tests.git.killing import KilledRuns, remove_ended
from tests.support.python_runs import opened

ROUND = 24  # tasks in a batch


def test_killed_at_random_moments_nothing_is_lost_or_merged_twice(tmp_path, long):
    kills, seconds = (300, 2400.0) if long else (10, 240.0)
    with opened(str(tmp_path / "store" / "store.db")) as hv:
        runs = KilledRuns(tmp_path, hv, seed=5)
        deadline = time.monotonic() + seconds
        while sum(runs.killed.values()) < kills:
            assert time.monotonic() < deadline, f"only {runs.killed} in {seconds:g} s"
            if runs.all_ended():
                runs.submit(ROUND if long else 8)
            runs.kill()
        if long:
            runs.finish_long(4)
        runs.end(600)
        remove_ended(hv)
        runs.check()
        print(f"\nkilled {dict(runs.killed)} during {dict(runs.moments)}; saved {runs.saved}")
        states = [task.state for task in runs.tasks()]
        print({state: states.count(state) for state in set(states)})
        assert {task.state for task in runs.tasks()} & {"done"}
        left = list((tmp_path / "store" / "git" / "work").glob("[!.]*"))
        print(f"{len(left)} workspaces left")
