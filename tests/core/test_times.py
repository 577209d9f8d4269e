"""Times as people write them."""

from datetime import datetime, timedelta

import pytest

from hypervisor.core.errors import InvalidInput
from hypervisor.core.times import clock_text, duration, moment, past_moment

NOON = datetime.fromisoformat("2026-11-17T12:00")
HOUR = 3_600_000


def ms(when):
    return int(when.timestamp() * 1000)


NOW = ms(NOON)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("17:00", NOON.replace(hour=17)),
        (" 9:30", NOON.replace(day=18, hour=9, minute=30)),
        ("12:00", NOON.replace(day=18)),
        ("12:00:01", NOON.replace(second=1)),
        ("2027-01-31T09:00", datetime.fromisoformat("2027-01-31T09:00")),
        ("2027-01-31", datetime.fromisoformat("2027-01-31")),
        ("2027-01-31T09:00+00:00", datetime.fromisoformat("2027-01-31T09:00+00:00")),
    ],
)
def test_the_next_time_the_clock_shows_this(text, at):
    assert moment(text, NOW) == ms(at)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("17:00", NOON.replace(day=16, hour=17)),
        ("9:30", NOON.replace(hour=9, minute=30)),
        ("12:00", NOON),
        ("2h", NOON - timedelta(hours=2)),
        ("90", NOON - timedelta(seconds=90)),
        ("2026-11-01", datetime.fromisoformat("2026-11-01")),
    ],
)
def test_the_last_time_the_clock_showed_this(text, at):
    assert past_moment(text, NOW) == ms(at)


@pytest.mark.parametrize("text", ["", "soon", "24:00", "12:60", "2h", "17", "12:0"])
def test_what_is_not_a_time_is_refused_with_examples(text):
    with pytest.raises(InvalidInput) as refused:
        moment(text, NOW)
    assert str(refused.value) == (
        f"invalid time {text!r} (try 17:00, 2027-01-31T09:00, or --in 2h)"
    )


def test_durations():
    assert [duration(text) for text in ("90s", "15m", "2h", "1d", "1.5")] == [
        90_000,
        15 * 60_000,
        2 * HOUR,
        24 * HOUR,
        1_500,
    ]
    for text in ("", "1x", "h", "inf", "nan"):
        with pytest.raises(InvalidInput, match="invalid duration"):
            duration(text)


def test_times_for_people():
    assert clock_text(NOW + 5 * HOUR, NOW) == "17:00"
    assert clock_text(NOW + 24 * HOUR, NOW) == "2026-11-18 12:00"
