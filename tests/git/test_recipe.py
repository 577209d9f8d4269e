"""Recipes: ignored files, caches and commands make a workspace usable; slots keep ports apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from hypervisor.core.errors import InvalidInput, NotCollected, WorkspaceError
from hypervisor.git import recipe as recipes
from hypervisor.git.collect import collect
from hypervisor.git.recipe import bring_files, run_commands
from hypervisor.git.slots import take_slot
from hypervisor.git.snapshot import take
from hypervisor.git.work_tree import Limits
from hypervisor.runs.config import WorkspaceSettings, settings_from
from tests.git.support import agent, files_at, wait_until, write_files


def test_ignored_files_come_along(workspace, repository, checkout):
    files = {".env.log": "secret\n", "deep/x.log": "x\n", "other.log": "no\n", "plain": "no\n"}
    write_files(checkout, files)
    (checkout / ".worktreeinclude").write_text("deep/*.log\nplain\n")
    os.chmod(checkout / ".env.log", 0o600)
    brought = bring_files(repository, workspace, WorkspaceSettings(include=(".env.*",)))
    (checkout / ".worktreeinclude").unlink()
    for name in files:
        (checkout / name).unlink()
    (checkout / "deep").rmdir()
    assert sorted(brought.paths) == [".env.log", "deep/x.log"] and not brought.skipped
    assert os.stat(os.path.join(workspace.folder, ".env.log")).st_mode & 0o777 == 0o600
    assert agent(workspace.folder, "git status --porcelain") == ""


def test_nothing_is_replaced_and_large_files_are_named(workspace, repository, checkout):
    write_files(checkout, {"a.log": "user\n", "b.log": "x" * 100})
    agent(workspace.folder, "echo agent > a.log")
    brought = bring_files(
        repository, workspace, WorkspaceSettings(include=("*.log",)), Limits(file=50)
    )
    for name in ("a.log", "b.log"):
        (checkout / name).unlink()
    assert brought.paths == () and brought.skipped == ("b.log: 100 bytes is too large",)
    assert agent(workspace.folder, "cat a.log") == "agent\n"


def test_caches_are_copied_or_skipped(workspace, repository, checkout, monkeypatch):
    write_files(checkout, {"cache.log/x": "x\n", "cache.log/deep/y": "y\n"})
    os.chmod(checkout / "cache.log" / "x", 0o755)
    monkeypatch.setattr(recipes, "_can_share", lambda *_: False)
    monkeypatch.setattr(recipes, "MAX_PLAIN_COPY", 3)
    recipe = WorkspaceSettings(caches=("cache.log", "gone.log"))
    [small, gone] = bring_files(repository, workspace, recipe).skipped
    assert "4 bytes is too much to copy" in small and gone == "gone.log: not a folder"
    monkeypatch.setattr(recipes, "MAX_PLAIN_COPY", 4)
    assert bring_files(repository, workspace, recipe).paths == ("cache.log",)
    assert agent(workspace.folder, "cat cache.log/deep/y; test -x cache.log/x") == "y\n"
    assert bring_files(repository, workspace, recipe).skipped[0] == "cache.log: already there"
    subprocess.run(["rm", "-r", str(checkout / "cache.log")], check=True)


def test_commands_run_until_one_fails(tmp_path):
    output = tmp_path / "out"
    commands = ("echo $HV_SLOT; pwd", "exit 3", "echo never")
    env = {"PATH": os.defpath, "HV_SLOT": "7"}
    ran = run_commands(commands, str(tmp_path), env, str(output), timeout=180)
    assert [each.exit_code for each in ran] == [0, 3]
    text = output.read_text()
    assert text.startswith(f"$ echo $HV_SLOT; pwd\n7\n{tmp_path}\n") and "never" not in text


def test_a_command_that_takes_too_long_ends_with_its_children(tmp_path):
    output, pid = tmp_path / "out", tmp_path / "pid"
    command = f"sleep 60 & echo $! > {pid}; wait"
    [ran] = run_commands((command,), str(tmp_path), dict(os.environ), str(output), timeout=1)
    assert ran.exit_code is None and "killed after 1 s" in output.read_text()
    exe = f"/proc/{pid.read_text().strip()}/exe"
    assert wait_until(lambda: not os.path.exists(exe))


def test_a_command_ends_when_the_attempt_must(tmp_path):
    def look():
        raise KeyError("stop")

    with pytest.raises(KeyError):
        run_commands(("sleep 600",), str(tmp_path), {}, str(tmp_path / "o"), timeout=180, look=look)


def test_brought_files_stay_out_of_snapshots_and_commits(workspace, repository, checkout):
    """Even if the agent changes .gitignore or adds them by force: they may be secret."""
    write_files(checkout, {".env.log": "secret\n", "cache.log/x": "x\n"})
    recipe = WorkspaceSettings(include=(".env.*",), caches=("cache.log",))
    bring_files(repository, workspace, recipe)
    subprocess.run(["rm", "-r", ".env.log", "cache.log"], cwd=checkout, check=True)
    agent(workspace.folder, "echo > .gitignore; echo work > w.txt; git add -f .env.log")
    snapshot = take(workspace, "t", 1, "test", now=1)
    assert set(files_at(workspace.hub.git, snapshot.commit)) >= {"w.txt", ".gitignore"}
    assert not any(".log" in name for name in files_at(workspace.hub.git, snapshot.commit))
    assert not any(".log" in path for path in _collected(workspace).changed_paths)
    agent(workspace.folder, "git -c user.name=a -c user.email=a@b.c commit -qm all")
    with pytest.raises(NotCollected, match=r"copied into the clone: \.env\.log"):
        _collected(workspace)


def _collected(workspace):
    return collect(workspace, "t", 1, "work", {}, now=2)


def test_from_the_configuration():
    table = {"include": [".env"], "setup": "make deps", "teardown": ["make clean", "true"]}
    more = {"caches": ["node_modules/"], "timeout": "5s", "snapshots": 3, "keep_days": 1}
    settings = settings_from({"workspace": {**table, **more}}).workspace
    assert settings == WorkspaceSettings(
        (".env",), ("node_modules",), ("make deps",), ("make clean", "true"), 5_000, 3, 1
    )
    assert settings_from({}).workspace == WorkspaceSettings()


@pytest.mark.parametrize(
    "table",
    [
        [],
        {"setups": "x"},
        {"include": ".env"},
        {"include": [1]},
        {"caches": ["../x"]},
        {"caches": ["/x"]},
        {"caches": [".git/x"]},
        {"caches": ["."]},
        {"timeout": 0},
        {"timeout": True},
        {"setup": [""]},
        {"setup": [["x"]]},
        {"setup": 5},
    ],
)
def test_a_wrong_configuration(table):
    with pytest.raises(InvalidInput, match="workspace"):
        settings_from({"workspace": table})


def test_slots_are_apart(tmp_path):
    slots = [take_slot(str(tmp_path), 3) for _ in range(3)]
    assert [slot.number for slot in slots] == [0, 1, 2]
    assert slots[1].environment == {"HV_SLOT": "1", "HV_PORT_BASE": "20020"}
    with pytest.raises(WorkspaceError, match="all 3 slots are in use"):
        take_slot(str(tmp_path), 3)
    slots[1].close()
    slots[1].close()
    assert take_slot(str(tmp_path), 3).number == 1


def test_a_slot_is_free_when_its_holder_is_killed(tmp_path):
    script = (
        "import sys, time; from hypervisor.git.slots import take_slot\n"
        "slot = take_slot(sys.argv[1], 1); print('held', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", script, str(tmp_path)]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(WorkspaceError):
        take_slot(str(tmp_path), 1)
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=180)
    assert take_slot(str(tmp_path), 1).number == 0
