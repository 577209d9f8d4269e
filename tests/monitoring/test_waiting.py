"""Why nothing starts, in one sentence."""

import pytest

from hypervisor.agents.cooldown import Cooldown
from hypervisor.core.times import clock_text
from hypervisor.monitoring.status import Status, combine, quick_status
from hypervisor.monitoring.waiting import Waiting, waiting_text, why_waiting
from hypervisor.queue.lifecycle import NEVER, STATES
from hypervisor.queue.pause import Pause
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Delay, NewTask, Stats
from hypervisor.runs import control
from tests.support import submitted_runs as made_up
from tests.support.given import NOW

context = made_up.hv
HOUR = 3_600_000


def status(claimed=0, **more):
    counts = {state: more.pop(state, 0) for state in STATES}
    stats = Stats(sum(counts.values()), counts, {}, 0, claimed, 0.0, 0.0, 300)
    return Status(None, stats, (), (), 1234, None)._replace(**more)


def text_of(status, *delays):
    waiting = why_waiting(status, delays, NOW)
    return waiting and waiting_text(waiting, NOW)


def host(said, zone="danger", target=0):
    return {"message": said, "zone": zone, "target": target}


@pytest.mark.parametrize(
    ("delays", "text"),
    [
        ([Delay(True, 3, NOW + 11_001, NOW + 11_500)], "3 tasks retry in 12 s"),
        ([Delay(True, 1, NOW + 9_000, NOW + 9_000)], "1 task retries in 9 s"),
        ([Delay(True, 2, NOW + 9_000, NOW + 90_000)], "2 tasks retry, the first in 9 s"),
        ([Delay(False, 1, NOW + 30_000, NOW + 30_000)], "1 task starts in 30 s"),
        ([Delay(True, 1, NOW - 5, NOW - 5)], "1 task retries in 0 s"),
    ],
)
def test_a_start_in_the_near_future_is_counted_down_to(delays, text):
    assert text_of(status(waiting=3), *delays) == f"waiting: {text}"
    waiting = why_waiting(status(waiting=3), delays, NOW)
    assert waiting is not None and (waiting.reason, waiting.next_at) == (text, delays[0].first_at)
    assert waiting_text(waiting, NOW + 1_000) != f"waiting: {text}" or "in 0 s" in text


def test_a_later_start_has_its_time():
    at = NOW + 5 * HOUR
    retry, late = Delay(True, 1, NOW + 9_000, NOW + 9_000), Delay(False, 2, at, at)
    assert text_of(status(waiting=2), late) == f"waiting: 2 tasks start at {clock_text(at, NOW)}"
    assert text_of(status(waiting=3), retry, late) == (
        f"waiting: 1 task retries in 9 s, 2 tasks start at {clock_text(at, NOW)}"
    )


def test_what_the_governor_holds_back():
    busy = host("nothing new is started: CPU 85 % busy with other work (danger)")
    assert text_of(status(active=2, host=busy)) == "waiting: CPU 85 % busy with other work"
    assert text_of(status(claimed=1, active=2, host=busy)) == (
        "waiting: CPU 85 % busy with other work"
    )
    full = host("0 of 4 started: 100 MB free, each is expected to need 2 GB", "safe")
    assert text_of(status(active=2, host=full)) == (
        "waiting: 100 MB free, each is expected to need 2 GB"
    )
    assert text_of(status(active=2, host=host("2 of 4 started: …", target=2))) is None
    assert text_of(status(active=2, host=busy, supervisor=None)) is None


def test_what_someone_has_to_end():
    paused = (Pause("all", "", "too hot", "ann", NOW),)
    assert text_of(status(active=1, pauses=paused)) == "paused by ann: too hot"
    assert text_of(status(active=1, trouble="no space left on /data")) == (
        "waiting: no space left on /data"
    )
    limited = (Cooldown("claude:me", NOW + HOUR, 1, "", NOW),)
    sentence = text_of(status(active=1, cooldowns=limited))
    assert sentence.startswith("waiting: claude is rate-limited until ")
    assert text_of(status(claimed=1, active=1, cooldowns=limited)) is None


def test_what_others_have_to_do_first():
    assert text_of(status(waiting=2)) == "waiting: 2 tasks depend on unfinished tasks"
    assert text_of(status(active=1, host=host("nothing to start: …", "safe"))) == (
        "waiting: 1 task requires a capability that no worker here has"
    )


@pytest.mark.parametrize(
    "calm", [status(done=3), status(claimed=1, waiting=2), status(active=2), status()]
)
def test_nothing_is_reported_while_work_continues_or_is_over(calm):
    assert text_of(calm, Delay(True, 1, NOW + 9_000, NOW + 9_000)) is None


def test_of_a_pipeline_the_stage_that_could_continue_counts():
    first = status(waiting=1)
    retry = Waiting("time", "1 task retries in 9 s", NOW + 9_000)
    others = Waiting("dependencies", "2 tasks depend on unfinished tasks")
    parts = [first._replace(waiting=others), first._replace(waiting=retry)]
    assert combine(parts).waiting == retry
    running = status(claimed=1, waiting=1)
    assert combine([running, first._replace(waiting=others)]).waiting is None


def test_delays_are_read_from_the_store(ledger, add, claim, settle):
    add(NewTask("a", retries=1), batch="b")
    settle(claim(), "back_off", reason="flaky", retry_at=NOW + 10_000)
    add(NewTask("b", start_at=NOW + HOUR), NewTask("c", start_at=NOW + 2 * HOUR), batch="b")
    first = add(NewTask("d", start_at=NOW + HOUR), batch="other")
    add(NewTask("e", start_at=NOW + 5, after=(first,)), batch="b")
    add(NewTask("f", start_at=NEVER), batch="b")
    retry = Delay(True, 1, NOW + 10_000, NOW + 10_000)
    assert ledger.read(queries.delays, ledger.batch("b").id) == [
        retry,
        Delay(False, 2, NOW + HOUR, NOW + 2 * HOUR),
    ]
    assert ledger.read(queries.delays, None) == [
        retry,
        Delay(False, 3, NOW + HOUR, NOW + 2 * HOUR),
    ]


def test_the_status_of_a_batch_says_it(context):
    made_up.run(context, "a", name="b")
    control.pause(context, batch="b", reason="too hot", now=made_up.NOW)
    waiting = quick_status(context, "b", made_up.NOW).waiting
    assert waiting is not None and waiting.kind == "pause" and waiting.reason.endswith(": too hot")
