"""`hv run` in clones of a repository: what people are told before and after."""

from __future__ import annotations

import subprocess

import pytest

from tests.git.support import commit_files, init


@pytest.fixture
def hv(project):
    init(project.folder / "repository")
    commit_files(project.folder / "repository", {"a.txt": "a\n"})
    return project


def run(hv, *words):
    command = ("run", "--cwd", str(hv.folder / "repository"), "--item", "b.txt", "--name", "b")
    return hv(*command, *words, "--", "touch", "{}")


def test_the_end_of_a_run_says_where_the_work_is(hv):
    done = run(hv, "--workspace", "clone")
    assert done.code == 0 and "hv diff TASK" in done.out and "hv land b" in done.out
    git = ["git", "-C", str(hv.folder / "repository"), "status", "--short"]
    assert subprocess.run(git, capture_output=True, check=True).stdout == b""


def test_uncommitted_changes_are_named_before_the_run(hv):
    (hv.folder / "repository" / "a.txt").write_text("dirty\n")
    done = run(hv, "--workspace", "clone")
    assert "not part of the clones: a.txt (--include-dirty starts from them)" in done.out


def test_work_in_the_project_is_not_looked_for_in_clones(hv):
    done = run(hv)
    assert done.code == 0 and "hv diff" not in done.out
    assert (hv.folder / "repository" / "b.txt").exists()


def test_tasks_that_wait_for_others_need_a_merge_to_see_their_work(hv):
    first, second = "# First\n\nDo it.\n", "---\ndepends_on: [one.md]\n---\n# Second\n\nDo it.\n"
    commit_files(hv.folder / "repository", {"t/one.md": first, "t/two.md": second})
    words = ("run", "--cwd", ".", "--items", "t/", "--name", "b", "--workspace", "clone")
    done = hv(*words, "--", "true", "{}", cwd=hv.folder / "repository")
    assert "do not see their changes; --merge branch changes that" in done.out, done


def test_items_that_are_not_committed_are_refused_before_anything_starts(hv):
    folder = hv.folder / "repository"
    for name in ("b.txt", "c.txt"):
        (folder / name).write_text("new\n")
    for words in ((), ("--dry-run",), ("--json", "--detach")):
        refused = run(hv, "--item", "c.txt", "--item", "a.txt", "--workspace", "clone", *words)
        assert refused.code == 13, refused
        assert (
            "2 items are not committed, so the clones do not have them: b.txt, c.txt; commit them, "
            "or use --include-dirty or --workspace project. Nothing was started."
        ) in refused.err
    assert hv("status", "b").code != 0
    assert run(hv, "--workspace", "clone", "--include-dirty", "--dry-run").code == 0


def test_preflight_finds_items_that_are_not_committed(hv):
    words = ("--cwd", str(hv.folder / "repository"), "--item", "b.txt", "--workspace", "clone")
    assert hv("preflight", *words, "--", "cat", "{}").code == 0
    (hv.folder / "repository" / "b.txt").write_text("new\n")
    checked = hv("preflight", *words, "--", "cat", "{}")
    assert checked.code != 0 and "1 item is not committed" in checked.out


def test_items_with_uncommitted_changes_are_named(hv):
    folder = hv.folder / "repository"
    commit_files(folder, {"b.txt": "b\n"})
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("dirty\n")
    for words in (("--dry-run",), ()):
        done = run(hv, "--workspace", "clone", *words)
        assert done.code == 0
        assert "a.txt, b.txt; 1 item among them: b.txt (--include-dirty starts" in done.out, done


@pytest.mark.parametrize("options", [("--workspace", "clone"), ("--merge", "branch")])
def test_tasks_that_changed_nothing_are_counted_and_named(hv, options):
    words = ("run", "--cwd", str(hv.folder / "repository"), "--name", "b", *options)
    items = [word for n in range(3) for word in ("--item", str(n))]
    done = hv(*words, *items, "--shell", "--", "test {} != 2 || echo new > new.txt")
    assert done.code == 0 and "\n  2 changed nothing\n" in done.out, done
    total = hv.json("summary", "b")
    assert total["unchanged"] == 2
    unchanged = {task["title"]: task["unchanged"] for task in total["tasks"]}
    assert unchanged == {"0": True, "1": True, "2": False}
    text = hv.ok("summary", "b")
    assert "\n  2 changed nothing\n" in text and text.count("(changed nothing)") == 2
    for task in total["tasks"]:
        assert hv.json("show", task["id"])["unchanged"] is task["unchanged"]
        assert ("  changed     nothing\n" in hv.ok("show", task["id"])) is task["unchanged"]
