"""Merge queues whose target moves, refuses or vanishes, and callers that stop half-way."""

from __future__ import annotations

import os
from pathlib import Path

from hypervisor.git.decisions import (
    EntryLanded,
    LandingRefused,
    TargetMoved,
    TargetUnreachable,
    Verifying,
)
from hypervisor.git.landing import Destination
from hypervisor.git.lane_refs import LaneRefs
from hypervisor.git.merge_queue import MergeQueue
from hypervisor.selftest.repositories import bare_clone, write_script
from tests.git.queue_field import BRANCH, landed, names, only


def remote_of(field):
    remote = bare_clone(field.repo, field.folder / "remote.git")
    field.repo.git.run("remote", "add", "origin", f"file://{remote.folder}")
    hooks = Path(remote.folder, "hooks")
    moves = f"#!/bin/sh\nwhile read old new ref; do echo $new >> '{field.folder}/moves'; done\n"
    write_script(hooks / "post-receive", moves)
    return remote, Destination(field.hub, str(field.repo.folder), "lane", "main", "push")


def push_theirs(field, number):
    field.repo.git.run("checkout", "--quiet", "-B", "theirs", "main" if number == 1 else "theirs")
    commit = field.repo.commit({f"theirs-{number}": "1\n"})
    field.repo.git.run("push", "--quiet", "origin", "theirs:main")
    return commit


def test_a_remote_that_moves_means_stacking_and_verifying_again(field):
    remote, pushing = remote_of(field)
    theirs: list[str] = []
    decisions = []
    for decision in MergeQueue(field.lane(pushing)).run(field.entries(3)):
        if isinstance(decision, Verifying) and len(theirs) < 2:
            theirs.append(push_theirs(field, len(theirs) + 1))
        decisions.append(decision)
    moved = [decision.new for decision in decisions if isinstance(decision, TargetMoved)]
    assert moved == theirs
    assert landed(decisions) == names(3)
    tip = remote.commit_of("refs/heads/main")
    assert field.passed(tip)
    assert len(field.lines("run")) == 3
    ours = [move for move in (field.folder / "moves").read_text().split() if move not in theirs]
    assert ours == [tip]


def test_a_remote_that_rejects_pauses_and_keeps_all_entries(field):
    remote, pushing = remote_of(field)
    hook = Path(remote.folder, "hooks", "pre-receive")
    write_script(hook, "#!/bin/sh\necho main is frozen\nexit 1\n")
    entries = field.entries(2)
    decisions = field.run(entries, field.lane(pushing))
    assert "main is frozen" in only(decisions, LandingRefused).reason
    assert landed(decisions) == []
    hook.unlink()
    assert landed(field.run(entries, field.lane(pushing))) == names(2)
    assert len(field.lines("run")) == 1


def test_a_remote_that_drops_what_it_accepted(field):
    remote, pushing = remote_of(field)
    hook = Path(remote.folder, "hooks", "post-receive")
    write_script(hook, f"#!/bin/sh\ngit update-ref refs/heads/main {field.base}\n")
    decisions = field.run(field.entries(2), field.lane(pushing))
    assert "does not show it" in only(decisions, LandingRefused).reason
    assert landed(decisions) == []


def test_a_remote_that_vanishes_after_the_push_is_asked_later(field):
    remote, pushing = remote_of(field)
    away = remote.folder + ".away"
    hook = Path(remote.folder, "hooks", "post-receive")
    write_script(hook, f"#!/bin/sh\nmv '{remote.folder}' '{away}'\n")
    entries = field.entries(2)
    for _ in range(2):
        decisions = field.run(entries, field.lane(pushing))
        assert isinstance(decisions[-1], TargetUnreachable)
        assert landed(decisions) == []
    os.rename(away, remote.folder)
    hook.unlink()
    decisions = field.run(entries, field.lane(pushing))
    assert landed(decisions) == names(2)
    assert not any(decision.already for decision in decisions)
    assert decisions[-1].commit == remote.commit_of("refs/heads/main")
    history = remote.text("log", "--format=%s", "main").splitlines()
    assert sorted(history) == sorted(
        ["first", *(f"{t} 1" for t in names(2)), *(f"Merge {t}" for t in names(2))]
    )


def test_a_caller_that_stops_before_it_knows_gets_the_decisions_again(field):
    entries = field.entries(3)
    steps = MergeQueue(field.lane()).run(entries)
    while not isinstance(next(steps), EntryLanded):
        continue
    steps.close()
    tip = field.repo.tip(BRANCH)
    decisions = field.run(entries)
    assert landed(decisions) == names(3)
    assert not any(decision.already for decision in decisions)
    assert field.repo.tip(BRANCH) == tip
    assert LaneRefs(field.hub, "lane").intent() is None


def test_an_intent_that_did_not_land_is_dropped(field):
    entries = field.entries(1)
    LaneRefs(field.hub, "lane").set_intent([("t1", entries[0].head, True)])
    assert landed(field.run(entries)) == ["t1"]
    assert field.repo.tip(BRANCH) != entries[0].head


def test_only_a_part_of_what_was_about_to_land_has_landed(field):
    entries = field.entries(3)
    field.run(entries[:2])
    two = field.repo.tip(BRANCH)
    one = field.repo.git.text("rev-parse", f"{two}^1")
    third = field.entry("elsewhere", {"x": "1\n"}).head
    intent = [("t1", one, True), ("t2", two, True), ("t3", third, True)]
    LaneRefs(field.hub, "lane").set_intent(intent)
    decisions = [each for each in field.run(entries) if isinstance(each, EntryLanded)]
    assert [(each.entry.id, each.already) for each in decisions] == [(t, False) for t in names(3)]
    assert [each.commit for each in decisions[:2]] == [one, two]
