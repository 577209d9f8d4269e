"""A task that cannot be stored, among many tasks of a run."""

import pytest

from hypervisor.batches import submit
from hypervisor.batches.summary import summary
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.queue.task import NewTask
from tests.support import submitted_runs as made_up
from tests.support.submitted_runs import NOW, SPEC

context = made_up.hv


def tasks():
    good = made_up.items(*map(str, range(200)))
    bad = NewTask("bad", key="bad", priority="urgent")  # type: ignore[arg-type]
    return [*good[:149], bad, *good[149:]]


def test_of_a_list_nothing_is_added(context):
    with pytest.raises(InvalidInput, match=r"^task 150: .*urgent.*Nothing was added\.$"):
        submit.submit(context, SPEC, tasks(), "b", NOW)
    with pytest.raises(NotFound):
        context.store.batch("b")


def test_of_a_stream_the_error_says_what_was_added(context):
    with pytest.raises(InvalidInput, match=r"^task 150: .*urgent.* in batch 'b': 100 tasks"):
        submit.submit(context, SPEC, iter(tasks()), "b", NOW)
    assert summary(context, "b", NOW).total == 100
    good = [task for task in tasks() if task.key != "bad"]
    again = submit.submit(context, SPEC, good, "b", NOW)
    assert (again.added, again.still_open) == (100, 100), "as the message says, it goes on"
