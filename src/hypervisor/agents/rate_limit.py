"""When an account that met a limit, or whose provider is away, is asked again."""

from __future__ import annotations

import re
import zlib
from datetime import UTC, datetime, timedelta, tzinfo

from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.stream_state import OUTAGES, StreamError

FIRST_REST = 30_000  # after a limit of which nobody says when it is over
LONGEST_REST = 30 * 60_000
FIRST_OUTAGE = 5_000
LONGEST_OUTAGE = 5 * 60_000
SPREAD = 10  # percent that a rest may be longer, so that not all hosts come back at once
MARGIN = 2_000  # after a reset that was announced: clocks differ
SHORTEST = 1_000
FORGOTTEN = 60 * 60_000  # a brake that ended so long ago says nothing about the next one
LATEST = 8 * 24 * 3_600_000  # a reset further away than a week is not believed
LONGEST_REASON = 300

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_CLOCK = re.compile(
    r"(?:resets?|try again|available)(?:\s+(?:at|after|on))?\s+"
    r"(?:(?P<month>[A-Z][a-z]{2})[a-z]*\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?"
    r"(?:,\s*(?P<year>\d{4}))?,?\s+(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[AaPp]\.?[Mm]\.?)?(?P<utc>\s*\(?UTC\b)?"
)
_SPAN = re.compile(
    r"(?:try again|retry|retrying|resets?|wait)\s*(?:in|after)?\s*:?\s*"
    r"(?P<spans>(?:\d+(?:\.\d+)?\s*"
    r"(?:milliseconds?|ms|minutes?|mins?|min|m|seconds?|secs?|s|hours?|hrs?|h|days?|d)\b"
    r"[\s,]*(?:and\s+)?)+)",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def next_brake(
    old: Cooldown | None,
    account: str,
    trouble: StreamError,
    now: int,
    tz: tzinfo = UTC,
    seed: str = "",
) -> Cooldown:
    """The brake after a limit or an outage. Where nobody says when it is over, each in a row
    doubles the rest; `seed` makes it a little longer.

    An error that was met while the account already rests comes from an agent that had been at
    work before: it does not count again, but a later reset is believed."""
    reset = reset_of(trouble, now, tz)
    resting = old if old is not None and old.until > now else None
    old = old if old is not None and old.is_outage == (trouble.kind in OUTAGES) else None
    if resting is not None and resting is old:
        level, until = resting.level, resting.until
    else:
        level = _next_level(old, reset, now)
        until = now + _rest(level, trouble, reset is not None, seed)
    if reset is not None:
        until = max(until, reset + MARGIN)
    elif resting is None:
        until = max(until, now + _asked(trouble))
    until = max(until, resting.until) if resting else until
    since = resting.since if resting else now
    return Cooldown(account, until, level, _reason(trouble), since, trouble.kind)


def _next_level(old: Cooldown | None, reset: int | None, now: int) -> int:
    """A reset that is told starts over, unless the trouble is there again right after it."""
    if reset is not None and (old is None or now - old.until >= FIRST_REST):
        return 0
    return old.level + 1 if old is not None and now - old.until < FORGOTTEN else 1


def _rest(level: int, trouble: StreamError, told: bool, seed: str) -> int:
    """What is told is followed; told wrongly time and again, it is no reason to ask for ever."""
    if level == 0:
        return 0
    first, longest = FIRST_REST, LONGEST_REST
    if trouble.kind in OUTAGES:
        first, longest = FIRST_OUTAGE, LONGEST_OUTAGE
    if told:
        first = SHORTEST
    rest = int(min(first * 2 ** min(level - 1, 20), longest))
    return rest + rest * (zlib.crc32(seed.encode()) % (SPREAD + 1) if seed else 0) // 100


def _asked(trouble: StreamError) -> int:
    """The agent's own pause may be the provider's wish or its own guess: a floor, no more."""
    return min(trouble.retry_after + MARGIN, LONGEST_REST) if trouble.retry_after else 0


def reset_of(trouble: StreamError, now: int, tz: tzinfo = UTC) -> int | None:
    """When the limit is over, as far as the trouble tells; prose is in the time zone `tz`."""
    if trouble.reset_at is not None:
        found: int | None = trouble.reset_at
    elif trouble.retry_after is not None:
        # An agent's own pause before its next try is no word about the limit.
        found = None if trouble.own_pause else now + trouble.retry_after
    else:
        found = _after(trouble.text, now)
        found = _at(trouble.text, now, tz) if found is None else found
    if found is None or not now - LATEST <= found <= now + LATEST:
        return None
    return max(found, now + SHORTEST)


def _reason(trouble: StreamError) -> str:
    text = " ".join(trouble.text.split())[:LONGEST_REASON]
    status = f"{trouble.status}" if trouble.status else trouble.kind
    return text or status


def _after(text: str, now: int) -> int | None:
    found = _SPAN.search(text[:4000])
    if found is None:
        return None
    span = 0.0
    for number, unit in _PART.findall(found["spans"]):
        span += float(number) * _unit(unit.lower())
    return now + round(min(span, 2 * LATEST))


def _unit(name: str) -> int:
    if name in UNITS:
        return UNITS[name]
    if name.startswith("milli"):
        return 1
    return UNITS[name[0]]


def _at(text: str, now: int, tz: tzinfo) -> int | None:
    """'resets 3:45pm', 'try again at 5:42 PM', 'try again at Nov 20th, 2026 9:05 AM'."""
    found = _CLOCK.search(text[:4000])
    if found is None or not (found["minute"] or found["half"]):
        return None
    hour = int(found["hour"])
    if found["half"]:
        hour = hour % 12 + (12 if found["half"][0] in "pP" else 0)
    try:
        here = datetime.fromtimestamp(now / 1000, UTC if found["utc"] else tz)
        at = here.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if found["month"]:
            month = _MONTHS.index(found["month"]) + 1
            at = at.replace(year=int(found["year"] or at.year), month=month, day=int(found["day"]))
        elif at <= here - timedelta(minutes=1):  # they name a minute that may still run
            at += timedelta(days=1)
    except (ValueError, OverflowError, OSError):
        return None
    return round(at.timestamp() * 1000)
