"""Money and large numbers as people write them."""

from __future__ import annotations

from hypervisor.core.errors import InvalidInput

MOST_MONEY = 1_000_000_000
LARGEST = 2**62
UNITS = {"": 1, "k": 1_000, "m": 1_000_000}


def money(value: str | float) -> int:
    """`5`, `0.10`, `$2.50`, in millionths."""
    from decimal import Decimal, InvalidOperation

    try:
        found = Decimal(str(value).strip().removeprefix("$"))
    except InvalidOperation:
        found = Decimal(-1)
    if isinstance(value, bool) or not found.is_finite() or not 0 < found < MOST_MONEY:
        raise InvalidInput(f"{str(value)[:40]!r} is no sum of money: try 5 or 0.50.")
    return int(found * 1_000_000)


def amount(value: str | float) -> int:
    """`5000`, `200k`, `1.5M`: a K is 1,000 here."""
    text = str(value).strip().lower()
    number = text.rstrip("km")
    unit = UNITS.get(text[len(number) :])
    try:
        found = int(float(number) * unit) if unit else 0
    except (ValueError, OverflowError):
        found = 0
    if isinstance(value, bool) or not 0 < found < LARGEST:
        raise InvalidInput(f"{str(value)[:40]!r} is no number: try 5000, 200k or 1.5M.")
    return found
