"""Following a run: without details little is read, and the end is noticed at once."""

from hypervisor.batches import submit
from hypervisor.monitoring import monitor, status
from hypervisor.monitoring.monitor import Interrupts, Monitor, Target, ended_since
from hypervisor.queue.pause import INTERRUPTED
from hypervisor.runs import control
from tests.support import submitted_runs as made_up

context = made_up.hv


def submitted(context) -> str:
    """A batch of two, one of which runs."""
    batch = submit.submit(context, made_up.SPEC, made_up.items("a", "b"), "b").batch.id
    made_up.at_work(context, batch)
    return str(batch)


def following(context, batch, on_failure=None) -> Monitor:
    return Monitor(context, Target((batch,), 0), on_failure)


def test_where_nothing_is_shown_nobody_asks_what_runs(context, monkeypatch):
    batch = submitted(context)
    made_up.claim(context, now=None)
    shown = following(context, batch, lambda tasks, more: None).look()
    assert [each.title for each in shown.status.attempts] == ["a"]

    monkeypatch.setattr(status, "attempts", None)
    monkeypatch.setattr(monitor, "ended_since", None)
    silent = following(context, batch).look()
    assert silent.status._replace(attempts=()) == shown.status._replace(attempts=())
    assert silent.status.attempts == () and silent.open == 2


def test_the_end_is_seen_before_the_next_look_is_due(context):
    batch = submitted(context)
    first, second = made_up.claim(context, limit=2, now=None)
    silent = following(context, batch)
    assert silent.look().open == 2 and not silent.is_due()
    made_up.settle(context, first, "complete", None)
    silent.rest()
    assert not silent.is_due()  # the other one runs: there is nothing to see
    made_up.settle(context, second, "complete", None)
    silent.rest()
    assert silent.is_due() and silent.look().open == 0


def test_failures_are_reported_once(context):
    batch, reported = submitted(context), []
    followed = following(context, batch, lambda tasks, more: reported.extend(tasks))
    (lease,) = made_up.claim(context, now=None)
    followed.look()
    made_up.settle(context, lease, "fail", None)
    followed.look()
    followed.look()
    assert [task.title for task in reported] == ["a"]
    assert followed.reported == {task.id for task in reported}
    assert ended_since(context, (batch,), 0, ("failed",)) == reported


def test_one_interrupt_drains_and_the_second_stops(context):
    batch = submitted(context)
    (lease,) = made_up.claim(context, now=None)
    followed, interrupts = following(context, batch), Interrupts()
    snapshots = followed.follow(interrupts)
    assert next(snapshots).interrupts == 0
    interrupts.count = 1
    assert next(snapshots).interrupts == 1
    assert [pause.reason for pause in context.store.pauses()] == [INTERRUPTED]
    assert not context.store.stops([lease.task])
    interrupts.count = 2
    next(snapshots)
    assert [stop.task for stop in context.store.stops([lease.task])] == [lease.task]
    interrupts.count = 3
    assert list(snapshots) == []  # it does not wait for that


def test_watching_everything_knows_paused_batches_by_name(context):
    batch = submitted(context)
    control.pause(context, batch="b")
    watched = Monitor(context, Target(None, 0)).look()
    assert watched.names == {batch: "b"}


def test_a_paused_part_of_a_pipeline_is_known_by_name(context):
    batch = submitted(context)
    other = submit.submit(context, made_up.SPEC, made_up.items("c"), "b reduce").batch.id
    control.pause(context, batch=other)
    watched = Monitor(context, Target((batch, other), 0)).look()
    assert watched.names == {batch: "b", other: "b reduce"}
