"""What `status` shows about a batch and about everything, in addition to the counts."""

from hypervisor.monitoring.status import combine, quick_status, status
from hypervisor.queue.add import add
from hypervisor.runs import control
from tests.support import submitted_runs as made_up
from tests.support.submitted_runs import NOW

context = made_up.hv


def test_the_status_has_the_pace_of_the_last_minutes(context):
    batches = [made_up.run(context, "a", "b", name=name).batch for name in ("first", "second")]
    for batch in batches:
        good, bad = made_up.claim(context, made_up.at_work(context, batch.id), 2)
        made_up.settle(context, good, "complete")
        made_up.settle(context, bad, "fail")
    stats = status(context, "first", NOW).stats
    assert (stats.completed_per_minute, stats.failed_per_minute) == (0.2, 0.2)
    assert quick_status(context, "first", NOW).stats.completed_per_minute == 0, "it is polled"
    both = combine([status(context, batch.id, NOW) for batch in batches]).stats
    assert (both.completed_per_minute, both.failed_per_minute) == (0.4, 0.4)


def test_a_finished_batch_is_not_listed_as_paused(context):
    batch = made_up.run(context, "a").batch
    (token,) = made_up.claim(context, made_up.at_work(context, batch.id))
    control.pause(context, batch="b", now=NOW)
    control.pause(context, type="x", now=NOW)
    assert [pause.scope for pause in status(context, now=NOW).pauses] == ["batch", "type"]
    made_up.settle(context, token, "complete")
    assert [pause.scope for pause in status(context, now=NOW).pauses] == ["type"]
    assert [pause.scope for pause in status(context, "b", NOW).pauses] == ["type"]
    add(context, made_up.items("late"), "b", now=NOW)
    assert len(status(context, "b", NOW).pauses) == 2, "it still holds back what is added"
