"""Process trees of attempts: all their processes end, no others do. Real processes throughout."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from hypervisor.resources.host import LocalHost
from hypervisor.runs.processes import kill, tree
from tests.runs.processes.forest import (
    BARE,
    DEADLINE,
    GROWN,
    MIX,
    Refused,
    identity,
    look,
    wait_for,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and subreapers")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to become somebody else")

SLEEP = ("sleep", "120")
NOBODY = 65534


class TestSnapshot:
    def test_shows_this_process(self):
        own = look(os.getpid())
        assert own.parent == os.getppid()
        assert (own.group, own.session) == (os.getpgrp(), os.getsid(0))
        assert own.start == LocalHost().process_start(os.getpid())
        assert own.state == "R" and own.lives

    def test_shows_cpu_and_memory(self):
        own = look(os.getpid())
        times = os.times()
        assert own.cpu == pytest.approx(times.user + times.system, abs=0.2)
        assert 5 << 20 < own.rss < 4 << 30

    def test_shows_zombies_as_such(self, forest):
        child = forest.other("true")
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert look(child).state == "Z"
        assert not look(child).lives

    def test_is_not_confused_by_names(self, forest, tmp_path):
        odd = tmp_path / "a) R (b 1 2"
        odd.symlink_to("/bin/sleep")
        child = forest.other(str(odd), "120")
        wait_for(lambda: look(child).name == odd.name, "the new name")
        assert look(child).parent == os.getpid()

    def test_a_process_whose_main_thread_has_ended_lives(self, forest):
        worker = forest.worker("w", ["headless"])
        worker.grow(2)
        pid = worker.one("headless")
        stat = Path(f"/proc/{pid}/stat")
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "a dead thread")
        assert look(pid).lives
        worker.call("len(tree.stop_descendants(0.1))")
        assert forest.living(worker.folder) == []


def test_descendants_leave_out_the_spared_and_all_below_them():
    def one(pid, parent):
        return tree.Process(pid, parent, 1, 1, pid, 0.0, 0, "x", "S")

    #      1 ── 2 ── 3 ── 4 ;  2 ── 5 ── 6 ;  1 ── 7
    all = {p: one(p, q) for p, q in [(6, 5), (4, 3), (3, 2), (5, 2), (2, 1), (7, 1), (1, 0)]}
    assert {p.pid for p in tree.descendants(1, all)} == {2, 3, 4, 5, 6, 7}
    assert {p.pid for p in tree.descendants(2, all)} == {3, 4, 5, 6}
    assert {p.pid for p in tree.descendants(2, all, spare=[5])} == {3, 4}
    assert tree.descendants(1, all, spare={2, 7}) == []
    assert tree.descendants(99, all) == []


def test_written_counts_bytes_and_nothing_for_the_unknown(forest):
    child = forest.other("sh", "-c", "head -c 300000 /dev/zero > out; echo > done; exec sleep 120")
    wait_for((forest.folder / "done").exists, "the output")
    assert 300_000 <= tree.written([child]) < 400_000
    assert tree.written([child, 2**22 + 5]) == tree.written([child])
    assert tree.written([]) == 0


def test_proportional_shares_out_what_is_shared(forest):
    grow = "import os, time; held = bytearray(64 << 20); [os.fork() for _ in range(2)]"
    leader = forest.other(*BARE, "-c", f"{grow}; open(str(os.getpid()), 'w'); time.sleep(120)")
    wait_for(lambda: len(list(forest.folder.glob("[0-9]*"))) == 4, "four that share")
    pids = [leader, *(p.pid for p in tree.descendants(leader, tree.snapshot()))]
    assert sum(look(pid).rss for pid in pids) > 4 * (64 << 20)
    assert 64 << 20 < tree.proportional(pids) < 2 * (64 << 20)
    assert tree.proportional([2**22 + 5]) == 0


def test_proportional_falls_back_to_resident_memory(monkeypatch):
    monkeypatch.setattr("hypervisor.resources.process_table._number_after", lambda *_: None)
    assert tree.proportional([os.getpid()]) == pytest.approx(look(os.getpid()).rss, rel=0.2)


class TestReap:
    def test_returns_at_once_without_children(self, forest):
        worker = forest.worker("w", [])
        assert worker.call("tree.reap()") == []
        assert worker.call("tree.alone()") is True

    def test_tells_status_cpu_and_peak(self, forest):
        worker = forest.worker("w", [])
        busy = (
            "import os, time; held = bytearray(90 << 20)\n"
            "while time.process_time() < 0.2: pass\n"
            "os._exit(7)"
        )
        pid = worker.call(f"os.spawnv(os.P_NOWAIT, {BARE[0]!r}, {[*BARE, '-c', busy]!r})")
        assert worker.call("tree.alone()") is False
        (reaped,) = collect(worker, 1)
        assert reaped[0] == pid
        assert os.waitstatus_to_exitcode(reaped[1]) == 7
        assert 0.2 <= reaped[2] < 5
        assert 90 << 20 < reaped[3] < 200 << 20
        assert worker.call("tree.alone()") is True

    def test_leaves_what_runs_and_never_takes_what_is_kept(self, forest):
        worker = forest.worker("w", [])
        spawn = "os.spawnlp(os.P_NOWAIT, {0!r}, {0!r}, {1!r})"
        kept = worker.call(spawn.format("true", "kept"))
        wait_for(lambda: look(kept).state == "Z", "the end of the kept one")
        runs = worker.call(spawn.format("sleep", "120"))
        ended = [worker.call(spawn.format("false", "ended")) for _ in range(3)]
        reaped = collect(worker, 3, f"[{kept}]")
        assert sorted(r[0] for r in reaped) == sorted(ended)
        assert worker.call(f"tree.reap([{kept}])") == []
        assert look(runs).lives
        assert worker.call(f"tree.alone([{kept}])") is False
        assert worker.call(f"tree.alone([{kept}, {runs}])") is True
        assert worker.call("tree.reap()")[0][:2] == [kept, 0]

    def test_gets_the_orphans_of_a_reaper(self, forest):
        worker = forest.worker("w", ["daemon"])
        worker.grow(2)
        orphan = worker.one("daemon")
        wait_for(lambda: look(orphan).parent == worker.pid, "the adoption")
        os.kill(orphan, signal.SIGKILL)
        assert [orphan, signal.SIGKILL] in [r[:2] for r in collect(worker, 1)]


def collect(worker, count, keep="()"):
    reaped: list[list[float]] = []

    def enough():
        reaped.extend(worker.call(f"tree.reap({keep})"))
        return len(reaped) >= count

    wait_for(enough, f"{count} to end")
    return reaped


class TestStopDescendants:
    @pytest.mark.parametrize("run", range(10))
    def test_no_survivor_and_no_bystander(self, forest, run):
        self.storm(forest)

    @pytest.mark.long
    @pytest.mark.parametrize("run", range(50))
    def test_no_survivor_and_no_bystander_ever(self, forest, run):
        self.storm(forest)

    def storm(self, forest):
        worker, sibling = forest.worker("w", MIX), forest.worker("sibling", MIX, mark="w")
        worker.grow(GROWN)
        sibling.grow(GROWN)
        bystanders = [forest.other(*SLEEP), forest.other(*SLEEP, start_new_session=True)]
        beside = identity([*bystanders, *(pid for pid, _ in sibling.roster())])
        assert len(beside) == GROWN + len(bystanders)
        assert len(forest.living(worker.folder)) >= 50
        started = time.monotonic()
        reaped = worker.call("tree.stop_descendants(0.2)")
        assert time.monotonic() - started < DEADLINE
        assert forest.living(worker.folder) == []
        assert worker.call("tree.alone()") is True
        assert {pid for pid, _ in worker.roster()} & {pid for pid, *_ in reaped}
        assert identity(pid for pid, _ in beside) == beside

    @pytest.mark.parametrize("kinds", [["runner"] * 3, ["fleer"] * 3], ids=lambda kinds: kinds[0])
    @pytest.mark.parametrize("grace", [0, 0.1])
    def test_catches_what_forks_and_exits_all_the_time(self, forest, kinds, grace):
        worker = forest.worker("w", kinds)
        worker.grow(4)
        started = time.monotonic()
        worker.call(f"len(tree.stop_descendants({grace}))")
        assert time.monotonic() - started < DEADLINE
        assert forest.living(worker.folder) == []

    def test_returns_as_soon_as_all_have_gone(self, forest):
        worker = forest.worker("w", ["plain", "session", "stopped", "lost"])
        worker.grow(5)
        started = time.monotonic()
        statuses = {r[1] for r in worker.call("tree.stop_descendants(60)")}
        assert time.monotonic() - started < DEADLINE
        assert statuses <= {0, signal.SIGTERM}
        assert forest.living(worker.folder) == []

    def test_lets_them_tidy_up(self, forest):
        worker = forest.worker("w", ["tidy", "plain"])
        worker.grow(3)
        worker.call("len(tree.stop_descendants(60))")
        assert (worker.folder / "tidied").exists()

    def test_without_grace_there_is_no_tidying_up(self, forest):
        worker = forest.worker("w", ["tidy"])
        worker.grow(2)
        assert {r[1] for r in worker.call("tree.stop_descendants(0)")} == {signal.SIGKILL}
        assert not (worker.folder / "tidied").exists()

    def test_spares_the_spared_and_all_below_them(self, forest):
        worker = forest.worker("w", ["plain", "session"])
        worker.grow(3)
        aside = forest.folder / "aside"
        aside.mkdir()
        helper = ["sh", "-c", f"cd {aside} && sleep 120 & cd {aside} && wait"]
        pid = worker.call(f"os.spawnvp(os.P_NOWAIT, 'sh', {helper})")
        wait_for(lambda: len(forest.living(aside)) == 2, "the helper")
        kept = identity(forest.living(aside))
        assert len(kept) == 2
        worker.call(f"len(tree.stop_descendants(0.1, spare=[{pid}]))")
        assert forest.living(worker.folder) == []
        assert identity(pid for pid, _ in kept) == kept

    def test_a_process_group_is_struck_whole_even_members_no_scan_has_seen(self, forest):
        worker, first = self.headless_group(forest)
        worker.call("globals().update(own=tree._Descendants((), None))")
        worker.call("globals().update(found=own.find())")
        os.kill(first, signal.SIGUSR1)
        wait_for(lambda: "relayed" in dict(map(reversed, worker.roster())), "the next member")
        worker.call(f"own.signal_all(found, {signal.SIGKILL:d})")
        wait_for(lambda: forest.living(worker.folder) == [], "the end of the group")

    def test_a_process_group_with_someone_else_in_it_is_not_struck(self, forest):
        worker, first = self.headless_group(forest)
        worker.call(f"globals().update(own=tree._Descendants([{first}], None))")
        worker.call("globals().update(found=own.find())")
        worker.call(f"own.signal_all(found, {signal.SIGSTOP:d})")
        os.kill(first, signal.SIGUSR1)
        wait_for(lambda: "relayed" in dict(map(reversed, worker.roster())), "a sign of life")

    def headless_group(self, forest):
        """A group whose leader is a zombie, with one member; the worker collects nothing."""
        worker = forest.worker("w", ["relay"])
        worker.grow(2)
        worker.call("setattr(tree, 'MAX_CONCURRENT', 0)")
        assert worker.leader is not None
        os.kill(worker.leader[0], signal.SIGKILL)
        first = worker.one("relay")
        wait_for(lambda: look(first).parent == worker.pid, "the adoption")
        return worker, first

    def test_does_nothing_without_descendants(self, forest):
        worker = forest.worker("w", [])
        assert worker.call("tree.stop_descendants(60)") == []

    @as_root
    def test_says_so_when_something_will_not_go(self, forest):
        worker = forest.worker("w", ["plain"])
        worker.grow(2)
        worker.call("setattr(ending, 'PATIENCE', 0.2)")
        worker.call(f"os.setuid({NOBODY})")
        with pytest.raises(Refused) as refused:
            worker.call("tree.stop_descendants(0.1)")
        assert refused.value.kind == "TreeSurvived"
        assert refused.value.pids == sorted(pid for pid, _ in worker.roster())


def test_a_pid_that_was_given_away_is_not_hit(forest):
    child = look(forest.other(*SLEEP))
    kill.send(child._replace(start=child.start - 1), signal.SIGKILL)
    kill.send(child, signal.SIGSTOP)
    wait_for(lambda: look(child.pid).state == "T", "the stop, which was meant")


def test_without_pidfd_the_start_is_checked_all_the_same(forest, monkeypatch):
    def fails(pid):
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "pidfd_open", fails)
    test_a_pid_that_was_given_away_is_not_hit(forest)
