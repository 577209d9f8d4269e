"""Times as people write them (`17:00`, `2027-01-31T09:00`, `2h`) and as programs pass them
(milliseconds, datetime, timedelta). All results are in milliseconds.

A time without a date and a date without a zone are local. `now` decides which day `17:00` is on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput

if TYPE_CHECKING:
    from datetime import datetime

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
LATEST = 253_402_300_799_000  # the end of the year 9999


def duration(text: str) -> int:
    """`90s`, `15m`, `2h`, `1d`, or plain seconds."""
    number = text.strip().rstrip("mshd")
    unit = text.strip()[len(number) :] or "s"
    try:
        return int(float(number) * UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        raise InvalidInput(f"invalid duration {text[:40]!r} (try 30s, 15m, 2h)") from None


def moment(text: str, now: int) -> int:
    """`17:00`: the next time of that name; or an ISO time. In milliseconds since 1970."""
    at = _time_of_day(text, now, day=0)
    if at is not None and at <= now:
        at = _time_of_day(text, now, day=1)
    at = _iso(text) if at is None else at
    if at is None:
        raise InvalidInput(f"invalid time {text[:40]!r} (try 17:00, 2027-01-31T09:00, or --in 2h)")
    return at


def past_moment(text: str, now: int) -> int:
    """`17:00`: the last time of that name; an ISO time; or `2h`: that long ago."""
    at = _time_of_day(text, now, day=0)
    if at is not None and at > now:
        at = _time_of_day(text, now, day=-1)
    at = _iso(text) if at is None else at
    if at is not None:
        return at
    try:
        return now - duration(text)
    except InvalidInput:
        raise InvalidInput(
            f"invalid time {text[:40]!r} (try 17:00, 2027-01-31T09:00, or 2h)"
        ) from None


def clock_text(at: int, now: int) -> str:
    """`17:00`, with the date unless it is today."""
    then, today = _local(at), _local(now)
    return then.strftime("%H:%M" if then.date() == today.date() else "%Y-%m-%d %H:%M")


def _time_of_day(text: str, now: int, day: int) -> int | None:
    """That time of day, `day` days from today; None if it is not a time of day."""
    from datetime import timedelta

    match = TIME_OF_DAY.fullmatch(text.strip())
    if match is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.groups())
    try:
        today = _local(now).replace(hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        return None
    return int((today + timedelta(days=day)).timestamp() * 1000)


def _local(ms: int) -> datetime:
    """Local time without its zone, so that a day later is the same time of day."""
    from datetime import datetime

    return datetime.fromtimestamp(ms / 1000).astimezone().replace(tzinfo=None)


def _iso(text: str) -> int | None:
    from datetime import datetime

    try:
        at = int(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
    return at if 0 <= at <= LATEST else None


# As callers in Python pass them. What is neither is returned unchanged, and refused by the check
# that follows.


def time_ms(value: object) -> object:
    """A datetime in milliseconds since 1970; without a time zone it is in local time."""
    if isinstance(value, int):
        return value
    from datetime import datetime  # most commands need none

    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


def duration_ms(value: object) -> object:
    """A timedelta in milliseconds."""
    if isinstance(value, int):
        return value
    from datetime import timedelta  # most commands need none

    return round(value.total_seconds() * 1000) if isinstance(value, timedelta) else value
