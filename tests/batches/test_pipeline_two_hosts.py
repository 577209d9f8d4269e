"""A pipeline whose hosts share the store, but no files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hypervisor.batches.pipeline_names import batches_from, batches_of
from hypervisor.batches.reduce import has_pending_reduce, release_reduce
from hypervisor.batches.reduce_input import has_new_input, write_reduce_input
from hypervisor.batches.sql import pipelines
from hypervisor.inputs.items import item_of
from hypervisor.queue.claim import complete, release
from hypervisor.queue.steer import retry
from hypervisor.queue.task import TaskFilter
from hypervisor.runs import results
from hypervisor.runs.outputs.files import Outputs
from tests.batches.pipelines import THREE, do, hv, other, rows, submit, take
from tests.support.intercept import intercept

__all__ = ["hv", "other"]


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
        """All of it between reading the last item and the decision."""
        whole = submit(hv, then=())
        do(hv, whole, 0), rows(hv, whole)
        submit(hv, "abcd", then=())
        do(hv, whole, 0)
        real, left = results.reports, ["", *later]
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

        monkeypatch.setattr(results, "reports", reports)
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
