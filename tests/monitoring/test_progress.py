"""The progress of a run, its speed, and the remaining time."""

import pytest

from hypervisor.batches.submit import Submitted
from hypervisor.monitoring.progress import Counts, Pace, RunCounter, count, running
from hypervisor.monitoring.status import CurrentAttempt
from hypervisor.queue.task import Batch, Stats

STATES = dict.fromkeys(
    (
        "inbox",
        "waiting",
        "active",
        "in_progress",
        "merging",
        "review",
        "blocked",
        "done",
        "failed",
        "cancelled",
    ),
    0,
)
BATCH = Batch("1q12deyb47df", "pages", 0)


def attempt(number, since=0, worker=None, started=True, title=None, line="a line"):
    pid = number if worker is None else worker
    return CurrentAttempt(
        f"1q12deyb4{number:03}",
        title or f"page {number}",
        BATCH.id,
        1,
        f"worker-{pid}",
        pid,
        since,
        5 << 20,
        line,
        started,
    )


def stats(**states):
    known = {**STATES, **states}
    return Stats(sum(known.values()), known, {}, 0, known["in_progress"], 0.0, 0.0, 300)


class TestPace:
    def test_short_tasks_go_by_their_number(self):
        pace = Pace()
        for second in range(21):
            ended = 10 * second
            pace.note(second * 1000, Counts(done=ended, open=1000 - ended), ())
        assert pace.per_second == pytest.approx(10, rel=0.01)
        assert pace.left == pytest.approx(80_000, rel=0.01)

    def test_it_follows_a_change_of_pace(self):
        pace, ended = Pace(), 0
        for second in range(200):
            ended += 2 if second < 100 else 20
            pace.note(second * 1000, Counts(done=ended, open=10_000 - ended), ())
        assert pace.per_second == pytest.approx(20, rel=0.05)

    def test_the_age_of_long_tasks_counts(self):
        """Four tasks of a minute by two workers: after 90 s, half a minute is left."""
        pace = Pace()
        for second in range(0, 91):
            begun = 0 if second < 60 else 60_000
            first = 1 if second < 60 else 3
            at_work = [attempt(first, begun, 1), attempt(first + 1, begun, 2)]
            pace.note(second * 1000, Counts(done=first - 1, open=5 - first), at_work)
            if second < 60:
                assert pace.left is None
        assert pace.left == pytest.approx(30_000, rel=0.1)

    def test_nothing_is_reported_too_early(self):
        pace = Pace()
        pace.note(0, Counts(open=10), ())
        pace.note(400, Counts(done=5, open=5), ())
        assert (pace.per_second, pace.left) == (None, None)


class TestCounting:
    def test_a_run_is_about_its_own_tasks(self):
        counter = RunCounter(Submitted(BATCH, 0, added=10, already_done=90))
        first = counter.count(stats(done=90, failed=5, active=10), (), {"active": 10})
        assert (first.total, first.ended, first.skipped) == (10, 0, 90)
        later = counter.count(
            stats(done=93, failed=6, active=6), (attempt(1),), {"done": 3, "failed": 1}
        )
        assert (later.total, later.done, later.failed, later.running) == (10, 3, 1, 1)

    def test_tasks_that_end_between_two_looks_do_not_inflate_it(self):
        counter = RunCounter(Submitted(BATCH, 0, added=10))
        seen = counter.count(stats(active=8, done=2), (), {"done": 5})
        assert (seen.total, seen.done) == (10, 2)

    def test_tasks_that_others_add_are_counted_in(self):
        counter = RunCounter(Submitted(BATCH, 0, added=2))
        counter.count(stats(active=2), (), {})
        assert counter.count(stats(active=4, done=1), (), {"done": 1}).total == 5

    def test_a_worker_runs_one_at_a_time(self):
        listed = [attempt(1, worker=7), attempt(2, worker=7), attempt(3, worker=7, started=False)]
        assert [each.task[-1] for each in running(listed).values()] == ["2"]
        assert count({**STATES, "in_progress": 3}, listed).running == 1
