"""Cooldowns: after a rate limit or an outage, an account is not used for a while."""

from __future__ import annotations

import re
import zlib
from datetime import UTC, datetime, timedelta, tzinfo

from hypervisor.agents import stream_state as kinds
from hypervisor.agents.stream_state import OUTAGES, ErrorKind, StreamError
from hypervisor.core.records import NamedTuple
from hypervisor.resources.limits import span_text

FIRST_LIMIT = 30_000  # after a limit without an announced end
MAX_LIMIT = 30 * 60_000
FIRST_OUTAGE = 5_000
MAX_OUTAGE = 5 * 60_000
SPREAD = 10  # percent of jitter, so that not all hosts come back at once
MARGIN = 2_000  # added to an announced reset: clocks differ
MIN_LENGTH = 1_000
FORGOTTEN = 60 * 60_000  # a cooldown that ended longer ago does not count
LATEST = 8 * 24 * 3_600_000  # a reset more than a week away is ignored
MAX_REASON_LENGTH = 300
DAY = 86_400_000

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
OUTAGE_TEXTS = {
    kinds.NETWORK: "provider unreachable",
    kinds.STREAM: "provider breaks off its answers",
    kinds.SERVER: "provider fails",
    kinds.OVERLOAD: "provider overloaded",
}


class Cooldown(NamedTuple):
    """No requests are made for `account` before `until`. `level` counts limits or outages in a row
    without an announced end: each makes the next cooldown longer. `kind` is that of the error."""

    account: str
    until: int
    level: int
    reason: str
    since: int
    kind: ErrorKind = kinds.QUOTA

    @property
    def provider(self) -> str:
        return self.account.partition(":")[0]

    @property
    def is_outage(self) -> bool:
        return self.kind in kinds.OUTAGES


def cooldown_text(cooldown: Cooldown, now: int, tz: tzinfo | None = UTC) -> str:
    """One line: which provider, and until when; in local time if `tz` is None."""
    if cooldown.is_outage:
        remaining = span_text(max(cooldown.until - now + 999, 1000) // 1000 * 1000)
        text = f"{cooldown.provider}: {OUTAGE_TEXTS[cooldown.kind]}; trying again in {remaining}"
        return f"{text} ({cooldown.reason})" if cooldown.reason else text
    at = datetime.fromtimestamp(cooldown.until / 1000, tz)
    until = f"{at:%H:%M:%S}" if cooldown.until - now < DAY else f"{at:%Y-%m-%d %H:%M}"
    text = f"{cooldown.provider} is rate-limited until {until}{' UTC' if tz is UTC else ''}"
    return f"{text}: {cooldown.reason}" if cooldown.reason else text


def next_cooldown(
    old: Cooldown | None,
    account: str,
    error: StreamError,
    now: int,
    *,
    tz: tzinfo = UTC,
    seed: str = "",
) -> Cooldown:
    """The cooldown after a limit or an outage. If no end is announced, it doubles each time;
    `seed` adds jitter.

    An error during a cooldown comes from an agent that had started before: it does not count again,
    but a later reset is used."""
    reset = reset_of(error, now, tz)
    current = old if old is not None and old.until > now else None
    old = old if old is not None and old.is_outage == (error.kind in OUTAGES) else None
    if current is not None and current is old:
        level, until = current.level, current.until
    else:
        level = _next_level(old, reset, now)
        until = now + _duration(level, error, reset is not None, seed)
    if reset is not None:
        until = max(until, reset + MARGIN)
    elif current is None:
        until = max(until, now + _own_pause(error))
    until = max(until, current.until) if current else until
    since = current.since if current else now
    return Cooldown(account, until, level, _reason(error), since, error.kind)


def _next_level(old: Cooldown | None, reset: int | None, now: int) -> int:
    """An announced reset starts from zero, unless the error recurs right after it."""
    if reset is not None and (old is None or now - old.until >= FIRST_LIMIT):
        return 0
    return old.level + 1 if old is not None and now - old.until < FORGOTTEN else 1


def _duration(level: int, error: StreamError, has_reset: bool, seed: str) -> int:
    """Follows an announced reset; if those keep being wrong, the cooldown grows, too."""
    if level == 0:
        return 0
    first, longest = FIRST_LIMIT, MAX_LIMIT
    if error.kind in OUTAGES:
        first, longest = FIRST_OUTAGE, MAX_OUTAGE
    if has_reset:
        first = MIN_LENGTH
    duration = int(min(first * 2 ** min(level - 1, 20), longest))
    return duration + duration * (zlib.crc32(seed.encode()) % (SPREAD + 1) if seed else 0) // 100


def _own_pause(error: StreamError) -> int:
    """The agent's own retry delay may be the provider's or a guess: only a lower bound."""
    return min(error.retry_after + MARGIN, MAX_LIMIT) if error.retry_after else 0


def reset_of(error: StreamError, now: int, tz: tzinfo = UTC) -> int | None:
    """When the limit ends, according to the error; times in its text are in the zone `tz`."""
    if error.reset_at is not None:
        reset_at: int | None = error.reset_at
    elif error.retry_after is not None:
        # An agent's own retry delay says nothing about the limit.
        reset_at = None if error.own_pause else now + error.retry_after
    else:
        reset_at = _after(error.text, now)
        reset_at = _at(error.text, now, tz) if reset_at is None else reset_at
    if reset_at is None or not now - LATEST <= reset_at <= now + LATEST:
        return None
    return max(reset_at, now + MIN_LENGTH)


def _reason(error: StreamError) -> str:
    text = " ".join(error.text.split())[:MAX_REASON_LENGTH]
    status = f"{error.status}" if error.status else error.kind
    return text or status


def _after(text: str, now: int) -> int | None:
    match = _SPAN.search(text[:4000])
    if match is None:
        return None
    span = 0.0
    for number, unit in _PART.findall(match["spans"]):
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
    match = _CLOCK.search(text[:4000])
    if match is None or not (match["minute"] or match["half"]):
        return None
    hour = int(match["hour"])
    if match["half"]:
        hour = hour % 12 + (12 if match["half"][0] in "pP" else 0)
    try:
        here = datetime.fromtimestamp(now / 1000, UTC if match["utc"] else tz)
        at = here.replace(hour=hour, minute=int(match["minute"] or 0), second=0, microsecond=0)
        if match["month"]:
            month = _MONTHS.index(match["month"]) + 1
            at = at.replace(year=int(match["year"] or at.year), month=month, day=int(match["day"]))
        elif at <= here - timedelta(minutes=1):  # the announced minute may not be over yet
            at += timedelta(days=1)
    except (ValueError, OverflowError, OSError):
        return None
    return round(at.timestamp() * 1000)
