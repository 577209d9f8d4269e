"""Running a pipeline again: what is kept, what is done again."""

from __future__ import annotations

import pytest

from hypervisor.batches.pipeline_status import pattern
from hypervisor.batches.reduce import has_pending_reduce, release_reduce
from hypervisor.batches.reduce_input import write_reduce_input
from hypervisor.queue.claim import complete, fail
from tests.batches.pipelines import LAST, do, hv, rows, submit, take
from tests.support.specs import changed

__all__ = ["hv"]


class TestAgain:
    def finished(self, hv, **more):
        whole = submit(hv, **more)
        for part in range(len(whole.parts) - 1):
            do(hv, whole, part)
        release_reduce(hv, whole.batches[0])
        rows(hv, whole)
        return whole

    def test_nothing_new_is_not_put_together_again(self, hv):
        whole = self.finished(hv)
        again = submit(hv)
        assert again.to_do == 0 and again.pipeline == whole.pipeline
        assert not take(hv, whole, -1) and not has_pending_reduce(hv, whole.batches[0])

    def test_a_new_item_is_and_only_once_all_is_done(self, hv):
        whole = self.finished(hv)
        again = submit(hv, "abcd")
        assert [part.to_do for part in again.parts] == [1, 1, 0]
        assert not take(hv, whole, -1)
        do(hv, whole, 0), release_reduce(hv, whole.batches[0]), do(hv, whole, 1)
        assert not take(hv, whole, -1)
        assert release_reduce(hv, whole.batches[0])
        assert len(rows(hv, whole)) == 4
        assert submit(hv, "abcd").to_do == 0

    def test_the_same_failure_again_is_nothing_new(self, hv):
        whole = submit(hv)
        do(hv, whole, 0, {"a": None}), do(hv, whole, 1)
        release_reduce(hv, whole.batches[0])
        rows(hv, whole)
        assert submit(hv).to_do == 2  # a, and its second stage
        do(hv, whole, 0, {"a": None})
        assert not release_reduce(hv, whole.batches[0]) and not has_pending_reduce(
            hv, whole.batches[0]
        )
        submit(hv)
        do(hv, whole, 0), do(hv, whole, 1)
        assert release_reduce(hv, whole.batches[0])
        assert [row["state"] for row in rows(hv, whole)] == ["done"] * 3

    def test_another_reduce_runs_on_the_same_results(self, hv):
        whole = self.finished(hv)
        again = submit(hv, reduce=changed(LAST, command=("other", "{}")))
        assert again.to_do == 1
        assert len(rows(hv, whole)) == 3

    def test_a_reduce_that_failed_is_tried_again_once_asked_for(self, hv):
        whole = submit(hv)
        do(hv, whole, 0), do(hv, whole, 1), do(hv, whole, 2, {"reduce": None})
        release_reduce(hv, whole.batches[0])
        assert not take(hv, whole, 2)  # not requested
        assert submit(hv).to_do == 1
        assert len(rows(hv, whole)) == 3

    def test_a_reduce_that_runs_on_old_results_runs_again(self, hv):
        whole = submit(hv, then=())
        do(hv, whole, 0)
        (lease,) = take(hv, whole, 1)
        write_reduce_input(hv, lease)
        submit(hv, "abcd", then=())
        do(hv, whole, 0)
        assert not release_reduce(hv, whole.batches[0]) and has_pending_reduce(hv, whole.batches[0])
        complete(hv, lease.token)
        assert release_reduce(hv, whole.batches[0])
        assert len(rows(hv, whole)) == 4

    @pytest.mark.parametrize("names", ["abcd", "abc"])
    def test_a_reduce_that_fails_runs_again_only_if_something_came_in(self, hv, names):
        whole = submit(hv, then=())
        do(hv, whole, 0)
        (lease,) = take(hv, whole, 1)
        write_reduce_input(hv, lease)
        submit(hv, names, then=())
        do(hv, whole, 0)
        release_reduce(hv, whole.batches[0])
        fail(hv, lease.token, "broken", final=True)
        assert release_reduce(hv, whole.batches[0]) is (names == "abcd")
        assert [len(rows(hv, whole))] == [4] if names == "abcd" else not take(hv, whole, 1)
        assert not has_pending_reduce(hv, whole.batches[0])

    def test_without_what_followed_it_is_a_batch_by_itself(self, hv):
        self.finished(hv)
        alone = submit(hv, then=(), reduce=None)
        assert alone.pipeline is None and pattern(hv, "b") is None

    def test_a_reduce_can_be_added_later(self, hv):
        alone = submit(hv, then=(), reduce=None)
        do(hv, alone, 0)
        whole = submit(hv, then=())
        assert [part.to_do for part in whole.parts] == [0, 1]
        assert len(rows(hv, whole)) == 3
