"""The duration, rate and time left of a batch."""

from hypervisor.monitoring.figures import figures
from tests.support import submitted_runs as made_up

context = made_up.hv
MINUTE = 60_000


def test_a_batch_that_began_a_minute_ago_is_not_measured_over_five(context):
    batch = made_up.run(context, *"abcd").batch.id
    nothing_yet = figures(context, batch, made_up.NOW)
    assert nothing_yet.took == 0 and nothing_yet.per_minute is None and nothing_yet.left is None

    now = made_up.NOW
    made_up.at_work(context, batch)
    for event in ("complete", "fail"):
        (token,) = made_up.claim(context, now=now)
        now += MINUTE // 2
        made_up.settle(context, token, event, now)
    made_up.claim(context, now=now)
    halfway = figures(context, batch, now)
    assert halfway.took == MINUTE
    assert halfway.per_minute and round(halfway.per_minute, 3) == 2.0, (
        "both ended within the minute it has run"
    )
    assert halfway.left == MINUTE, "two are left"


def test_while_nothing_runs_there_is_no_time_left(context):
    """Such as at a checkpoint, which may take days."""
    batch = made_up.run(context, "a", "b").batch.id
    made_up.at_work(context, batch)
    (token,) = made_up.claim(context)
    made_up.settle(context, token, "complete", made_up.NOW + MINUTE)
    waiting = figures(context, batch, made_up.NOW + 2 * MINUTE)
    assert (waiting.took, waiting.per_minute, waiting.left) == (MINUTE, 1.0, None)


def test_a_finished_batch_has_its_average_rate(context):
    batch = made_up.run(context, "a", "b").batch.id
    made_up.at_work(context, batch)
    for token in made_up.claim(context, limit=2):
        made_up.settle(context, token, "complete", made_up.NOW + 4 * MINUTE)
    ended = figures(context, "b", made_up.NOW + 24 * 60 * MINUTE)
    assert (ended.took, ended.per_minute, ended.left) == (4 * MINUTE, 0.5, None)
