"""The merge queue as a whole: real commits, real verification, a real target."""

from __future__ import annotations

from pathlib import Path

import pytest

from hypervisor.git.decisions import (
    BaseFailed,
    EntryConflicted,
    EntryFailed,
    EntryLanded,
    FlakeFound,
    NotVerified,
    Verifying,
)
from hypervisor.git.merge_queue import MergeQueue
from hypervisor.git.stack import is_merged
from tests.git.queue_field import BRANCH, landed, names, only


@pytest.mark.parametrize("strategy", ["merge", "squash", "rebase"])
def test_all_land_with_one_verification_of_what_lands(field, strategy):
    entries = field.entries(5, strategy=strategy)
    decisions = field.run(entries)
    assert decisions[0] == Verifying(tuple(entries), field.base)
    assert landed(decisions) == names(5)
    tip = field.repo.tip(BRANCH)
    assert tip == decisions[-1].commit
    assert len(field.lines("run")) == 1
    assert field.passed(tip)
    for decision in decisions[1:]:
        assert decision.where == f"branch {BRANCH}"
        assert decision.verified
        assert field.hub.succeeds("merge-base", "--is-ancestor", decision.commit, tip)
        assert is_merged(field.hub, decision.entry.head, tip)
    assert field.hub.commit_of("refs/hv/lanes/lane/landed") == tip
    assert field.hub.commit_of("refs/hv/lanes/lane/landing") is None


def test_the_next_entries_go_on_top(field):
    first, second = field.entries(2)
    field.run([first])
    one = field.repo.tip(BRANCH)
    field.run([second])
    assert field.repo.git.text("rev-parse", f"{BRANCH}^1") == one


@pytest.mark.parametrize("culprit", [1, 2, 7, 16])
def test_a_culprit_among_16_is_found_in_5_runs_and_15_land(field, culprit):
    entries = field.entries(16, bad=(culprit,))
    decisions = []
    for decision in MergeQueue(field.lane()).run(entries):
        decisions.append(decision)
        if isinstance(decision, EntryFailed):
            runs = field.lines("run")
    failed = only(decisions, EntryFailed)
    assert failed.entry.id == f"t{culprit}"
    assert failed.after == culprit - 1
    assert f"{field.check}: exited with 1" in failed.reason
    assert "found bad" in Path(failed.verdict.output_path).read_text()
    base_tree = field.hub.text("rev-parse", f"{field.base}^{{tree}}")
    searching = [tree for tree in dict.fromkeys(runs) if tree != base_tree]
    assert len(searching) <= 5
    assert len(runs) <= len(searching) + 1 + (1 if culprit == 1 else 0)  # confirmed once; the base
    assert sorted(landed(decisions)) == sorted(names(16, without=(culprit,)))
    tip = field.repo.tip(BRANCH)
    assert field.passed(tip)
    assert field.repo.read(tip, f"bad-{culprit}") is None
    assert all(field.repo.read(tip, f"good-{n}") for n in range(1, 17) if n != culprit)
    # the rest is verified again without the culprit, unless that was a part of the search
    assert len(field.lines("run")) <= 5 + 1 + 1 + (1 if culprit == 1 else 0)


def test_two_culprits(field):
    decisions = field.run(field.entries(8, bad=(3, 6)))
    failed = [decision.entry.id for decision in decisions if isinstance(decision, EntryFailed)]
    assert failed == ["t3", "t6"]
    assert landed(decisions) == names(8, without=(3, 6))
    assert field.passed(field.repo.tip(BRANCH))


def test_two_that_fail_only_together(field):
    entries = field.entries(4)
    entries.insert(1, field.entry("one", {"one-half": "1\n"}))
    entries.insert(4, field.entry("other", {"other-half": "1\n"}))
    decisions = field.run(entries)
    failed = only(decisions, EntryFailed)
    assert failed.entry.id == "other"
    assert "merged after 4 others of the queue" in failed.reason
    assert sorted(landed(decisions)) == ["one", *names(4)]


def test_the_target_is_never_where_it_was_not_verified(field, tmp_path):
    field.repo.git.run("config", "core.logAllRefUpdates", "always")
    field.run(field.entries(8, bad=(2, 7)))
    moves = field.repo.git.text("reflog", "show", "--format=%H", f"refs/heads/{BRANCH}").split()
    assert len(moves) >= 2
    assert all(field.passed(commit) for commit in moves)


def test_a_flaky_verification_blames_no_one(field):
    once = 'test -e "{0}/$(git write-tree)" || {{ touch "{0}/$(git write-tree)"; exit 1; }}'
    (field.folder / "seen").mkdir()
    lane = field.lane(commands=[once.format(field.folder / "seen"), field.check])
    decisions = field.run(field.entries(6), lane)
    assert landed(decisions) == names(6)
    flake = next(decision for decision in decisions if isinstance(decision, FlakeFound))
    assert flake.reason.startswith("flaky verification: ")
    assert not [each for each in decisions if isinstance(each, EntryFailed | BaseFailed)]


def test_a_target_that_fails_itself_pauses_the_lane_with_one_line(field):
    entries = field.entries(4)
    decisions = field.run(entries, field.lane(commands=["echo broken; exit 7"]))
    assert [type(decision) for decision in decisions] == [Verifying, BaseFailed]
    reason = decisions[-1].reason
    assert reason.startswith(f"verification fails on {BRANCH} itself: echo broken; exit 7: exited")
    assert "\n" not in reason
    assert field.repo.tip(BRANCH) is None
    # Tried again once it is repaired, although the tree is the same.
    assert landed(field.run(entries)) == names(4)


def test_while_the_verification_itself_is_broken_no_one_is_blamed(field):
    """The target has passed before, and that is known; then a service is down."""
    first, second = field.entries(2)
    field.run([first])
    check = Path(field.check)
    working = check.read_text()
    check.write_text("#!/bin/sh\nexit 1\n")
    decisions = field.run([second])
    assert only(decisions, BaseFailed).tip == field.repo.tip(BRANCH)
    assert not [each for each in decisions if isinstance(each, EntryFailed)]
    check.write_text(working)
    assert landed(field.run([second])) == ["t2"]


def test_a_base_that_was_red_is_tried_again_later(field):
    entries, gate = field.entries(2), field.folder / "gate"
    commands = [f"test -e '{gate}'"]
    assert isinstance(field.run(entries, field.lane(commands=commands))[-1], BaseFailed)
    gate.touch()
    assert landed(field.run(entries, field.lane(commands=commands))) == names(2)


def test_a_lane_that_tries_again_by_itself_does_not_verify_a_failing_target_again(field):
    entries, count = field.entries(2), field.folder / "count"
    commands = [f"echo >> '{count}'; exit 1"]
    first = field.run(entries, field.lane(commands=commands))[-1]
    runs = count.read_text()
    again = field.run(entries, field.lane(commands=commands, recheck_base=False))
    assert again == [first]
    assert count.read_text() == runs
    field.repo.git.run("branch", BRANCH, field.repo.commit({"f": "repaired\n"}))
    field.run(entries, field.lane(commands=commands, recheck_base=False))
    assert len(count.read_text()) > len(runs)  # another target, another verification


def test_without_verification_it_says_so(field):
    decisions = field.run(field.entries(2), field.lane(commands=[]))
    assert "NOT VERIFIED" in only(decisions, NotVerified).reason
    assert landed(decisions) == names(2)
    assert not any(each.verified for each in decisions if isinstance(each, EntryLanded))


def test_a_conflict_with_what_landed(field):
    one, other = (field.entry(name, {"f": f"{name}\n"}) for name in ("one", "other"))
    decisions = field.run([one, other, *field.entries(2)])
    conflict = only(decisions, EntryConflicted)
    assert conflict.entry == other
    assert conflict.paths == ("f",)
    assert "CONFLICT" in conflict.message
    assert landed(decisions) == ["one", "t1", "t2"]
    assert field.repo.read(BRANCH, "f") == "one\n"


def test_no_conflict_with_what_does_not_land(field):
    bad = field.entry("one", {"f": "one\n", "bad-1": "1\n"})
    other = field.entry("other", {"f": "other\n"})
    decisions = field.run([bad, other])
    assert only(decisions, EntryFailed).entry == bad
    assert landed(decisions) == ["other"]


@pytest.mark.parametrize("strategy", ["merge", "squash", "rebase"])
def test_what_the_target_already_has_is_not_merged_again(field, strategy):
    entries = field.entries(2, strategy=strategy)
    field.run(entries)
    tip = field.repo.tip(BRANCH)
    decisions = field.run(entries)
    assert [decision.already for decision in decisions] == [True, True]
    assert field.repo.tip(BRANCH) == tip


def test_the_same_change_twice_in_one_queue_lands_once(field):
    one, same = (field.entry(name, {"x": "1\n"}) for name in ("one", "same"))
    decisions = field.run([one, same])
    assert [(each.entry.id, each.already) for each in decisions[1:]] == [
        ("one", False),
        ("same", True),
    ]


def test_more_entries_than_fit_into_a_stack(field):
    decisions = field.run(field.entries(5), field.lane(max_stack=2))
    assert landed(decisions) == names(5)
    assert len(field.lines("run")) == 3


def test_prefixes_are_verified_in_parallel(field):
    """Each waits until another one has started."""
    place = field.folder / "starts"
    place.mkdir()
    meet = f"touch '{place}'/$(git write-tree); until test $(ls '{place}' | wc -l) -ge 3; "
    meet += "do sleep 0.02; done"
    lane = field.lane(commands=[meet, field.check], width=3)
    decisions = field.run(field.entries(8, bad=(6,)), lane)
    assert only(decisions, EntryFailed).entry.id == "t6"
    assert landed(decisions) == names(8, without=(6,))
    assert field.passed(field.repo.tip(BRANCH))
