"""Cgroups of our own: made, entered, killed and removed where the machine allows it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hypervisor.core.mounts import parse_mounts
from hypervisor.resources import cgroup
from hypervisor.resources.cgroup import Group, _locate
from hypervisor.runs.processes import tree
from tests.runs.processes.forest import DEADLINE, GROWN, MARK, MIX, wait_for

V1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu"
HYBRID = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw"
UNIFIED = "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
BOUND = "50 22 0:26 /docker/abc /mnt/my\\040groups rw - cgroup2 cgroup2 rw"


@pytest.fixture
def group(forest):
    made = Group.make(f"hv-test-{os.getpid()}")
    if made is None:
        pytest.skip("no cgroup can be owned here")
    yield made
    made.kill()
    wait_for(lambda: removed(made), "the removal")


def removed(group):
    group.remove()
    return not os.path.exists(group.path)


@pytest.mark.parametrize(
    "own, mounts, place",
    [
        ("/", [V1, HYBRID], "/sys/fs/cgroup/unified"),
        ("/user.slice/u@1.service", [UNIFIED], "/sys/fs/cgroup/user.slice/u@1.service"),
        ("/docker/abc", [BOUND], "/mnt/my groups"),
        ("/docker/abc/below", [V1, BOUND], "/mnt/my groups/below"),
        ("/elsewhere", [BOUND], None),
        ("/elsewhere", [BOUND, UNIFIED], "/sys/fs/cgroup/elsewhere"),
        ("/docker/abcd", [BOUND], None),
        ("/../outside/the/namespace", [UNIFIED], None),
        ("/", [V1], None),
        ("/", [], None),
    ],
)
def test_own_group_is_found_below_its_mount(own, mounts, place):
    assert _locate(own, parse_mounts("\n".join(mounts))) == place


def test_a_mount_of_version_1_is_not_taken_for_version_2():
    assert _locate("/", parse_mounts(V1.replace("rw,cpu", "rw,cgroup2"))) is None


@pytest.mark.parametrize("name", ["", "a/b", "..", ".", "../x"])
def test_a_name_is_one_plain_word(name):
    assert Group.make(name) is None


def test_none_where_nothing_can_be_made(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "own_path", lambda: None)
    assert Group.make("hv-test") is None
    monkeypatch.setattr(cgroup, "own_path", lambda: str(tmp_path / "missing"))
    assert Group.make("hv-test") is None


def test_none_where_it_can_be_made_but_not_entered(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "own_path", lambda: str(tmp_path))
    assert Group.make("hv-test") is None
    assert list(tmp_path.iterdir()) == []


def test_none_below_a_threaded_group(group):
    """The kernel allows creating it there, but no process may enter."""
    os.mkdir(f"{group.path}/threaded")
    Path(group.path, "threaded/cgroup.type").write_text("threaded")
    source = str(Path(cgroup.__file__).parents[2])
    code = (
        f"import sys; sys.path.insert(0, {source!r})\n"
        "from hypervisor.resources import cgroup\n"
        f"open('{group.path}/cgroup.procs', 'w').write('0')\n"
        f"open('{group.path}/threaded/cgroup.threads', 'w').write('0')\n"
        "print(cgroup.own_path(), cgroup.Group.make('hv-test'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{group.path}/threaded", "None"]
    assert not os.path.exists(f"{group.path}/threaded/hv-test")


def test_made_entered_seen_killed_removed(forest, group):
    assert group.exists()
    assert group.pids() == []
    child = forest.other("sleep", "120")
    assert group.enter(child)
    assert group.pids() == [child]
    group.remove()
    assert group.exists(), "something lives there"
    group.kill()
    assert os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    wait_for(lambda: removed(group), "the removal")
    assert group.pids() == []
    assert not group.enter(os.getpid())


def test_groups_below_are_seen_and_removed_too(forest, group):
    below = Group(f"{group.path}/a/b")
    os.makedirs(below.path)
    child = forest.other("sleep", "120")
    assert below.enter(child)
    assert group.pids() == [child]
    group.kill()
    assert os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    wait_for(lambda: removed(group), "the removal")


def test_a_group_that_is_there_is_never_taken_over(group):
    """A group full of another container's processes looks empty from inside a container."""
    assert Group.make(os.path.basename(group.path)) is None
    assert group.exists()


def test_a_group_is_found_by_name_wherever_it_is(group):
    below = Group(f"{group.path}/a/hv-test-below-{os.getpid()}")
    os.makedirs(below.path)
    found = Group.find(os.path.basename(below.path))
    assert found is not None and found.path == below.path
    assert Group.find(f"hv-test-none-{os.getpid()}") is None


def test_an_empty_group_is_removed_once_its_maker_is_gone(forest, group):
    prefix = os.path.basename(group.path)
    worker, full = forest.worker("w", []), Group(f"{group.path}-full")
    path = worker.call(f"cgroup.Group.make('{prefix}-empty').path")
    os.mkdir(full.path)
    try:
        assert full.enter(forest.other("sleep", "120"))
        cgroup.remove_abandoned_groups(prefix)
        assert os.path.exists(path), "its maker lives"
        worker.kill()
        cgroup.remove_abandoned_groups(prefix)
        assert not os.path.exists(path)
        assert group.exists() and full.exists()
    finally:
        full.kill()
        wait_for(lambda: removed(full), "the removal")


def test_the_root_is_not_a_group():
    home = cgroup.own_path()
    if home is None:
        pytest.skip("no unified hierarchy")
    while os.path.exists(os.path.join(os.path.dirname(home), "cgroup.procs")):
        home = os.path.dirname(home)
    assert not Group(home).exists()
    assert not Group("/").exists()


class TestTree:
    def test_a_worker_in_its_group_stops_all_but_itself(self, forest, group):
        worker = forest.worker("w", MIX)
        assert worker.call(f"cgroup.Group({group.path!r}).enter()")
        worker.grow(GROWN)
        worker.call(f"len(tree.stop_descendants(0.2, (), cgroup.Group({group.path!r})))")
        assert forest.living(worker.folder) == []
        assert group.pids() == [worker.pid]

    def test_what_is_in_the_group_counts_as_descendant(self, forest, group):
        worker, stranger = forest.worker("w", ["plain"]), forest.other("sleep", "120")
        spared = forest.other("sh", "-c", f"echo 0 > {group.path}/cgroup.procs; sleep 120 & wait")
        worker.grow(2)
        assert group.enter(stranger)
        wait_for(lambda: len(group.pids()) == 3, "all three")
        left = set(group.pids()) - {stranger}
        worker.call(f"len(tree.stop_descendants(0.2, [{spared}], cgroup.Group({group.path!r})))")
        assert forest.living(worker.folder) == []
        assert set(group.pids()) == left
        assert os.waitid(os.P_PID, stranger, os.WEXITED | os.WNOWAIT)

    @pytest.mark.parametrize("kinds", [MIX, ["fleer"] * 3, ["runner"] * 3], ids=["mix", "f", "r"])
    def test_nothing_that_a_killed_worker_left_escapes(self, forest, group, kinds):
        """Neither orphans in their own sessions with a scrubbed environment, nor processes that
        keep forking."""
        worker = forest.worker("w", kinds, MARK)
        assert worker.call(f"cgroup.Group({group.path!r}).enter()")
        worker.grow(GROWN if kinds is MIX else len(kinds) + 1)
        beside = forest.other("sleep", "120")
        worker.kill()
        started = time.monotonic()
        ended = tree.end_leftovers({MARK}, worker.leader, group.path, 0.2)
        assert time.monotonic() - started < DEADLINE
        assert forest.living(worker.folder) == []
        assert {pid for pid, kind in worker.roster() if kind in MIX} <= set(ended)
        assert not group.exists()
        assert beside in forest.living(forest.folder)

    def test_a_group_that_holds_us_is_not_a_leftover(self, forest, group):
        worker, other = forest.worker("w", []), forest.other("sleep", "120")
        assert group.enter(worker.pid) and group.enter(other)
        assert worker.call(f"tree.end_leftovers(['none'], None, {group.path!r}, 0.1)") == []
        assert set(group.pids()) == {worker.pid, other}

    @pytest.mark.parametrize(
        "call",
        [
            "tree.stop_descendants(0.1, (), {0})",
            "tree.end_leftovers(['none'], None, {0}.path, 0.1)",
        ],
    )
    def test_a_group_is_empty_only_when_it_says_so(self, forest, group, call):
        """Whatever the scans find: they may always be too late."""
        worker, member = forest.worker("w", []), forest.other("sleep", "120")
        assert group.enter(member)
        worker.call("setattr(tree, 'pids', list) or setattr(tree, 'snapshot', dict)")
        worker.call(call.format(f"cgroup.Group({group.path!r})"))
        assert group.pids() == []

    def test_a_group_that_is_gone_holds_nobody(self, group):
        assert tree.end_leftovers({"none"}, None, f"{group.path}/gone", 0.1) == []
