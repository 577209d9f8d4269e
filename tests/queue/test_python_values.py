"""Titles, datetimes and timedeltas in place of tasks and milliseconds."""

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

import hypervisor
from hypervisor import Changes, NewTask, Outcome, State
from hypervisor.queue import lifecycle
from hypervisor.queue.sql import settlement
from hypervisor.queue.task import TaskFields
from tests.support.given import NOW

SOON = datetime.fromtimestamp(NOW / 1000, UTC) + timedelta(minutes=1)
SOON_MS = NOW + 60_000


@pytest.fixture(params=["sqlite", "postgres"])
def hv(request, tmp_path):
    kind = request.param
    store = tmp_path / "x.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    with hypervisor.open(store, relaxed=True) as opened:
        yield opened


def test_one_task_may_be_added_as_its_title_or_alone(hv):
    by_title = hv.add("Review the parser")
    alone = hv.add(NewTask("Review the lexer", key="lexer"), batch="b")
    assert hv.show(by_title.id).detail.task.title == "Review the parser"
    assert hv.add(NewTask("Again", key="lexer"), batch="b").id == alone.id
    assert len(hv.add(title for title in ("a", "b")).ids) == 2
    with pytest.raises(ValueError, match="2 tasks were given"):
        _ = hv.add(["a", NewTask("b")]).id
    with pytest.raises(hypervisor.InvalidInput, match="the title is empty"):
        hv.add("")


def test_the_fields_of_one_task_may_be_keywords(hv):
    added = hv.add("Later", batch="b", now=NOW, start_at=SOON, priority="high", key="later")
    task = hv.show(added.id).detail.task
    assert (task.title, task.start_at, task.priority) == ("Later", SOON_MS, "high")
    assert hv.add("Again", batch="b", key="later").id == added.id
    for tasks in (["a", "b"], NewTask("a")):
        with pytest.raises(hypervisor.InvalidInput, match="priority is a field of one task"):
            hv.add(tasks, priority="high")
    with pytest.raises(TypeError, match="prio"):
        hv.add("a", prio="high")
    assert len(hv.list_tasks()) == 1, "nothing was added"
    assert set(TaskFields.__annotations__) == set(NewTask._fields) - {"title"}


def test_a_start_time_may_be_a_datetime(hv):
    local = SOON.astimezone().replace(tzinfo=None)
    for start_at in (SOON, local):
        task = hv.add(NewTask("Later", start_at=start_at), now=NOW).id
        assert hv.show(task).detail.task.start_at == SOON_MS
        hv.update(task, Changes(start_at=SOON + timedelta(hours=1)), now=NOW)
        assert hv.show(task).detail.task.start_at == SOON_MS + 3_600_000
    with pytest.raises(hypervisor.InvalidInput, match="the start time must be a whole number"):
        hv.add(NewTask("Later", start_at="soon"))  # type: ignore[arg-type]


def test_leases_and_delays_may_be_timedeltas(hv):
    hv.add(NewTask("Work", retries=1), now=NOW)
    (lease,) = hv.claim("me", lease=timedelta(minutes=2), now=NOW)
    assert lease.until == NOW + 120_000
    assert hv.heartbeat([lease.token], timedelta(minutes=3), now=NOW).until == NOW + 180_000
    hv.fail(lease.token, "no network", retry_in=timedelta(seconds=1.5), now=NOW)
    assert hv.show(lease.task.id).detail.task.start_at == NOW + 1_500
    with pytest.raises(hypervisor.InvalidInput, match="the lease must be between"):
        hv.claim("me", lease=timedelta(0))


def test_the_types_of_states_and_outcomes_name_all_of_them():
    assert get_args(State) == tuple(lifecycle.STATES)
    assert set(get_args(Outcome)) == set(settlement.OUTCOMES.values())
