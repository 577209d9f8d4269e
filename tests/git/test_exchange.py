"""Hosts hand each other commits through a bare repository, or through bundles in object storage."""

from __future__ import annotations

import pytest

from hypervisor.git.bundles import BundleExchange
from hypervisor.git.elsewhere import (
    fetch_base,
    import_work,
    mark_ended,
    mirror_of,
    publish_tip,
    remove_from_exchanges,
    send_work,
    with_exchange,
)
from hypervisor.git.exchange import GitExchange, ended_ref, fetch_commit, put_commit, space_of
from hypervisor.git.hub import Hub, base_ref, open_hub
from hypervisor.git.snapshot import take
from hypervisor.git.workspace import create
from hypervisor.runs.spec import CommandSpec, GitSpec, RunSpec
from tests.git.support import commit_files

SPACE = "space"


@pytest.fixture(params=["repository", "bundles"])
def exchange(request, tmp_path):
    if request.param == "repository":
        return GitExchange(f"{tmp_path}/exchange", SPACE)
    return BundleExchange(f"file://{tmp_path}/exchange", SPACE)


@pytest.fixture
def mirror(tmp_path):
    """The empty mirror of another host."""
    spec = RunSpec(
        work=CommandSpec(("true",)),
        cwd="/x",
        git=GitSpec(base="0" * 40, host="owner", root="/x", hub="/x.git"),
    )
    return Hub(mirror_of(str(tmp_path / "there"), spec).common_dir)


def test_a_later_commit_brings_along_what_it_is_built_on(exchange, hub, checkout, mirror):
    first = hub.resolve()
    put_commit(exchange, hub, first)
    later = commit_files(checkout, {"later.txt": "later\n"})
    hub.resolve(later)
    put_commit(exchange, hub, later, first)
    assert not fetch_commit(exchange, mirror, "1" * 40)
    assert fetch_commit(exchange, mirror, later)
    assert mirror.git.commit_of(first) == first
    assert fetch_commit(exchange, mirror, first)  # known by now


def test_a_host_cannot_change_refs_that_it_was_not_asked_for(exchange, hub, mirror):
    commit = hub.resolve()
    refs = ["refs/hv/snapshots/task/1/1", "refs/hv/snapshots/task/11/1", "refs/hv/lanes/lane/tip"]
    for ref in refs:
        hub.update_ref(ref, commit)
    exchange.put(hub, "work/task/1", refs)
    assert exchange.get(mirror, "work/task/1")
    assert list(mirror.refs("refs")) == [refs[0]]


def test_removed_work_is_gone_and_the_rest_stays(exchange, hub, mirror):
    commit = hub.resolve()
    put_commit(exchange, hub, commit)
    for task in ("one", "two"):
        ref = f"refs/hv/tasks/{task}/1"
        hub.update_ref(ref, commit)
        exchange.put(hub, f"work/{task}/1", [ref], commit)
    exchange.remove(["work/one", "work/three"])
    assert not exchange.get(mirror, "work/one/1")
    assert exchange.get(mirror, "work/two/1")
    assert fetch_commit(exchange, mirror, commit)


def test_an_exchange_that_cannot_be_used_says_so(hub, tmp_path):
    (tmp_path / "file").touch()
    commit = hub.resolve()
    for broken in (
        GitExchange(f"{tmp_path}/file/exchange", SPACE),
        GitExchange(f"file://{tmp_path}/none", SPACE),
        BundleExchange(f"file://{tmp_path}/file/exchange", SPACE),
    ):
        with pytest.raises(OSError, match="exchange"):
            put_commit(broken, hub, commit)


def test_work_of_another_host_arrives_with_all_its_snapshots(
    exchange, hub, data, repository, tmp_path, untouched
):
    base = hub.resolve()
    spec = RunSpec(
        work=CommandSpec(("true",)), cwd=repository.root, workspace="clone", git=GitSpec(base=base)
    )
    spec = with_exchange(str(data), spec, exchange.url, "owner")
    there = tmp_path / "there"
    fetch_base(str(there), spec)
    far = open_hub(str(there), mirror_of(str(there), spec))
    far.fetch(mirror_of(str(there), spec).common_dir, [(base, base_ref(base))])
    workspace = create(far, str(there / "work" / "task"), "hv/b/task", base)
    for number in (1, 2):
        (there / "work" / "task" / "a.txt").write_text(f"{number}\n")
        last = take(workspace, "task", 1, "test", now=number)
        send_work(far, spec.git, "task", 1)
    assert import_work(hub, spec.git, "task", 1)
    assert list(hub.refs("refs/hv/snapshots/task")) == [
        f"refs/hv/snapshots/task/1/{number}" for number in (1, 2)
    ]
    assert not hub.refs(ended_ref("task", 1))
    mark_ended(far, "task", 1, last.commit)
    send_work(far, spec.git, "task", 1)
    assert import_work(hub, spec.git, "task", 1)
    assert hub.refs(ended_ref("task", 1)).popitem()[1] == last.commit
    assert not import_work(hub, spec.git, "task", 2)


def test_gc_removes_work_and_bases_but_keeps_what_others_are_built_on(
    exchange, hub, data, repository, checkout, mirror
):
    first = hub.resolve()
    git = GitSpec(base=first)
    spec = RunSpec(work=CommandSpec(("true",)), cwd=repository.root, workspace="clone", git=git)
    spec = with_exchange(str(data), spec, exchange.url, "owner")
    tips = [commit_files(checkout, {"new": f"{number}\n"}) for number in range(2)]
    for tip in tips:
        hub.resolve(tip)
        publish_tip(hub, spec.git, tip)
    hub.update_ref("refs/hv/tasks/task/1", first)
    send_work(hub, spec.git, "task", 1)
    remove_from_exchanges(hub, "owner", ["task"], [first, tips[0]])
    assert not import_work(mirror, spec.git, "task", 1)
    there = type(exchange)(exchange.url, space_of(spec.git.host, spec.git.hub))
    assert not there.get(mirror, f"bases/{tips[0]}")
    assert fetch_commit(there, mirror, tips[1])
    publish_tip(hub, spec.git, tips[0])  # needed again
    assert there.get(mirror, f"bases/{tips[0]}")
