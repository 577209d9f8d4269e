"""What a hub and the ledger keep for batches goes when no batch needs it, and not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from hypervisor.git import sql, tidy
from hypervisor.git.hub import Hub, base_ref
from hypervisor.queue.sql import queries
from tests.git.whole_runs import runs, submit, wait

DAY = 86_400_000
SCRIPT = "echo changed >> f{}.txt"


def hub_of(hv):
    [path] = Path(hv.places.data, "git").glob("*.git")
    return Hub(str(path))


def other_refs(hv):
    return sorted(ref.split("/")[2] for ref in hub_of(hv).refs("refs/hv/bases", "refs/hv/lanes"))


def empty_trash(hv):
    """The clones are gone; returns a time when everything is old."""
    for later in (1, 9):
        tidy.tidy(hv, now=hv.now() + later * DAY)
    return hv.now() + 10 * DAY


def base_of(hv, batch="edits"):
    return hv.store.read(queries.batch, batch).spec["git_base"]


@pytest.fixture
def merged(tmp_path):
    with runs(tmp_path) as (repo, hv):
        (repo.folder / "mine.txt").write_text("not committed\n")
        submit(hv, repo, SCRIPT, [1], include_dirty=True, verify=("true",))
        [task] = wait(hv, 1).values()
        assert task.state == "done"
        yield repo, hv


def test_they_stay_while_a_batch_may_need_them(merged):
    _, hv = merged
    assert other_refs(hv) == ["bases", "lanes"]
    early = tidy.tidy(hv, now=hv.now() + 6 * DAY)
    assert (early.unused_refs, early.verdicts) == (0, 0)
    assert other_refs(hv) == ["bases", "lanes"] and hv.store.read(sql.verdict_outputs)


def test_they_go_when_the_users_branches_have_the_commits(merged):
    repo, hv = merged
    now = hv.now() + 8 * DAY
    would = tidy.tidy(hv, dry_run=True, now=now)
    assert would.unused_refs == 1 and len(other_refs(hv)) == 2, "a clone starts at the other one"
    gone = tidy.tidy(hv, now=now)  # moves the clone to the trash first
    assert not other_refs(hv) and gone.unused_refs == 2
    assert gone.verdicts == 1 and not hv.store.read(sql.verdict_outputs)
    # all of it can be made again
    submit(hv, repo, SCRIPT, [2], include_dirty=True, verify=("true",))
    assert wait(hv, 2)["2"].state == "done"
    assert repo.read("hv/edits", "f2.txt") == "line 2\nchanged\n"
    assert other_refs(hv) == ["bases", "lanes"]


def test_what_no_branch_of_the_user_has_stays_until_the_batch_is_deleted(merged):
    repo, hv = merged
    repo.git.run("branch", "--quiet", "-D", "hv/edits")
    now = empty_trash(hv)
    assert tidy.tidy(hv, now=now).unused_refs == 0
    assert other_refs(hv) == ["bases", "lanes"]
    hv.delete_batch("edits")
    assert tidy.tidy(hv, now=hv.now()).unused_refs == 2
    assert not other_refs(hv)


def test_a_repository_that_does_not_answer_proves_nothing(merged, tmp_path):
    repo, hv = merged
    empty_trash(hv)
    dropped = tidy.tidy(hv, now=hv.now() + 20 * DAY)
    assert not other_refs(hv) and dropped.refs == 0, "it was there to be asked"
    submit(hv, repo, SCRIPT, [2], name="more", include_dirty=True)
    wait(hv, 2)
    (repo.folder / ".git").rename(tmp_path / "elsewhere")
    kept = tidy.tidy(hv, now=hv.now() + 8 * DAY)
    assert (kept.refs, kept.unused_refs) == (0, 0)
    assert other_refs(hv) == ["bases", "lanes"]


def test_a_batch_that_is_open_keeps_where_it_started(merged):
    repo, hv = merged
    submit(hv, repo, "test -e /nonexistent", [2], name="open")
    wait(hv, 2)
    hv.pause(batch="open")
    [failed] = [task for task in hv.list_tasks() if task.title == "2"]
    hv.retry(failed.id)
    base = base_of(hv, "open")
    tidy.tidy(hv, now=empty_trash(hv))
    assert base_ref(base) in hub_of(hv).refs("refs/hv/bases")


def test_a_base_that_is_dropped_while_its_batch_is_submitted_is_kept_again(merged):
    """Its ref is made before the batch is in the store."""
    repo, hv = merged
    hub_of(hv).delete_refs([base_ref(base_of(hv))])
    submit(hv, repo, SCRIPT, [1, 2], include_dirty=True, verify=("true",))
    hub_of(hv).delete_refs([base_ref(base_of(hv))])
    wait(hv, 2)
    assert base_ref(base_of(hv)) in hub_of(hv).refs("refs/hv/bases")
