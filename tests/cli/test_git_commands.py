"""Workspaces and the merge queue from the command line: run, show, restore, decide."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from hypervisor.core.errors import EXIT_CODES, EXIT_UNSUCCESSFUL
from hypervisor.selftest.repositories import Repo
from tests.cli.conftest import until

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[2] / "docs/json-schema.json").read_text(encoding="utf-8")
)
WORKSPACE, INVALID = EXIT_CODES["workspace"], EXIT_CODES["invalid_input"]


@pytest.fixture
def hv(project):
    return project


@pytest.fixture
def repo(hv):
    """The project is a repository."""
    repo = Repo(hv.folder)
    ours = {".gitignore": ".hypervisor/\n"}
    repo.commit({"a.txt": "a\n", "b.txt": "b\n", "shared.txt": "start\n", **ours}, "first")
    return repo


def run(hv, script, *options, items=("a", "b"), name="edits"):
    given = [word for item in items for word in ("--item", item)]
    return hv("run", "--name", name, *given, *options, "--", "sh", "-c", script, "sh")


def described(command, value):
    """The value, after checking it against the command's definition in docs/json-schema.json."""
    jsonschema.validate(value, {**SCHEMA, "$ref": f"#/$defs/hv {command}"})
    return value


def task_in(hv, state):
    (task,) = [task for task in hv.json("ls") if task["state"] == state]
    return task["id"]


def test_work_is_merged_into_a_branch_and_shown(hv, repo):
    before = repo.tip("main")
    result = run(hv, "echo changed >> $1.txt", "--merge", "branch", "--verify", "test -f a.txt")
    assert result.code == 0, result
    tip = repo.tip("hv/edits")
    assert repo.read(tip, "a.txt") == "a\nchanged\n"
    assert repo.read(tip, "b.txt") == "b\nchanged\n"
    assert repo.tip("main") == before
    assert (hv.folder / "a.txt").read_text() == "a\n"
    shown = [described("show", hv.json("show", task["id"])) for task in hv.json("ls")]
    assert {one["merged"]["target"] for one in shown} == {"branch hv/edits"}
    assert tip in {one["merged"]["commit"] for one in shown}
    assert "on branch hv/edits" in hv.ok("show", shown[0]["detail"]["task"]["id"])
    told = described("summary", hv.json("summary", "edits"))
    assert {task["target"] for task in told["tasks"]} == {"branch hv/edits"}
    assert tip in {task["commit"] for task in told["tasks"]}
    assert f"({tip[:12]} on branch hv/edits)" in hv.ok("summary", "edits", "--all")
    assert hv.ok("queue") == "the merge queue is empty\n"


def test_it_says_loudly_that_nothing_is_verified(hv, repo):
    result = run(hv, "echo changed >> $1.txt", "--merge", "branch", items=["a"])
    assert "NOT VERIFIED: nothing is tested before it is merged; add --verify" in result.out
    (task,) = [task["id"] for task in hv.json("ls")]
    assert "(NOT VERIFIED)" in hv.ok("show", task)


def test_a_project_has_a_verification_of_its_own(hv, repo):
    """Used unless --verify is given, and by every way to submit a batch."""
    config = hv.folder / ".hypervisor" / "config.toml"
    config.write_text('[merge]\nverify = ["! grep bad *.txt"]\n')
    result = run(hv, "echo bad > $1.txt", "--merge", "branch", items=["a"])
    assert "verified with: ! grep bad *.txt" in result.out
    assert hv.task(task_in(hv, "review"))["reason"].startswith("verification failed")
    options = ("--merge", "branch", "--verify", "true")
    assert run(hv, "echo bad > $1.txt", *options, items=["a"], name="other").code == 0


def test_uncommitted_changes_are_named_and_stay_where_they_are(hv, repo):
    (hv.folder / "a.txt").write_text("mine\n")
    result = run(hv, "cat a.txt > seen.txt", "--workspace", "clone", items=["b"])
    assert "uncommitted changes are not part of the clones: a.txt" in result.out
    assert (hv.folder / "a.txt").read_text() == "mine\n"
    assert not (hv.folder / "seen.txt").exists()


def test_uncommitted_changes_can_be_the_base(hv, repo):
    (hv.folder / "a.txt").write_text("mine\n")
    (hv.folder / "new.txt").write_text("new\n")
    options = ("--merge", "branch", "--include-dirty", "--verify", "test -f new.txt")
    assert run(hv, "cat a.txt new.txt > seen-$1.txt", *options).code == 0
    assert repo.read(repo.tip("hv/edits"), "seen-a.txt") == "mine\nnew\n"
    assert repo.read(repo.tip("hv/edits"), "seen-b.txt") == "mine\nnew\n"
    assert (hv.folder / "a.txt").read_text() == "mine\n"
    assert repo.git.text("status", "--porcelain").splitlines() == [" M a.txt", "?? new.txt"]


def test_attempts_at_the_same_time_have_slots_of_their_own(hv, repo):
    script = "echo $HV_SLOT $HV_PORT_BASE > $1.slot; sleep 1"
    assert run(hv, script, "--workspace", "clone", "-j", "2").code == 0
    slots = [
        line
        for task in hv.json("ls")
        for line in hv.ok("diff", task["id"]).splitlines()
        if line.startswith("+") and not line.startswith("+++")
    ]
    assert sorted(slots) == ["+0 20000", "+1 20020"]


def test_what_a_cancelled_task_did_is_kept(hv, repo):
    started = hv.folder / "started"
    script = f"echo half > half.txt; touch '{started}'; sleep 60"
    assert run(hv, script, "--detach", "--workspace", "clone", items=["x"]).code == 0
    until(started.exists)
    (task,) = [task["id"] for task in hv.json("ls")]
    hv("cancel", task)
    until(lambda: hv.task(task)["state"] == "cancelled")
    assert "+half" in hv.ok("diff", task)


def test_what_fails_verification_goes_to_review_and_a_person_decides(hv, repo):
    script = "echo changed >> $1.txt"
    verify = "printf '\\033[31mred '; ! grep changed b.txt"
    result = run(hv, script, "--merge", "branch", "--verify", verify)
    assert result.code == EXIT_UNSUCCESSFUL
    task = task_in(hv, "review")
    assert "verification failed" in hv.task(task)["reason"]
    assert f"hv diff {task} " in result.out and "hv approve, reject or retry it" in result.out
    assert f"next        hv approve {task}, hv reject {task} or hv retry {task}" in hv.ok(
        "show", task
    )
    printed = ["$ printf '\\033[31mred '; ! grep changed b.txt", "red changed"]
    assert described("show", hv.json("show", task))["verification"] == printed
    assert "\n  ".join(["\nthe failed verification printed", *printed]) in hv.ok("show", task)
    assert "exited with 1: red changed; output: " in hv.ok("review")
    (waiting,) = described("review", hv.json("review"))
    assert (waiting["batch"], waiting["task"]["id"], waiting["chunk"]) == ("edits", task, None)
    assert repo.read(repo.tip("hv/edits"), "a.txt") == "a\nchanged\n"
    assert repo.read(repo.tip("hv/edits"), "b.txt") == "b\n"
    assert hv.ok("reject", task, "--reason", "not wanted") == ""
    assert (hv.task(task)["state"], hv.task(task)["reason"]) == ("failed", "not wanted")
    assert "cannot approve" in hv.refused(EXIT_CODES["wrong_state"], "approve", task)


def test_what_a_task_did_can_be_seen_and_restored(hv, repo, tmp_path):
    assert run(hv, "echo new > $1-new.txt", "--workspace", "clone", items=["a"]).code == 0
    (task,) = [task["id"] for task in hv.json("ls")]
    (snapshot,) = described("snapshots", hv.json("snapshots", task))
    assert (snapshot["attempt"], snapshot["number"], snapshot["files"]) == (1, 1, 1)
    described("diff", hv.json("diff", task))
    patch = hv.ok("diff", task)
    assert "+++ b/a-new.txt" in patch
    applied = subprocess.run(
        ["git", "apply", "--check"], cwd=hv.folder, input=patch.encode(), capture_output=True
    )
    assert applied.returncode == 0, applied
    assert "+1 -0  a-new.txt" in hv.ok("diff", task, "--stat")
    folder = tmp_path / "a folder"
    hv.ok("restore", task, "--to", str(folder))
    assert (folder / "a-new.txt").read_text() == "new\n"
    assert "not an empty folder" in hv.refused(INVALID, "restore", task, "--to", str(folder))
    hv.ok("restore", task, "--branch", "rescued")
    assert repo.read(repo.tip("rescued"), "a-new.txt") == "new\n"
    exists = hv.refused(EXIT_CODES["wrong_state"], "restore", task, "--branch", "rescued")
    assert "branch rescued already exists" in exists
    assert "no such snapshot" in hv.refused(4, "diff", task, "--snapshot", "7")


def test_the_target_is_the_branch_of_the_time_when_the_run_was_started(hv, repo):
    go = hv.folder / ".hypervisor" / "go"
    script = f"while [ ! -e '{go}' ]; do sleep 0.1; done; echo changed >> $1.txt"
    options = ("--merge", "local", "--verify", "true", "--detach")
    assert run(hv, script, *options, items=["a"]).code == 0
    repo.git.run("switch", "--quiet", "--create", "other")
    before = repo.tip("other")
    go.touch()
    (task,) = [task["id"] for task in hv.json("ls")]
    until(lambda: hv.json("queue") and hv.json("queue")[0]["paused"])
    assert "main is not checked out" in hv.ok("queue")
    assert repo.tip("other") == before
    repo.git.run("switch", "--quiet", "main")
    until(lambda: hv.task(task)["state"] == "done")
    assert (hv.folder / "a.txt").read_text() == "a\nchanged\n"
    assert repo.tip("other") == before


def test_a_conflict_in_a_file_that_is_not_utf8_stops_nothing(hv, repo):
    script = r"printf 'caf\351 %s\n' $1 > shared.txt; echo $1 > $1-new.txt"
    result = run(hv, script, "--merge", "branch", "--verify", "true")
    assert result.code == 0, result
    tip = repo.tip("hv/edits")
    assert {repo.read(tip, "a-new.txt"), repo.read(tip, "b-new.txt")} == {"a\n", "b\n"}


def test_work_with_a_file_that_is_too_large_goes_to_review(hv, repo):
    script = "head -c 11000000 /dev/zero > large.bin"
    result = run(hv, script, "--merge", "branch", "--verify", "true", items=["a"])
    assert result.code == EXIT_UNSUCCESSFUL
    task = task_in(hv, "review")
    assert "not in its commits: large.bin" in hv.task(task)["reason"]


def test_a_later_batch_starts_from_what_is_checked_out(hv, repo):
    options = ("--merge", "local", "--verify", "true")
    assert run(hv, "echo 1 >> a.txt", *options, items=["x"], name="one").code == 0
    repo.commit({"user.txt": "mine\n"}, "by the user")
    assert run(hv, "cp user.txt copy.txt", *options, items=["y"], name="two").code == 0
    assert (hv.folder / "copy.txt").read_text() == "mine\n"


def test_a_task_without_a_workspace_has_no_diff(hv):
    task = hv.add()
    for command in ("diff", "snapshots"):
        assert "has no snapshots" in hv.refused(4, command, task)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--verify", "true"), INVALID, "--verify works only with --merge"),
        (("--merge", "branch", "--target", "main"), WORKSPACE, "only branches below hv/"),
        (("--merge", "push"), WORKSPACE, "has no remote"),
        (("--merge", "push", "--include-dirty"), WORKSPACE, "would publish uncommitted changes"),
        (("--merge", "local", "--target", "gone"), WORKSPACE, "no such branch"),
        (("--base", "gone", "--workspace", "clone"), WORKSPACE, "has no commit 'gone'"),
        (("--merge", "branch", "--target", "hv/../x"), INVALID, "invalid branch name"),
        (("--workspace", "project", "--merge", "branch"), INVALID, "--workspace clone"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(hv, repo, options, code, message):
    result = run(hv, "true", *options)
    assert (result.code, result.out) == (code, ""), result
    assert message in result.err
    assert hv.json("ls") == []


def test_outside_a_repository(hv):
    result = run(hv, "true", "--workspace", "clone")
    assert result.code == INVALID
    assert "is not in a git repository" in result.err


def waiting_queue(hv, repo, script="echo changed >> $1.txt"):
    """A run whose work is being verified until the returned file exists."""
    door = hv.folder.parent / "open the door"
    verify = f"until [ -e '{door}' ]; do sleep 0.05; done"
    options = ("--merge", "branch", "--verify", verify, "--detach")
    assert run(hv, script, *options).code == 0
    until(lambda: any(lane["lane"] for lane in hv.json("queue")))
    return door


def test_the_queue_is_live_on_a_terminal_until_it_is_empty(hv, repo):
    door = waiting_queue(hv, repo)
    terminal = hv.terminal("queue", columns=100, rows=20)
    shown = terminal.wait_for(lambda text: "hv/edits in" in text and "q: quit" in text)
    assert {"a", "b"} & {line.split()[-1] for line in shown.splitlines() if line.strip()}
    door.touch()
    text = terminal.wait_for("the merge queue is empty")
    assert "on branch hv/edits" in text and "q: quit" not in text
    assert terminal.wait() == 0


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_the_live_queue_ends_on_request_and_nothing_stops(hv, repo, key):
    door = waiting_queue(hv, repo)
    terminal = hv.terminal("queue")
    terminal.wait_for("q: quit")
    terminal.press(key)
    assert terminal.wait() == 0
    piped = hv.ok("queue")
    assert "hv/edits in" in piped and "\x1b" not in piped and "quit" not in piped
    door.touch()
    until(lambda: {task["state"] for task in hv.json("ls")} == {"done"})
