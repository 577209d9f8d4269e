"""Whole runs in one repository: clones, a merge queue, and what happens when processes die."""

from __future__ import annotations

import json
import time

from hypervisor.queue.sql import agent_sessions, merging
from hypervisor.queue.task import NewTask
from hypervisor.runs.spec import AgentSpec, GitSpec, RunSpec
from tests.git.whole_runs import DEADLINE, runs, submit, wait
from tests.support import standin


def test_what_tasks_change_lands_on_a_branch_of_ours(tmp_path):
    with runs(tmp_path) as (repo, hv):
        before = repo.git.text("for-each-ref"), repo.git.text("status", "--porcelain")
        submit(hv, repo, "echo changed >> f{}.txt", range(4), verify=("test -f f0.txt",))
        tasks = wait(hv, 4)
        assert {task.state for task in tasks.values()} == {"done"}
        tip = repo.tip("hv/edits")
        for number in range(4):
            assert repo.read(tip, f"f{number}.txt") == f"line {number}\nchanged\n"
        assert repo.read(tip, "f4.txt") == "line 4\n"
        after = [
            line
            for line in repo.git.text("for-each-ref").splitlines()
            if "refs/heads/hv/" not in line
        ]
        assert ("\n".join(after), repo.git.text("status", "--porcelain")) == before
        merges = [event for event in hv.events(limit=10_000) if event.kind == "merge"]
        assert len(merges) == 4
        assert all(event.data["target"] == "branch hv/edits" for event in merges)


def landed_once(repo, tip, path, lines):
    text = repo.read(tip, path) or ""
    return sorted(text.split()) == sorted(lines)


def test_work_that_overlaps_is_done_again_on_top_of_what_landed(tmp_path):
    with runs(tmp_path) as (repo, hv):
        script = 'case {} in [0-5]) f=f{}.txt;; *) f=shared.txt;; esac; echo "by {}" >> $f'
        submit(hv, repo, script, range(8))
        tasks = wait(hv, 8)
        assert {task.state for task in tasks.values()} == {"done"}
        tip = repo.tip("hv/edits")
        assert landed_once(repo, tip, "shared.txt", ["start", "by", "6", "by", "7"])
        for number in range(6):
            assert repo.read(tip, f"f{number}.txt") == f"line {number}\nby {number}\n"


def test_no_change_changes_elsewhere_and_failing_work(tmp_path):
    with runs(tmp_path) as (repo, hv):
        script = "case {} in nothing) ;; out) echo x >> f1.txt;; bad) echo x >> bad.txt;; esac"
        given = {"data": {"files": ["f0.txt", "bad.txt"]}, "verify": ("test ! -e bad.txt",)}
        submit(hv, repo, script, ["nothing", "out", "bad"], **given)
        tasks = wait(hv, 3)
        assert tasks["nothing"].state == "done"
        assert tasks["out"].state == "review"
        assert tasks["out"].reason == "changed files outside its scope: f1.txt"
        assert tasks["bad"].state == "review" and tasks["bad"].attempts == 3
        assert "test ! -e bad.txt: exited with 1" in (tasks["bad"].reason or "")
        assert repo.tip("hv/edits") is None
        hv.store.write(merging.approve, tasks["out"].id, "fine", "ann", now=hv.now())
        assert wait(hv, 3)["out"].state == "done"
        assert repo.read(repo.tip("hv/edits"), "f1.txt") == "line 1\nx\n"


def test_an_agent_continues_its_session_to_resolve_a_conflict(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_KEY", "secret")
    with runs(tmp_path, standin.config(tmp_path / "agents")) as (repo, hv):
        spec = RunSpec(
            str(repo.folder),
            AgentSpec("fake-claude", agents=("fake-claude",), prompt="act-overlaps-2"),
            workers=2,
            workspace="clone",
            git=GitSpec(merge="branch"),
        )
        hv.submit(spec, [NewTask(name, type="run", key=name) for name in ("one", "two")], "talk")
        hv.supervise()
        tasks = wait(hv, 2)
        assert {task.state for task in tasks.values()} == {"done"}, hv.events(limit=1000)
        assert sorted(task.attempts for task in tasks.values()) == [1, 2]
        lines = (repo.read(repo.tip("hv/talk"), "shared.txt") or "").splitlines()
        assert sorted(lines) == sorted(["start", *(f"by {task.id}" for task in tasks.values())])
        (late,) = (task for task in tasks.values() if task.attempts == 2)
        sessions = hv.store.read(agent_sessions.sessions, task=late.id)
        assert [bool(each.resumes) for each in sessions] == [True, False]


def test_a_conflict_that_an_agent_leaves_goes_to_a_new_session(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_KEY", "secret")
    with runs(tmp_path, standin.config(tmp_path / "agents")) as (repo, hv):
        spec = RunSpec(
            str(repo.folder),
            AgentSpec("fake-claude", agents=("fake-claude",), prompt="act-careless-2"),
            workers=2,
            workspace="clone",
            git=GitSpec(merge="branch"),
        )
        hv.submit(spec, [NewTask(name, type="run", key=name) for name in ("one", "two")], "talk")
        hv.supervise()
        tasks = wait(hv, 2)
        assert {task.state for task in tasks.values()} == {"done"}, hv.events(limit=1000)
        assert sorted(task.attempts for task in tasks.values()) == [1, 3]
        lines = (repo.read(repo.tip("hv/talk"), "shared.txt") or "").splitlines()
        assert sorted(lines) == sorted(["start", *(f"by {task.id}" for task in tasks.values())])
        (late,) = (task for task in tasks.values() if task.attempts == 3)
        sessions = hv.store.read(agent_sessions.sessions, task=late.id)
        assert [bool(session.resumes) for session in sessions] == [False, True, False]
        reasons = [
            event.data["reason"] for event in hv.events(limit=1000) if event.kind == "rework"
        ]
        assert reasons[-1] == "conflicts are not resolved: shared.txt"


def test_an_agent_resolves_a_conflict_with_a_commit_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_KEY", "secret")
    provider = tmp_path / "agents" / "provider"
    with runs(tmp_path, standin.config(tmp_path / "agents")) as (repo, hv):
        base = repo.tip("main")
        spec = RunSpec(
            str(repo.folder),
            AgentSpec("fake-claude", agents=("fake-claude",), prompt="act-overlaps-2"),
            workspace="clone",
            git=GitSpec(merge="local"),
        )
        hv.submit(spec, [NewTask("one", type="run", key="one")], "talk")
        hv.supervise()
        deadline = time.monotonic() + DEADLINE
        while not (provider / "overlaps").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        theirs = repo.commit({"shared.txt": "start\nby the user\n"}, "by the user")
        with open(provider / "overlaps", "a", encoding="utf-8") as others:
            others.write("the user\n")  # the agent continues
        task = wait(hv, 1)["one"]
        assert (task.state, task.attempts) == ("done", 2), hv.events(limit=1000)
        sessions = hv.store.read(agent_sessions.sessions, task=task.id)
        assert [bool(each.resumes) for each in sessions] == [True, False]
        given = json.loads((provider / f"returned-{task.id}").read_text())
        assert f"conflict in shared.txt with {theirs[:12]}" in given["prompt"]
        assert f"Common base: {base}" in given["prompt"]
        for line in ("by the user", f"by {task.id}"):
            assert f"\n+{line}\n" in given["prompt"]
            assert f"\n{line}\n" in given["file"]
        assert "<<<<<<<" in given["file"]
        lines = (repo.read("main", "shared.txt") or "").splitlines()
        assert sorted(lines) == sorted(["start", "by the user", f"by {task.id}"])
        assert repo.git.succeeds("merge-base", "--is-ancestor", theirs, "main")
