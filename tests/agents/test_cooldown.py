"""How long an account cools down."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.agents.cooldown import (
    FORGOTTEN,
    LATEST,
    MARGIN,
    MAX_LIMIT,
    Cooldown,
    next_cooldown,
    reset_of,
)
from hypervisor.agents.stream_state import NETWORK, OUTAGES, QUOTA, StreamError

NOW = round(datetime(2026, 11, 16, 14, 0, tzinfo=UTC).timestamp() * 1000)


def at(day, hour, minute, tz=UTC):
    return round(datetime(2026, 11, day, hour, minute, tzinfo=tz).timestamp() * 1000)


PROSE = [
    ("You've hit your session limit · resets 3:45pm", at(16, 15, 45)),
    ("You've hit your limit · resets 9am", at(17, 9, 0)),
    ("You've hit your weekly limit · resets Nov 18, 9am", at(18, 9, 0)),
    ("resets 3:45pm (UTC)", at(16, 15, 45)),
    ("You’ve hit your usage limit. … or try again at 5:42 PM.", at(16, 17, 42)),
    ("try again at 8:40 AM.", at(17, 8, 40)),
    ("try again at Nov 20th, 2026 9:05 AM.", at(20, 9, 5)),
    ("try again at 12:30 AM", at(17, 0, 30)),
    ("try again at 12:30 PM", at(17, 12, 30)),
    ("Please try again in 30s", NOW + 30_000),
    ("Rate limit reached. Please try again in 1.5s.", NOW + 1_500),
    ("try again in 250ms", NOW + 1_000),
    ("try again in 2 hours 5 minutes", NOW + 7_500_000),
    ("Please retry in 41.5s.", NOW + 41_500),
    ("try again in 3 days, 2 hours and 1 minute", NOW + 266_460_000),
    ("resets in 20m", NOW + 1_200_000),
    ("try again in 1500 milliseconds", NOW + 1_500),
    ("resets 15:45", at(16, 15, 45)),
    ("resets 2pm", NOW + 1_000),  # which is now: no reason to wait until tomorrow
    ("resets 1:59pm", at(17, 13, 59)),
    ("it resets 5 times a day", None),
    ("Too many requests", None),
    ("try again in a moment", None),
    ("try again later", None),
    ("resets 99:99pm", None),
    ("try again in 99999 days", None),
    ("try again at Nov 20th, 2031 9:05 AM", None),
    ("retried 5 times (total retry wait time: 11.21 seconds)", None),
    ("retry 3 of 5", None),
]


@pytest.mark.parametrize("text, expected", PROSE, ids=[each[0] for each in PROSE])
def test_resets_in_prose(text, expected):
    assert reset_of(StreamError(QUOTA, text), NOW) == expected


def test_prose_is_in_the_zone_that_is_given():
    zone = timezone(timedelta(hours=-5))  # there it is 9:00
    assert reset_of(StreamError(QUOTA, "resets 3:45pm"), NOW, zone) == at(16, 15, 45, zone)
    assert reset_of(StreamError(QUOTA, "resets 8am"), NOW, zone) == at(17, 8, 0, zone)
    assert reset_of(StreamError(QUOTA, "resets 3pm (UTC)"), NOW, zone) == at(16, 15, 0)


def test_figures_come_before_prose():
    assert reset_of(StreamError(QUOTA, "resets 3pm", reset_at=NOW + 9_000), NOW) == NOW + 9_000
    assert reset_of(StreamError(QUOTA, "resets 3pm", retry_after=9_000), NOW) == NOW + 9_000
    assert reset_of(StreamError(QUOTA, "", reset_at=NOW - 9_000), NOW) == NOW + 1_000
    assert reset_of(StreamError(QUOTA, "", reset_at=NOW + LATEST), NOW) == NOW + LATEST
    assert reset_of(StreamError(QUOTA, "", reset_at=NOW + LATEST + 1), NOW) is None
    assert reset_of(StreamError(QUOTA, "", reset_at=5), NOW) is None


def test_a_known_reset_is_kept_to():
    cooldown = next_cooldown(None, "a:1", StreamError(QUOTA, "try again in 30s"), NOW)
    assert cooldown == Cooldown("a:1", NOW + 30_000 + MARGIN, 0, "try again in 30s", NOW)


def rests_of(trouble, times, pause=0):
    """The cooldowns of an account that hits the same limit right after each of them."""
    cooldown, now, rests = None, NOW, []
    for _ in range(times):
        cooldown = next_cooldown(cooldown, "a:1", trouble, now)
        rests.append((cooldown.until - now) / 1000)
        now = cooldown.until + pause
    return cooldown, now, rests


def test_without_a_word_each_rest_is_twice_as_long():
    cooldown, now, rests = rests_of(StreamError(QUOTA, "", 429), 9)
    assert rests == [30, 60, 120, 240, 480, 960, 1800, 1800, 1800]
    assert (cooldown.level, cooldown.reason, cooldown.kind) == (9, "429", QUOTA)
    later = next_cooldown(cooldown, "a:1", StreamError(QUOTA, ""), now + FORGOTTEN)
    assert (later.level, later.until - now - FORGOTTEN) == (1, 30_000)


@pytest.mark.parametrize("kind", OUTAGES)
def test_an_outage_is_looked_at_again_soon_then_less_often(kind):
    cooldown, _, rests = rests_of(StreamError(kind, "away"), 9)
    assert rests == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert cooldown.is_outage and cooldown.kind == kind


def test_an_outage_says_nothing_about_limits():
    cooldown, now, _ = rests_of(StreamError(NETWORK, "away"), 6)
    limit = next_cooldown(cooldown, "a:1", StreamError(QUOTA, "429"), now)
    assert (limit.level, limit.until - now) == (1, 30_000)
    known = next_cooldown(limit, "a:1", StreamError(NETWORK, "away"), now + 100)
    assert known.until == limit.until, "the rest of a limit was cut short"


def test_a_seed_makes_a_rest_a_little_longer():
    away = StreamError(NETWORK, "away")
    found = {next_cooldown(None, "a", away, NOW, seed=f"task{n}.1").until - NOW for n in range(200)}
    assert len(found) > 5 and min(found) >= 5_000 and max(found) <= 5_500


def test_the_agents_own_pause_is_only_a_floor():
    own = StreamError(QUOTA, "rate_limit", 429, retry_after=500, retrying=True, own_pause=True)
    assert reset_of(own, NOW) is None
    assert next_cooldown(None, "a:1", own, NOW).until == NOW + 30_000
    long = own._replace(retry_after=90_000)
    assert next_cooldown(None, "a:1", long, NOW).until == NOW + 90_000 + MARGIN


def test_those_that_were_under_way_do_not_count_again():
    first = next_cooldown(None, "a:1", StreamError(QUOTA, "429"), NOW)
    second = next_cooldown(first, "a:1", StreamError(QUOTA, "429"), NOW + 100)
    assert second[1:3] == first[1:3] and second.since == NOW
    known = next_cooldown(second, "a:1", StreamError(QUOTA, "try again in 300s"), NOW + 200)
    assert known.until == NOW + 200 + 300_000 + MARGIN
    sooner = next_cooldown(known, "a:1", StreamError(QUOTA, "try again in 5s"), NOW + 300)
    assert sooner.until == known.until


@given(
    st.text() | st.from_regex(r"(try again|resets) (in|at) [0-9]{1,20}[ :]?[0-9a-zA-Z]{0,9}"),
    st.none() | st.integers(),
    st.none() | st.integers(),
    st.booleans(),
    st.integers(0, 1 << 45),
)
def test_whatever_is_told_the_rest_is_bounded(text, reset, after, retrying, now):
    cooldown = next_cooldown(None, "a", StreamError(QUOTA, text, None, reset, after, retrying), now)
    assert now < cooldown.until <= now + max(LATEST, MAX_LIMIT) + 2 * MARGIN


def test_a_reset_that_proves_wrong_again_and_again_is_believed_less():
    _, now, rests = rests_of(StreamError(QUOTA, "", retry_after=5_000), 8, pause=500)
    assert rests == [7, 7, 7, 7, 8, 16, 32, 64]
    assert (
        next_cooldown(None, "a:1", StreamError(QUOTA, "", retry_after=5_000), now).until
        == now + 7_000
    )


def test_a_told_reset_starts_over_once_the_account_was_free_for_a_while():
    told = StreamError(QUOTA, "try again in 2s")
    cooldown, now, _ = rests_of(told, 4, pause=500)
    later = next_cooldown(cooldown, "a:1", told, now + 60_000)
    assert (later.until - now - 60_000, later.level) == (2_000 + MARGIN, 0)
