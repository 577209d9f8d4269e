"""Every item of a chunk, page by page, and decisions that name what was shown."""

from __future__ import annotations

from typing import Any

import pytest

from hypervisor.batches import review as reviewing
from hypervisor.batches.files import BatchFiles
from hypervisor.batches.review_items import review_items
from hypervisor.core.errors import InvalidInput, NotFound, WrongState
from hypervisor.git import review as git_review
from hypervisor.queue.context import Context
from hypervisor.queue.queries import show
from hypervisor.runs.outputs.files import Outputs
from tests.batches.test_review import start, work
from tests.support.parts import parts
from tests.support.submitted_runs import NOW, FakeHost, FakeLauncher


@pytest.fixture
def hv(ledger, tmp_path):
    """A batch of three chunks of five; the first is finished and waits for a decision."""
    launcher: Any = FakeLauncher()
    given = parts(
        launcher=launcher, outputs=Outputs(str(tmp_path)), batch_files=BatchFiles(str(tmp_path))
    )
    context = Context(ledger, FakeHost(), "ann", parts=given)
    start(context, each=5)
    work(context, [{"category": "odd"}, {"category": "even"}])
    return context


def titles(page):
    return [item.title for item in page.items]


def test_items_come_page_by_page_and_by_category(hv):
    first = review_items(hv, "b", 1, limit=3)
    assert titles(first) == ["jan 0", "jan 1", "jan 2"] and first.next == first.items[-1].task
    second = review_items(hv, "b", 1, after=first.next, limit=3)
    assert titles(second) == ["jan 3", "jan 4"] and second.next == ""
    assert titles(review_items(hv, "b", 1, category="even")) == ["jan 1", "jan 3"]
    assert titles(review_items(hv, "b", 1, category="none of these")) == []
    assert titles(review_items(hv, "b", 1, state="failed")) == []
    assert [item.state for item in review_items(hv, "b", 2).items] == ["waiting"] * 5
    one = review_items(hv, "b", 1, task=first.items[1].task)
    assert titles(one) == ["jan 1"] and one.items[0].categories == ("even",)
    with pytest.raises(NotFound, match="not in chunk 2"):
        review_items(hv, "b", 2, task=first.items[1].task)
    with pytest.raises(NotFound, match="no chunk 9"):
        review_items(hv, "b", 9)
    with pytest.raises(InvalidInput):
        review_items(hv, "b", 1, limit=0)


def test_a_search_for_a_rare_category_is_bounded(hv, monkeypatch):
    monkeypatch.setattr("hypervisor.batches.review_items.MAX_SCANNED", 2)
    first = review_items(hv, "b", 1, category="rare")
    assert first.items == () and first.next
    assert review_items(hv, "b", 1, category="rare", after=first.next).next > first.next


def test_a_correction_of_something_else_is_refused(hv):
    item = review_items(hv, "b", 1).items[0]
    assert not item.corrected
    reviewing.amend(hv, item.task, {"category": "mine"}, shown=item.digest)
    with pytest.raises(WrongState, match="has changed since it was shown"):
        reviewing.amend(hv, item.task, {"category": "theirs"}, shown=item.digest)
    now = review_items(hv, "b", 1, task=item.task).items[0]
    assert now.corrected and now.result == {"category": "mine"}


def test_a_retry_of_something_else_is_refused(hv):
    shown = reviewing.review(hv, "b", 1).digest
    reviewing.decide(hv, "b", "approved", 1, shown=shown)
    with pytest.raises(WrongState, match="has changed since it was shown"):
        reviewing.retry_chunk(hv, "b", "again", 1, shown=shown)
    assert reviewing.chunks(hv, "b")[0].state == "approved"
    now = reviewing.review(hv, "b", 1).digest
    assert reviewing.retry_chunk(hv, "b", "again", 1, shown=now).tasks == 5


@pytest.fixture
def in_review(hv):
    """A task whose work a person must look at."""
    (task, *_), _ = review_items(hv, "b", 1)[2:]

    def move(state):
        hv.store.write(
            lambda s: s.run(
                "UPDATE tasks SET state = ?, reason = 'conflict' WHERE id = ?", (state, task.task)
            )
        )

    move("review")
    return task.task, move


@pytest.mark.parametrize("decide", [git_review.approve, git_review.reject])
def test_a_decision_about_a_task_that_has_changed_is_refused(hv, in_review, decide):
    task, move = in_review
    shown = git_review.review_digest(show(hv, task).detail.task)
    git_review.reject(hv, task, "no", NOW + 5_000)
    move("review")  # as after a new attempt
    with pytest.raises(WrongState, match="has changed since it was shown"):
        decide(hv, task, shown=shown)
    assert show(hv, task).detail.task.state == "review"
    now = git_review.review_digest(show(hv, task).detail.task)
    assert decide(hv, task, shown=now).state in ("merging", "failed")
