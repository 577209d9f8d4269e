"""Stages and reduces as operations, on both databases. The store and the files are real; who
works is the test itself, claim by claim."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from hypervisor.batches.files import BatchFiles
from hypervisor.batches.pipeline import (
    PipelineRun,
    batches_from,
    batches_of,
    run_pattern,
    stage_names,
)
from hypervisor.batches.pipeline_status import pattern
from hypervisor.batches.reduce import has_pending_reduce, release_reduce, release_reduces
from hypervisor.batches.reduce_input import has_new_input, with_result, write_reduce_input
from hypervisor.batches.report import report
from hypervisor.batches.sql import pipelines
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.items import item_of
from hypervisor.inputs.template import LONGEST_WORD
from hypervisor.queue.claim import block, claim, complete, fail, release
from hypervisor.queue.context import Context
from hypervisor.queue.steer import cancel, retry
from hypervisor.queue.task import NewTask, TaskFilter
from hypervisor.resources.host import LocalHost
from hypervisor.runs import run as running
from hypervisor.runs.outputs.files import Outputs
from hypervisor.runs.spec import RunSpec
from hypervisor.web.report.page import page
from tests.support.intercept import intercept
from tests.support.parts import parts

ONE = RunSpec("/", ("one", "{}"))
TWO = RunSpec("/", ("two", "{result}"))
THREE = RunSpec("/", ("three", "{result}"))
LAST = RunSpec("/", ("last", "{}"))


class FakeLauncher:
    """Nobody is started here: the test does the work."""

    def supervisor(self):
        return 1

    def submitting(self):
        return nullcontext()

    def keep_environment(self, batch):
        return True

    def read_status(self):
        return None


def host(ledger, folder: Path) -> Context:
    """The store as somebody sees it who keeps files in that folder."""
    launcher: Any = FakeLauncher()
    outputs, files = Outputs(str(folder)), BatchFiles(str(folder))
    given = parts(launcher=launcher, outputs=outputs, batch_files=files)
    return Context(ledger, LocalHost(), "me", parts=given)


@pytest.fixture
def hv(ledger, tmp_path):
    return host(ledger, tmp_path)


@pytest.fixture
def other(ledger, tmp_path):
    """Another host that shares the store, but no file."""
    return host(ledger, tmp_path / "other")


def items(*names, **more):
    return [NewTask(name, key=name, data={"item": name}, **more) for name in names]


def submit(hv, names="abc", then=(TWO,), reduce: RunSpec | None = LAST, **more) -> PipelineRun:
    return run_pattern(hv, ONE._replace(**more), items(*names), "b", then, reduce=reduce)


def take(hv, whole, part, most=1):
    return claim(hv, "w", most, batch=whole.batches[part], pid=0)


def do(hv, whole, part, results=None, most=100):
    """Finish what can be claimed of a part; gives the titles. None as a result: it fails."""
    leases = take(hv, whole, part, most)
    for lease in leases:
        result = (results or {}).get(lease.task.title, f"{lease.task.title}{part}")
        if result is None:
            fail(hv, lease.token, "broken", final=True)
        else:
            complete(hv, lease.token, result)
    return [lease.task.title for lease in leases]


def rows(hv, whole):
    """What the reduce is given when it is claimed; it is finished then."""
    (lease,) = take(hv, whole, -1)
    path = item_of(write_reduce_input(hv, lease).task).text
    assert path == item_of(lease.task).text
    found = [json.loads(line) for line in Path(path).read_text().splitlines()]
    complete(hv, lease.token, len(found))
    return found


class TestStages:
    def test_each_item_goes_on_by_itself(self, hv):
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

    @pytest.mark.parametrize("size", [70_000, LONGEST_WORD])
    def test_the_next_stage_gets_all_that_was_printed(self, hv, size):
        later = self.after_printing(hv, "x" * size + "\n")
        columns = with_result(hv, later, item_of(later), TWO).columns
        assert columns is not None and columns["result"] == "x" * size

    def test_what_no_argument_can_hold_is_refused_and_never_cut(self, hv):
        later = self.after_printing(hv, "x" * (LONGEST_WORD + 2))
        item = item_of(later)._replace(columns={"result": "of the row"})
        for spec in (TWO, RunSpec("/", agent="a", prompt="of {result}")):
            with pytest.raises(InvalidInput, match=r"131,073 bytes, at most 131,071.*\{output\}"):
                with_result(hv, later, item, spec)
        for spec in (RunSpec("/", ("two", "{output}", "{{result}}")), RunSpec("/", function="a:b")):
            columns = with_result(hv, later, item, spec).columns
            assert columns is not None and columns.keys() == {"output"}
            assert Path(columns["output"]).stat().st_size == LONGEST_WORD + 2

    def test_nor_is_a_result_cut(self, hv):
        whole = submit(hv, "a", reduce=None)
        do(hv, whole, 0, {"a": ["x" * LONGEST_WORD]})
        (later,) = take(hv, whole, 1)
        with pytest.raises(InvalidInput, match=r"\{output\}"):
            with_result(hv, later.task, item_of(later.task), TWO)

    def after_printing(self, hv, text):
        """The task of the next stage, which is about what one printed."""
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
    def test_whatever_will_not_go_on_by_itself_is_not_waited_for(self, hv, how):
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
        running.pause(hv, "b")
        assert not release_reduce(hv, whole.batches[0])
        running.resume(hv, "b")
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

    def test_the_same_failure_once_more_is_nothing_new(self, hv):
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
        again = submit(hv, reduce=LAST._replace(command=("other", "{}")))
        assert again.to_do == 1
        assert len(rows(hv, whole)) == 3

    def test_a_reduce_that_failed_is_tried_again_once_asked_for(self, hv):
        whole = submit(hv)
        do(hv, whole, 0), do(hv, whole, 1), do(hv, whole, 2, {"reduce": None})
        release_reduce(hv, whole.batches[0])
        assert not take(hv, whole, 2)  # nobody asked
        assert submit(hv).to_do == 1
        assert len(rows(hv, whole)) == 3

    def test_a_reduce_that_runs_on_old_results_runs_once_more(self, hv):
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
    def test_a_reduce_that_fails_runs_once_more_only_if_something_came_in(self, hv, names):
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


def printed_by_all(hv, whole):
    for lease in take(hv, whole, 0, 100):
        Path(hv.outputs.prepare(lease.task.id, 1)).write_text(f"{lease.task.title} printed\n")
        complete(hv, lease.token)


class TestTwoHosts:
    def test_what_only_one_of_them_can_read_makes_nothing_new(self, hv, other):
        whole = submit(hv, then=())
        printed_by_all(hv, whole)
        assert [row["output"] for row in rows(hv, whole)] == [f"{c} printed\n" for c in "abc"]
        for each in (other, hv):
            assert submit(each, then=()).to_do == 0
            assert not release_reduce(each, whole.batches[0]) and not take(each, whole, -1)

    def test_the_reduce_gets_the_file_of_the_host_it_runs_on(self, hv, other, tmp_path):
        whole = submit(hv, "ab", then=())
        do(hv, whole, 0)
        (lease,) = take(other, whole, -1)
        given = write_reduce_input(other, lease).task
        path = item_of(given).text
        assert path.startswith(str(tmp_path / "other")) and path in given.body
        assert item_of(lease.task).text not in given.body
        assert len(Path(path).read_text().splitlines()) == 2

    @pytest.mark.parametrize("later", [[], ["abcde"]])
    def test_what_ran_while_one_looks_does_not_run_again(self, hv, other, monkeypatch, later):
        """All of it in the moment between the look at the last item and the decision."""
        whole = submit(hv, then=())
        do(hv, whole, 0), rows(hv, whole)
        submit(hv, "abcd", then=())
        do(hv, whole, 0)
        real, left = running.reports, ["", *later]
        (task,) = hv.store.list_tasks(TaskFilter(batch=whole.batches[-1]), 9)

        def reports(context, batch):
            yield from real(context, batch)
            while context is hv and left:
                if names := left.pop(0):
                    submit(other, names, then=())
                    do(other, whole, 0)
                assert release_reduce(other, whole.batches[0])
                (lease,) = take(other, whole, -1)
                write_reduce_input(other, lease)
                complete(other, lease.token)

        monkeypatch.setattr(running, "reports", reports)
        assert later or not has_new_input(hv, task)
        assert not release_reduce(hv, whole.batches[0]) and not left
        assert not take(hv, whole, -1)

    def test_a_claim_that_has_ended_does_not_say_what_was_given(self, hv, other):
        whole = submit(hv, then=())
        do(hv, whole, 0)
        (lease,) = take(hv, whole, -1)
        given = (pipelines.reduce_input, lease.task.id)
        release(hv, lease.token)
        write_reduce_input(hv, lease)
        assert hv.store.read(*given) is None
        (again,) = take(other, whole, -1)
        write_reduce_input(other, again)
        assert hv.store.read(*given)
        assert hv.store.task(again.task.id).lease_until == again.until

    def test_a_printed_result_that_was_made_again_is_new(self, hv, other):
        whole = submit(hv, "a", then=())
        printed_by_all(hv, whole)
        rows(hv, whole)
        (task,) = hv.store.list_tasks(TaskFilter(batch=whole.batches[0]), 9)
        retry(hv, task.id)
        do(hv, whole, 0, {"a": 7})
        assert submit(other, "a", then=()).to_do == 1

    def test_nobody_who_only_looks_reads_what_was_printed(self, hv, monkeypatch):
        whole = submit(hv, then=())
        printed_by_all(hv, whole)
        rows(hv, whole)
        submit(hv, then=())
        monkeypatch.delattr(Outputs, "read")
        monkeypatch.delattr(Outputs, "size")
        hv.store.write(pipelines.save, whole.pipeline, pending=True)
        assert not release_reduce(hv, whole.batches[0]) and not has_pending_reduce(
            hv, whole.batches[0]
        )

    def test_a_run_that_comes_while_one_is_looked_after_is_not_forgotten(self, hv, monkeypatch):
        whole = submit(hv, then=())
        do(hv, whole, 0)

        def behind_a_run(really, *args):
            hv.store.write(pipelines.save, whole.pipeline, pending=True)
            return really(*args)

        intercept(monkeypatch, hv.store, pipelines.release, behind_a_run)
        release_reduce(hv, whole.batches[0])
        assert has_pending_reduce(hv, whole.batches[0])

    def test_what_followed_on_a_batch_before_stands_alone(self, hv):
        before = submit(hv)
        now = submit(hv, then=(THREE,))
        assert batches_of(hv, before.batches[1]) == (before.batches[1],)
        for batch in now.batches:
            assert batches_of(hv, batch) == now.batches
        assert batches_from(hv, now.batches[0]) == now.batches
        assert batches_from(hv, now.batches[1]) == (now.batches[1],)


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
        """What the summary and the page say of it."""
        found = report(hv, batch)
        succeeded = running.summary(hv, batch).succeeded
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
            {"then": [RunSpec("/")]},
            {"reduce": RunSpec("/", function="nowhere")},
            {"then": [TWO], "name": "b" * 195},
            {"reduce": LAST, "name": "b" * 198},
        ]
        for each in bad:
            with pytest.raises(InvalidInput):
                run_pattern(hv, ONE, items("a"), **{"name": "b", **each})
        assert hv.store.stats(None).total == 0
