"""Processes that a killed worker left behind are ended, no matter who finds them; no others are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hypervisor.runs.processes import tree
from tests.runs.processes.forest import DEADLINE, MARK, identity, look, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and subreapers")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to become somebody else")

SLEEP = ("sleep", "120")
NOBODY = 65534
# Marks that are like ours, but not ours.
OTHERS = {
    "longer": f"HV_ATTEMPT={MARK}1",
    "empty": "HV_ATTEMPT=",
    "another name": f"XHV_ATTEMPT={MARK}",
    "within": f"A=HV_ATTEMPT={MARK}",
}


class TestEndLeftovers:
    KINDS = (
        *["plain"] * 5,
        *["session"] * 5,
        *["daemon"] * 5,
        *["branch"] * 2,
        *["stubborn"] * 4,
        *["stopped"] * 4,
        *["scrubbed"] * 3,
        *["hider"] * 2,
        "forker",
    )
    SIGNED = 36

    def grown(self, forest, name="w", mark=MARK, kinds=None):
        worker = forest.worker(name, list(self.KINDS if kinds is None else kinds), mark)
        worker.grow(self.SIGNED if kinds is None else len(kinds) + 1)
        return worker

    @pytest.mark.parametrize("run", range(3))
    def test_end_what_a_killed_worker_left_and_nobody_else(self, forest, run):
        worker = self.grown(forest)
        sibling = self.grown(forest, "sibling", f"{MARK}1")
        beside = identity(pid for pid, _ in sibling.roster())
        assert len(beside) == self.SIGNED
        worker.kill()
        started = time.monotonic()
        ended = tree.end_leftovers({MARK}, worker.leader, None, 0.2)
        assert time.monotonic() - started < DEADLINE
        assert forest.living(worker.folder) == []
        assert {pid for pid, _ in worker.roster()} <= set(ended)
        assert identity(pid for pid, _ in beside) == beside
        assert tree.end_leftovers({MARK}, worker.leader, None, 0.2) == []

    @pytest.mark.parametrize("run", range(5))
    def test_processes_forked_during_the_scan_are_found(self, forest, run):
        """Once its parent is gone, nothing shows which attempt such a child belonged to."""
        worker = self.grown(forest, kinds=["scatterer"] * 2)
        worker.kill()
        tree.end_leftovers({MARK}, None, None, 0.2)
        assert forest.living(worker.folder) == []

    def test_works_from_any_process(self, forest):
        worker, rescuer = self.grown(forest), forest.worker("rescuer", [])
        worker.kill()
        ended = rescuer.call(f"tree.end_leftovers([{MARK!r}], {worker.leader}, None, 0.2)")
        assert {pid for pid, _ in worker.roster()} <= set(ended)
        assert forest.living(worker.folder) == []

    def test_lets_them_tidy_up(self, forest):
        worker = self.grown(forest, kinds=["tidy"])
        worker.kill()
        tree.end_leftovers({MARK}, None, None, 60)
        assert (worker.folder / "tidied").exists()

    def test_the_session_finds_those_without_a_mark(self, forest):
        leader = forest.other("env", "-i", *SLEEP, start_new_session=True)
        wait_for(lambda: look(leader).session == leader, "the session")
        start = look(leader).start
        assert tree.end_leftovers({"none"}, (leader, start), None, 0.2) == [leader]

    def test_the_session_counts_for_nothing_once_its_number_is_given_away(self, forest):
        leader = forest.other(*SLEEP, start_new_session=True)
        start = look(leader).start
        assert tree.end_leftovers({"none"}, (leader, start - 1), None, 0.2) == []
        assert look(leader).lives

    def test_one_in_the_session_with_another_mark_is_not_meant(self, forest):
        env = {"HV_ATTEMPT": "later", "PATH": os.environ["PATH"]}
        leader = forest.other(*SLEEP, start_new_session=True, env=env)
        start = look(leader).start
        assert tree.end_leftovers({"none"}, (leader, start), None, 0.2) == []
        assert look(leader).lives

    @pytest.mark.parametrize("entry", OTHERS)
    def test_only_the_exact_mark_counts(self, forest, entry):
        name, _, value = OTHERS[entry].partition("=")
        child = forest.other(*SLEEP, env={"PATH": os.environ["PATH"], name: value})
        wait_for(lambda: look(child).name == "sleep", "the command")
        assert tree.end_leftovers({MARK}, None, None, 0.2) == []
        assert look(child).lives

    def test_an_empty_mark_finds_nobody(self, forest):
        child = forest.other(*SLEEP, env={"PATH": os.environ["PATH"], "HV_ATTEMPT": ""})
        wait_for(lambda: look(child).name == "sleep", "the command")
        assert tree.end_leftovers({""}, None, None, 0.2) == []
        assert look(child).lives

    def test_our_own_session_is_never_meant(self, forest):
        child = forest.other(*SLEEP)
        leader = os.getsid(0)
        assert tree.end_leftovers({"none"}, (leader, start_of(leader)), None, 0.2) == []
        assert look(child).lives

    def test_neither_we_nor_our_ancestors_are_ended(self, forest):
        """An agent inside the attempt may request this, and must survive the request."""
        worker = forest.worker("w", [], MARK)
        code = (
            f"import sys; sys.path.insert(0, {str(Path(tree.__file__).parents[3])!r})\n"
            "from hypervisor.runs.processes import tree\n"
            f"print(tree.end_leftovers([{MARK!r}], None, None, 0.2))"
        )
        script = f'sleep 120 & "{sys.executable}" -S -E -c "$0"; echo over; kill $!'
        done = subprocess.run(
            ["sh", "-c", script, code],
            cwd=worker.folder,
            capture_output=True,
            text=True,
            env={**os.environ, "HV_ATTEMPT": MARK},
            timeout=DEADLINE,
        )
        ended, over = done.stdout.splitlines()
        assert over == "over"
        assert len(ended.split(",")) == 1 and ended != "[]"  # the sleep beside us
        assert forest.living(worker.folder) == []

    @as_root
    def test_what_is_not_ours_to_read_is_skipped(self, forest):
        env = {"HV_ATTEMPT": MARK, "PATH": os.environ["PATH"]}
        child = forest.other(*SLEEP, env=env)
        wait_for(lambda: look(child).name == "sleep", "the command")
        rescuer = forest.worker("rescuer", [])
        rescuer.call(f"os.setuid({NOBODY})")
        assert rescuer.call(f"tree.end_leftovers([{MARK!r}], None, None, 0.2)") == []
        assert look(child).lives


def start_of(pid):
    return tree.snapshot()[pid].start if pid in tree.snapshot() else 0
