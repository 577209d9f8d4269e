"""When a failed attempt is tried again, and when a crashing task is given up."""

from __future__ import annotations

CRASH_LIMIT = 3
FIRST_DELAY = 10_000
LONGEST_DELAY = 3_600_000


def back_off(failures: int) -> int:
    """Milliseconds to wait after that many failures: 10 s, 20 s, 40 s … up to an hour."""
    return int(min(FIRST_DELAY * 2 ** min(max(failures - 1, 0), 20), LONGEST_DELAY))


def is_poisoned(crashes: int) -> bool:
    return crashes >= CRASH_LIMIT
