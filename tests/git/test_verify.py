"""Verification: exactly the tree that would land, in a bench, with nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hypervisor.git.bench import Benches, Cancelled
from hypervisor.git.command import Git
from hypervisor.git.hub import open_hub
from hypervisor.git.repository import discover
from hypervisor.git.stack import tree_of
from hypervisor.git.verify import MemoryCache, Verifier
from hypervisor.selftest.repositories import Repo, bare_clone

PATIENCE = 180.0  # seconds


@pytest.fixture
def repo(tmp_path):
    repo = Repo(tmp_path / "the repository")
    repo.commit({"f": "1\n", ".gitignore": "cache/\n"}, "first")
    return repo


@pytest.fixture
def hub(repo, tmp_path):
    return bare_clone(repo, tmp_path / "hub.git")


@pytest.fixture
def verifier_of(hub, tmp_path):
    def make(*commands, count=1, cache=None, time_limit=60.0):
        return Verifier(
            hub,
            Benches(hub, str(tmp_path / "benches"), "lane", count),
            commands,
            outputs=str(tmp_path / "verify"),
            cache=cache if cache is not None else MemoryCache(),
            environment={"PATH": os.environ["PATH"], "TMP": str(tmp_path), "GIT_DIR": "/nowhere"},
            time_limit=time_limit,
        )

    return make


def collect(repo, hub):
    """Bring new commits into the hub."""
    hub.run("fetch", "--quiet", str(repo.folder), "+refs/heads/*:refs/heads/*")


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_a_pass_and_a_failure_with_their_output(repo, hub, verifier_of):
    good, bad = repo.tip(), repo.branch("bad", "main", {"f": "2\n"})
    collect(repo, hub)
    verifier = verifier_of("echo checking", "grep 1 f")
    verdict = verifier.verify(good)
    assert (verdict.passed, verdict.exit_code, verdict.command) == (True, 0, "grep 1 f")
    assert Path(verdict.output_path).read_text() == "$ echo checking\nchecking\n$ grep 1 f\n1\n"
    verdict = verifier.verify(bad)
    assert (verdict.passed, verdict.exit_code) == (False, 1)
    assert verdict.reason == "grep 1 f: exited with 1"
    assert Path(verdict.output_path).name == f"{tree_of(hub, bad)}-{verifier.digest}.log"


def test_after_a_failure_the_other_commands_do_not_run(repo, verifier_of, tmp_path):
    verdict = verifier_of("false", f"touch '{tmp_path}/ran'").verify(repo.tip())
    assert (verdict.passed, verdict.command) == (False, "false")
    assert not (tmp_path / "ran").exists()


def test_the_bench_holds_exactly_the_tree(repo, hub, verifier_of, tmp_path):
    first = repo.tip()
    second = repo.commit({"f": None, "f/inside": "a folder now\n", "new": "x\n"})
    collect(repo, hub)
    litter = "git status --porcelain --untracked-files=all; "
    litter += "git write-tree; find . -path ./.git -prune -o -type f -print | sort; "
    litter += (
        "echo dirt > new; echo dirt > untracked; mkdir -p nested/.git cache; touch cache/warm; "
    )
    litter += "rm -rf f; git rm -q --cached new 2>/dev/null; true"
    verifier = verifier_of(litter)
    for commit in (first, second, first):
        verdict = verifier.verify(commit, again=commit == first)
        lines = Path(verdict.output_path).read_text().splitlines()[1:]
        names = repo.git.text("ls-tree", "-r", "--name-only", commit).split()
        expected = sorted(f"./{name}" for name in names)
        warm = ["./cache/warm"] if commit == second else []
        assert lines[0] == tree_of(repo.git, commit)
        assert sorted(lines[1:]) == sorted(expected + warm)


def test_a_verdict_is_kept_for_the_tree_and_the_commands(repo, hub, verifier_of, tmp_path):
    first = repo.tip()
    same_tree = repo.commit({}, "no change")
    collect(repo, hub)
    cache, count = MemoryCache(), f"echo >> '{tmp_path}/count'"
    verdict = verifier_of(count, cache=cache).verify(first)
    assert verifier_of(count, cache=cache).verify(same_tree) == verdict
    assert (tmp_path / "count").read_text() == "\n"
    verifier_of(count, "true", cache=cache).verify(first)
    assert (tmp_path / "count").read_text() == "\n\n"


def test_run_again_it_runs_again_and_both_outputs_stay(repo, verifier_of, tmp_path):
    flaky = f"test -e '{tmp_path}/seen' || {{ touch '{tmp_path}/seen'; echo first; exit 3; }}"
    verifier = verifier_of(flaky)
    first = verifier.verify(repo.tip())
    second = verifier.verify(repo.tip(), again=True)
    assert (first.passed, first.runs, second.passed, second.runs) == (False, 1, True, 2)
    assert "first" in Path(first.output_path).read_text()
    assert first.output_path != second.output_path
    assert verifier.known(repo.tip()) == second


def test_without_commands_it_says_that_nothing_was_verified(repo, verifier_of):
    verdict = verifier_of().verify(repo.tip())
    assert verdict.passed
    assert not verdict.verified
    assert "NOT VERIFIED" in verdict.reason


def test_what_hangs_is_killed_with_all_it_started(repo, verifier_of, tmp_path):
    hang = f"echo begun; setsid sh -c 'echo $$ > {tmp_path}/far; exec sleep 600' & sleep 600"
    verdict = verifier_of(hang, time_limit=2.0).verify(repo.tip())
    assert (verdict.passed, verdict.exit_code) == (False, None)
    assert verdict.reason == f"{hang}: took longer than 2 s"
    output = Path(verdict.output_path).read_text()
    assert "begun" in output
    assert output.endswith("took longer than 2 s\n")
    assert not alive(int((tmp_path / "far").read_text()))


def test_what_stays_in_the_background_ends_with_the_verification(repo, verifier_of, tmp_path):
    linger = f"setsid sh -c 'echo $$ > {tmp_path}/far; exec sleep 600' & "
    linger += f"until test -s '{tmp_path}/far'; do sleep 0.02; done"
    assert verifier_of(linger).verify(repo.tip()).passed
    assert not alive(int((tmp_path / "far").read_text()))


def test_as_many_at_a_time_as_there_are_benches(repo, hub, verifier_of, tmp_path):
    commits = [repo.tip(), *(repo.commit({"f": f"{n}\n"}) for n in range(2, 5))]
    collect(repo, hub)
    meet = f"touch '{tmp_path}'/at-$(cat f); until test $(ls '{tmp_path}'/at-* | wc -l) -ge 2; "
    meet += "do sleep 0.02; done; pwd"
    verifier = verifier_of(meet, count=2)
    verdicts = []
    threads = [
        threading.Thread(target=lambda commit=commit: verdicts.append(verifier.verify(commit)))
        for commit in commits
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [verdict.passed for verdict in verdicts] == [True] * 4
    folders = {Path(v.output_path).read_text().splitlines()[1] for v in verdicts}
    assert folders == {str(tmp_path / "benches" / f"lane-{n}") for n in range(2)}


def test_one_that_is_no_longer_needed_is_stopped(repo, verifier_of, tmp_path):
    cancel, cache = threading.Event(), MemoryCache()
    verifier = verifier_of(f"echo $$ > '{tmp_path}/pid'; sleep 600", cache=cache)
    outcome = []

    def work():
        try:
            verifier.verify(repo.tip(), cancel=cancel)
        except Cancelled:
            outcome.append("cancelled")

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    cancel.set()
    thread.join(PATIENCE)
    assert outcome == ["cancelled"]
    assert not alive(int((tmp_path / "pid").read_text()))
    assert cache.verdicts == {}


@pytest.mark.parametrize("damage", ["index.lock", "HEAD", "objects/info/alternates", ".git"])
def test_a_damaged_bench_is_repaired(repo, hub, verifier_of, tmp_path, damage):
    verifier = verifier_of("cat f")
    verifier.verify(repo.tip())
    path = tmp_path / "benches/lane-0/.git" / ("" if damage == ".git" else damage)
    if damage == ".git":
        path.rename(tmp_path / "gone")
    else:
        path.write_text("damaged")
    assert verifier.verify(repo.tip(), again=True).passed


KILLED = """
import sys
from hypervisor.git.bench import Benches
from hypervisor.git.command import Git
from hypervisor.git.verify import MemoryCache, Verifier
hub, commit, command, folder = Git(sys.argv[1]), *sys.argv[2:]
Verifier(hub, Benches(hub, folder + "/benches", "lane"), [command], outputs=folder + "/verify",
    cache=MemoryCache(), environment={"PATH": "/usr/bin:/bin"}).verify(commit)
"""


def test_what_a_killed_merger_left_running_ends_before_the_bench_is_used(
    repo, hub, verifier_of, tmp_path
):
    command = f"echo $$ > '{tmp_path}/pid'; sleep 600"
    words = [hub.folder, repo.tip(), command, str(tmp_path)]
    process = subprocess.Popen([sys.executable, "-c", KILLED, *words])
    pid = tmp_path / "pid"
    wait_for(lambda: pid.exists() and pid.read_text().strip())
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert alive(int(pid.read_text()))
    gone = f"! test -e /proc/{pid.read_text().strip()}/exe"
    assert verifier_of(gone).verify(repo.tip()).passed


def test_submodules_are_there_at_the_commit_that_the_tree_names(tmp_path):
    inner = Repo(tmp_path / "inner")
    inner.commit({"version": "1\n"})
    outer = Repo(tmp_path / "outer")
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    outer.git.run(*add, str(inner.folder), "lib")
    first = outer.commit({})
    second_inner = inner.commit({"version": "2\n"})
    lib = Git(str(outer.folder / "lib"))
    lib.run("fetch", "--quiet", str(inner.folder), "main")
    lib.run("checkout", "--quiet", "--detach", second_inner)
    second = outer.commit({})
    lib.run("branch", "second", second_inner)
    repository = discover(str(outer.folder))
    assert repository is not None
    hub = open_hub(str(tmp_path / "data"), repository).git
    verifier = Verifier(
        hub,
        Benches(hub, str(tmp_path / "benches"), "lane"),
        ["cat lib/version; echo changed > lib/version"],
        outputs=str(tmp_path / "verify"),
        cache=MemoryCache(),
        environment={"PATH": os.environ["PATH"]},
    )
    for commit, version in ((first, "1"), (second, "2"), (first, "1")):
        verdict = verifier.verify(commit, again=True)
        assert Path(verdict.output_path).read_text().splitlines()[1:] == [version]
