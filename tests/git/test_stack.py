"""Stacking: merge, squash and rebase without a checkout; what is already merged is recognized."""

from __future__ import annotations

import pytest

from hypervisor.git.stack import Conflict, Stacked, is_merged, stack, tree_of
from hypervisor.selftest.repositories import Repo, bare_clone

LINES = "".join(f"{n}\n" for n in range(1, 21))


@pytest.fixture
def repo(tmp_path):
    repo = Repo(tmp_path / "a repository")
    repo.commit({"f": LINES, "g": "g\n"}, "first")
    return repo


def on_top(repo, tip, head, base, strategy="merge"):
    stacked = stack(repo.git, tip, head, base=base, strategy=strategy, message="Task\n\nTrailer: 1")
    assert isinstance(stacked, Stacked), stacked
    return stacked


@pytest.mark.parametrize("strategy", ["merge", "squash", "rebase"])
def test_entries_pile_up_each_on_the_one_before(repo, strategy):
    base = repo.tip()
    heads = [repo.branch(f"b{n}", base, {f"new{n}": f"{n}\n"}) for n in range(3)]
    tip = base
    for head in heads:
        stacked = on_top(repo, tip, head, base, strategy)
        assert not stacked.unchanged
        assert stacked.tree == tree_of(repo.git, stacked.commit)
        assert repo.git.text("rev-parse", f"{stacked.commit}^1") == tip
        tip = stacked.commit
    assert [repo.read(tip, f"new{n}") for n in range(3)] == ["0\n", "1\n", "2\n"]
    assert repo.tip() == base  # no ref moves


def test_a_merge_has_the_head_as_second_parent_a_squash_does_not(repo):
    base = repo.tip()
    head = repo.branch("b", base, {"x": "1\n"}, {"x": "2\n"})
    merge, squash = (on_top(repo, base, head, base, s).commit for s in ("merge", "squash"))
    assert repo.git.text("rev-parse", f"{merge}^2") == head
    assert repo.git.text("log", "-1", "--format=%P", squash) == base
    assert repo.git.text("log", "-1", "--format=%B", squash) == "Task\n\nTrailer: 1"


def test_a_rebase_keeps_the_commits_with_author_and_message(repo):
    base = repo.tip()
    head = repo.branch("b", base, {"x": "1\n"}, {"y": "2\n"})
    tip = repo.commit({"z": "3\n"})
    result = on_top(repo, tip, head, base, "rebase").commit
    assert repo.git.text("log", "--format=%s", f"{tip}..{result}") == "b 2\nb 1"
    before, after = (
        repo.git.text("log", "--format=%an %ae %ad", commits)
        for commits in (f"{base}..{head}", f"{tip}..{result}")
    )
    assert before == after
    assert not repo.git.text("rev-list", "--merges", result)


def test_a_rebase_drops_what_the_target_already_has(repo):
    base = repo.tip()
    head = repo.branch("b", base, {"x": "1\n"}, {"y": "2\n"})
    tip = repo.commit({"x": "1\n"}, "the same")
    result = on_top(repo, tip, head, base, "rebase").commit
    assert repo.git.text("log", "--format=%s", f"{tip}..{result}") == "b 2"


def test_a_rebase_of_merge_commits_becomes_one_commit_with_their_resolution(repo):
    base = repo.tip()
    head = repo.branch("b", base, {"f": LINES.replace("5\n", "five\n", 1)})
    tip = repo.commit({"f": LINES.replace("5\n", "FIVE\n", 1)})
    assert isinstance(stack(repo.git, tip, head, base=base, message="m"), Conflict)
    repo.git.run("checkout", "--quiet", "b")
    repo.git.run("merge", "--quiet", "--strategy=ours", "-m", "resolved", tip)
    resolved = repo.tip("b")
    result = on_top(repo, tip, resolved, base, "rebase")
    assert repo.git.text("log", "-1", "--format=%P", result.commit) == tip
    assert "five" in repo.read(result.commit, "f")


@pytest.mark.parametrize("strategy", ["merge", "squash", "rebase"])
def test_the_same_again_is_the_same_commit(repo, strategy):
    base = repo.tip()
    head = repo.branch("b", base, {"x": "1\n"}, {"y": "2\n"})
    tip = repo.commit({"z": "3\n"})
    first, second = (on_top(repo, tip, head, base, strategy) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("strategy", ["merge", "squash", "rebase"])
def test_a_conflict_names_the_files_and_leaves_nothing(repo, strategy):
    base = repo.tip()
    head = repo.branch("b", base, {"f": "mine\n", "ok": "1\n"})
    tip = repo.commit({"f": "theirs\n"})
    conflict = stack(repo.git, tip, head, base=base, strategy=strategy, message="m")
    assert isinstance(conflict, Conflict)
    assert conflict.paths == ("f",)
    assert "CONFLICT (content): Merge conflict in f" in conflict.message


def test_a_file_changed_here_and_deleted_there(repo):
    base = repo.tip()
    head = repo.branch("b", base, {"f": None})
    tip = repo.commit({"f": "theirs\n"})
    conflict = stack(repo.git, tip, head, base=base, message="m")
    assert isinstance(conflict, Conflict)
    assert conflict.paths == ("f",)
    assert "modify/delete" in conflict.message


def test_unrelated_history_is_a_conflict(repo):
    base = repo.tip()
    repo.git.run("checkout", "--quiet", "--orphan", "other")
    head = repo.commit({"o": "1\n"})
    conflict = stack(repo.git, base, head, base=base, message="m")
    assert conflict == Conflict((), "the commits have no common history with the target")


def test_odd_file_names_in_conflicts(repo):
    name = "a folder/with\nnewline ü"
    base = repo.commit({name: "1\n"})
    head = repo.branch("b", base, {name: "2\n"})
    tip = repo.commit({name: "3\n"})
    conflict = stack(repo.git, tip, head, base=base, message="m")
    assert isinstance(conflict, Conflict)
    assert conflict.paths == (name,)


@pytest.mark.parametrize("strategy", ["merge", "squash", "rebase"])
def test_what_landed_is_recognised_as_merged_also_later(repo, strategy):
    base = repo.tip()
    head = repo.branch("b", base, {"f": LINES.replace("5\n", "five\n", 1)}, {"x": "2\n"})
    assert not is_merged(repo.git, head, base)
    landed = on_top(repo, base, head, base, strategy).commit
    repo.git.run("reset", "--quiet", "--hard", landed)
    later = repo.commit({"other": "1\n", "f": (repo.read(landed, "f") or "") + "21\n"})
    for target in (landed, later):
        assert is_merged(repo.git, head, target)
        again = stack(repo.git, target, head, base=base, strategy=strategy, message="m")
        assert again == Stacked(target, tree_of(repo.git, target), unchanged=True)


def test_a_change_that_conflicts_is_not_merged(repo):
    base = repo.tip()
    head = repo.branch("b", base, {"f": "mine\n"})
    assert not is_merged(repo.git, head, repo.commit({"f": "theirs\n"}))


@pytest.mark.parametrize("strategy", ["merge", "squash", "rebase"])
def test_attributes_of_the_target_count_though_the_hub_has_no_files(repo, tmp_path, strategy):
    base = repo.commit({"NEWS": "0\n", ".gitattributes": "NEWS merge=union\n"})
    heads = [repo.branch(f"b{n}", base, {"NEWS": f"0\n{n}\n"}) for n in (1, 2)]
    hub = bare_clone(repo, tmp_path / "hub.git")
    tip = base
    for head in heads:
        stacked = stack(hub, tip, head, base=base, strategy=strategy, message="m")
        assert isinstance(stacked, Stacked)
        tip = stacked.commit
    assert hub.text("show", f"{tip}:NEWS").split() == ["0", "1", "2"]
