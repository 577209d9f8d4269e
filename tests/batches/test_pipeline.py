"""Stages and reduces as operations, on both databases. The store and the files are real; the
test itself does the work, claim by claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hypervisor.batches.pipeline import run_pattern, stage_names
from hypervisor.batches.pipeline_status import pattern
from hypervisor.batches.reduce import has_pending_reduce, release_reduce, release_reduces
from hypervisor.batches.reduce_input import with_result
from hypervisor.batches.report import report
from hypervisor.batches.summary import summary
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.items import item_of
from hypervisor.inputs.template import MAX_WORD_LENGTH
from hypervisor.queue.claim import block, complete, fail
from hypervisor.queue.steer import cancel, retry
from hypervisor.queue.task import NewTask, TaskFilter
from hypervisor.runs import control
from hypervisor.web.report.page import page
from tests.batches.pipelines import LAST, ONE, THREE, TWO, do, hv, items, rows, submit, take
from tests.support.specs import run_spec

__all__ = ["hv"]


class TestStages:
    def test_each_item_continues_by_itself(self, hv):
        whole = submit(hv, then=(TWO, THREE), reduce=None)

        assert [part.added for part in whole.parts] == [3, 3, 3]
        assert not take(hv, whole, 1)
        assert do(hv, whole, 0, most=1) == ["a"]
        assert do(hv, whole, 1) == ["a"]  # while b and c have not even begun
        assert do(hv, whole, 2) == ["a"]
        assert do(hv, whole, 0) == ["b", "c"]
        assert do(hv, whole, 1) == ["b", "c"]

    def test_the_next_stage_sees_what_came_of_the_one_before(self, hv):
        whole = submit(hv, "a", reduce=None)
        do(hv, whole, 0, {"a": {"size": 3}})
        (lease,) = take(hv, whole, 1)

        found = with_result(hv, lease.task, item_of(lease.task), TWO)
        assert found.text == "a" and found.columns is not None
        assert found.columns["result"] == {"size": 3} and found.columns["item"] == "a"

    def test_columns_stay_and_what_was_printed_stands_in_for_a_result(self, hv):
        row = NewTask("r", key="r", data={"item": "r", "columns": {"id": 7}})
        whole = run_pattern(hv, ONE, [row], "b", [TWO])
        (lease,) = take(hv, whole, 0)
        Path(hv.outputs.prepare(lease.task.id, 1)).write_text("seven\nlines\n")
        complete(hv, lease.token)
        (later,) = take(hv, whole, 1)

        columns = with_result(hv, later.task, item_of(later.task), TWO).columns
        assert columns is not None
        assert columns["id"] == 7 and columns["result"] == "seven\nlines"
        assert Path(columns["output"]).read_text() == "seven\nlines\n"

    @pytest.mark.parametrize("size", [70_000, MAX_WORD_LENGTH])
    def test_the_next_stage_gets_all_that_was_printed(self, hv, size):
        later = self.after_printing(hv, "x" * size + "\n")
        columns = with_result(hv, later, item_of(later), TWO).columns
        assert columns is not None and columns["result"] == "x" * size

    def test_what_no_argument_can_hold_is_refused_and_never_cut(self, hv):
        later = self.after_printing(hv, "x" * (MAX_WORD_LENGTH + 2))
        item = item_of(later)._replace(columns={"result": "of the row"})
        for spec in (TWO, run_spec("/", agent="a", prompt="of {result}")):
            with pytest.raises(InvalidInput, match=r"131,073 bytes .*131,071.*\{output\}"):
                with_result(hv, later, item, spec)
        specs = (run_spec("/", ("two", "{output}", "{{result}}")), run_spec("/", function="a:b"))
        for spec in specs:
            columns = with_result(hv, later, item, spec).columns
            assert columns is not None and columns.keys() == {"output"}
            assert Path(columns["output"]).stat().st_size == MAX_WORD_LENGTH + 2

    def test_nor_is_a_result_cut(self, hv):
        whole = submit(hv, "a", reduce=None)
        do(hv, whole, 0, {"a": ["x" * MAX_WORD_LENGTH]})
        (later,) = take(hv, whole, 1)
        with pytest.raises(InvalidInput, match=r"\{output\}"):
            with_result(hv, later.task, item_of(later.task), TWO)

    def after_printing(self, hv, text):
        """The task of the next stage, which gets the output of the previous one."""
        whole = submit(hv, "a", reduce=None)
        (lease,) = take(hv, whole, 0)
        Path(hv.outputs.prepare(lease.task.id, 1)).write_text(text)
        complete(hv, lease.token)
        return take(hv, whole, 1)[0].task

    def test_a_later_stage_requires_no_agent_of_an_earlier_one(self, hv):
        task = items("a", requires=("gpu", "agent:claude"), priority="high", branch="x", retries=2)
        whole = run_pattern(hv, ONE, task, "b", [TWO])
        (later,) = hv.store.list_tasks(TaskFilter(batch=whole.batches[1]), 10)

        assert later.requires == ("gpu",)
        assert (later.priority, later.branch, later.retries) == ("high", "x", 2)

    def test_a_stage_that_runs_something_else_is_another_one(self, hv):
        names = [stage_names("b", then) for then in ([TWO, THREE], [THREE, TWO], [TWO, TWO])]
        assert len({name for pair in names for name in pair}) == 5
        submit(hv, then=(TWO,), reduce=None)
        assert submit(hv, then=(THREE,), reduce=None).parts[1].added == 3

    def test_what_failed_stops_its_own_item_only_and_can_be_tried_again(self, hv):
        whole = submit(hv, then=(TWO, THREE), reduce=None)
        do(hv, whole, 0, {"b": None})
        do(hv, whole, 1), do(hv, whole, 2)

        assert hv.store.stuck(whole.batches) == {whole.batches[1]: 1, whole.batches[2]: 1}
        again = submit(hv, then=(TWO, THREE), reduce=None)
        assert [part.to_do for part in again.parts] == [1, 1, 1]
        assert [part.already_done for part in again.parts] == [2, 2, 2]
        assert [do(hv, whole, part) for part in range(3)] == [["b"]] * 3
        assert hv.store.stuck(whole.batches) == {}

    def test_the_order_of_the_items_is_kept(self, hv):
        names = [f"{n:04}" for n in range(1_050)]  # more than a page
        whole = submit(hv, names)
        for part in (0, 1):
            while do(hv, whole, part, most=500):
                pass
        assert [row["title"] for row in rows(hv, whole)] == names


class TestReduce:
    def test_it_comes_last_and_has_all(self, hv):
        whole = submit(hv)
        do(hv, whole, 0), do(hv, whole, 1, most=2)
        assert not take(hv, whole, 2)
        assert release_reduce(hv, whole.batches[0]) is False
        do(hv, whole, 1)

        found = rows(hv, whole)
        assert [(row["title"], row["state"], row["result"]) for row in found] == [
            ("a", "done", "a1"),
            ("b", "done", "b1"),
            ("c", "done", "c1"),
        ]

    def test_it_runs_on_what_there_is_when_some_failed(self, hv):
        whole = submit(hv)
        do(hv, whole, 0, {"a": None}), do(hv, whole, 1, {"b": None})
        assert not take(hv, whole, 2)
        release_reduces(hv)

        assert not has_pending_reduce(hv, whole.batches[0])
        found = rows(hv, whole)
        assert [(r["title"], r["state"], r.get("stage"), r["reason"]) for r in found] == [
            ("a", "failed", 1, "broken"),
            ("b", "failed", None, "broken"),
            ("c", "done", None, None),
        ]

    @pytest.mark.parametrize("how", ["blocked", "cancelled"])
    def test_whatever_will_not_continue_by_itself_is_not_waited_for(self, hv, how):
        whole = submit(hv, then=())
        do(hv, whole, 0, most=2)
        if how == "blocked":
            (lease,) = take(hv, whole, 0)
            assert not release_reduce(hv, whole.batches[0])  # it runs
            block(hv, lease.token, "no key")
        else:
            (left,) = hv.store.list_tasks(TaskFilter(("active",), whole.batches[0]), 9)
            cancel(hv, left.id)
        assert release_reduce(hv, whole.batches[0])
        assert [row["state"] for row in rows(hv, whole)] == ["done", "done", how]

    def test_a_retry_that_waits_for_its_time_is_waited_for(self, hv):
        whole = run_pattern(hv, ONE, items("a", "b", retries=1), "b", reduce=LAST)
        first, second = take(hv, whole, 0, 2)
        complete(hv, first.token)
        fail(hv, second.token, "once")
        assert release_reduce(hv, whole.batches[0]) is False and has_pending_reduce(
            hv, whole.batches[0]
        )

    def test_a_pause_keeps_it_back(self, hv):
        whole = submit(hv, then=())
        do(hv, whole, 0, {"a": None})
        control.pause(hv, "b")
        assert not release_reduce(hv, whole.batches[0])
        control.resume(hv, "b")
        assert release_reduce(hv, whole.batches[0])

    def test_with_fail_fast_it_does_not_run_on_a_part(self, hv):
        whole = submit(hv, then=(), fail_fast=True)
        do(hv, whole, 0, {"a": None})
        assert not release_reduce(hv, whole.batches[0]) and not has_pending_reduce(
            hv, whole.batches[0]
        )
        assert not take(hv, whole, 1)
        submit(hv, then=(), fail_fast=True)
        do(hv, whole, 0)
        assert len(rows(hv, whole)) == 3

    def test_a_failed_task_that_is_retried_by_hand_comes_in(self, hv):
        whole = submit(hv, "ab", then=(TWO,))
        do(hv, whole, 0, {"a": None})
        (bad,) = hv.store.list_tasks(TaskFilter(("failed",), whole.batches[0]), 9)
        retry(hv, bad.id)
        do(hv, whole, 0), do(hv, whole, 1)
        assert [row["state"] for row in rows(hv, whole)] == ["done", "done"]


class TestTelling:
    def test_how_far_each_part_is(self, hv):
        whole = submit(hv)
        do(hv, whole, 0, {"a": None}), do(hv, whole, 1)
        found = pattern(hv, "b")
        assert found is not None and found.reduce is not None
        assert [stage.states for stage in found.stages] == [
            {"done": 2, "failed": 1},
            {"done": 2, "waiting": 1},
        ]
        assert [stage.stuck for stage in found.stages] == [0, 1]
        assert [stage.what for stage in found.stages] == ["one {}", "two {result}"]
        assert found.reduce.state == "waiting" and found.reduce.what == "last {}"
        release_reduce(hv, whole.batches[0])
        rows(hv, whole)
        found = pattern(hv, "b")
        assert found is not None and found.reduce is not None
        assert found.reduce.state == "done" and found.reduce.result == 3
        assert pattern(hv, "b reduce") is None

    def verdict(self, hv, batch="b"):
        """The verdict in the summary and in the report."""
        found = report(hv, batch)
        succeeded = summary(hv, batch).succeeded
        assert found.succeeded is succeeded and ("Everything succeeded" in page(found)) is succeeded
        return succeeded, page(found)

    def test_a_whole_has_succeeded_when_its_last_part_has(self, hv):
        whole = submit(hv)
        assert not self.verdict(hv)[0]
        do(hv, whole, 0)
        succeeded, told = self.verdict(hv)
        assert not succeeded and "Not finished: stage 2 (3 of 3), reduce (waiting)" in told
        assert self.verdict(hv, whole.parts[0].batch.id)[0] is False
        do(hv, whole, 1)
        succeeded, told = self.verdict(hv)
        assert not succeeded and "Not finished: reduce (active)" in told
        assert self.verdict(hv, whole.parts[1].batch.name)[0]  # that part alone
        rows(hv, whole)
        assert self.verdict(hv)[0]

    def test_a_whole_whose_reduce_failed_has_not_succeeded(self, hv):
        whole = submit(hv, then=())
        do(hv, whole, 0), do(hv, whole, 1, {"reduce": None})
        succeeded, told = self.verdict(hv)
        assert not succeeded and "Did not succeed: reduce (broken)" in told

    def test_a_whole_with_a_later_stage_that_failed_has_not_succeeded(self, hv):
        whole = submit(hv, then=(TWO, THREE), reduce=None)
        do(hv, whole, 0), do(hv, whole, 1, {"a": None}), do(hv, whole, 2, most=1)
        succeeded, told = self.verdict(hv)
        assert not succeeded
        assert "Did not succeed: stage 2 (1 of 3); not finished: stage 3 (1 of 3)" in told

    def test_what_makes_no_sense_is_refused_before_anything_is_stored(self, hv):
        bad: list[dict[str, Any]] = [
            {"then": [run_spec("/")]},
            {"reduce": run_spec("/", function="nowhere")},
            {"then": [TWO], "name": "b" * 195},
            {"reduce": LAST, "name": "b" * 198},
        ]
        for each in bad:
            with pytest.raises(InvalidInput):
                run_pattern(hv, ONE, items("a"), **{"name": "b", **each})
        assert hv.store.stats(None).total == 0
