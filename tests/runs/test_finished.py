"""Tasks as they finish: each once, in the order of their end or in that of the items."""

from hypervisor.batches import submit
from hypervisor.queue.lease import AttemptResult, ClaimRequest, parse_token
from hypervisor.queue.sql import queries
from hypervisor.runs import results, sql
from hypervisor.runs.finished import FinishedTasks, ItemOrder, unfinished_ids
from tests.support import submitted_runs as made_up
from tests.support.given import ANN, LEASE, NOW

context = made_up.hv


def test_each_finished_task_comes_once(context):
    submit.submit(context, made_up.SPEC, made_up.items("other"), "another")
    submitted = submit.submit(context, made_up.SPEC, made_up.items("a", "b", "c"), "b")
    batch = submitted.batch.id
    made_up.at_work(context, batch)
    finished = FinishedTasks(context, batch, queries.end_of_log(context.store))
    other, first, second, third = made_up.claim(context, limit=4, now=None)
    assert list(finished.new()) == []

    for token, event in ((third, "complete"), (other, "complete"), (first, "fail")):
        made_up.settle(context, token, event, None)
    assert [(task.title, task.state) for task in finished.new()] == [("c", "done"), ("a", "failed")]
    made_up.settle(context, second, "release", None)
    assert list(finished.new()) == []


def test_what_had_ended_before_is_not_waited_for(context):
    batch = submit.submit(context, made_up.SPEC, made_up.items("a", "b", "c"), "b").batch.id
    made_up.at_work(context, batch)
    first, second = made_up.claim(context, limit=2, now=None)
    made_up.settle(context, first, "complete", None)
    later = context.now() + 1
    made_up.settle(context, second, "complete", later)
    ids = [task.id for task in results.reports(context, batch)]
    assert list(unfinished_ids(context, batch, later)) == ids[1:]


def test_held_back_until_all_before_have_finished(context):
    batch = submit.submit(context, made_up.SPEC, made_up.items("a", "b", "c", "d"), "b").batch.id
    a, b, c, d = (
        context.store.read(queries.task, task.id) for task in results.reports(context, batch)
    )
    order = ItemOrder(task.id for task in (a, b, c))
    assert list(order.add(b)) == []
    assert list(order.add(a)) == [a, b]
    assert list(order.add(d)) == []
    assert list(order.rest()) == [d] and list(order.rest()) == []


def test_open_tasks_come_by_id_in_pages_on_both_databases(ledger, add):
    batch = ledger.declare("b", {"cwd": "/"}, "me", NOW).id
    add("a", "b", "c", "d", batch="b")
    leases = ledger.claim(ClaimRequest(ANN, 2, LEASE), NOW)
    first, second = (parse_token(lease.token) for lease in leases)
    ledger.settle([AttemptResult(first, "complete")], NOW)
    ledger.settle([AttemptResult(second, "fail", reason="why")], NOW + 10)
    read = ledger._db.read
    assert len(read(sql.not_ended_before, batch, NOW, "", 9)) == 4
    page = read(sql.not_ended_before, batch, NOW + 5, "", 2)
    assert page[0] == second.task and len(page) == 2
    assert len(read(sql.not_ended_before, batch, NOW + 5, page[-1], 2)) == 1
