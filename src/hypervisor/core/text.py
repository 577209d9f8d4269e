"""Text as people write and read it: plurals, money, large numbers, no invisible characters."""

from __future__ import annotations

from collections.abc import Iterable

from hypervisor.core.errors import InvalidInput

CURRENCY = "USD"  # agents report their cost in it; prices and budgets use it, too
MAX_MONEY = 1_000_000_000
MAX_SIZE = 2**62
UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
JOINERS = "\u200c\u200d"  # invisible, but part of how words and emoji are written


def pluralize(number: int, noun: str) -> str:
    """`1 task`, `2,000 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def one_line(text: str) -> str:
    """Text for a single line: line breaks and control characters made visible."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in JOINERS else repr(c)[1:-1] for c in text)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The most similar known word, for "did you mean"; first of all one with the same letters."""
    from difflib import get_close_matches

    similar = get_close_matches(word, list(known), 5)
    swapped = [name for name in similar if sorted(name) == sorted(word)]
    return next(iter(swapped or similar), None)


def money_text(micros: int) -> str:
    """An amount for people: 1.00 USD, 0.0042 USD."""
    return f"{_money_figures(micros)} {CURRENCY}"


def used_text(used: int, limit: int) -> str:
    """An amount spent, out of a limit: 0.30 of 5.00 USD."""
    return f"{_money_figures(used)} of {money_text(limit)}"


def _money_figures(micros: int) -> str:
    text = f"{micros / 1_000_000:,.4f}"
    return text[:-2] if text.endswith("00") else text


def money(value: str | float) -> int:
    """`5`, `0.10`, `$2.50`, `5 USD`, in millionths."""
    from decimal import Decimal, InvalidOperation

    try:
        dollars = Decimal(str(value).strip().removeprefix("$").removesuffix(CURRENCY).strip())
    except InvalidOperation:
        dollars = Decimal(-1)
    if isinstance(value, bool) or not dollars.is_finite() or not 0 < dollars < MAX_MONEY:
        raise InvalidInput(f"invalid amount {str(value)[:40]!r} (try 5 or 0.50)")
    return int(dollars * 1_000_000)


def amount(value: str | float) -> int:
    """`5000`, `200k`, `1.5M`, in units of 1,000."""
    text = str(value).strip().lower()
    number = text.rstrip("km")
    unit = UNITS.get(text[len(number) :])
    try:
        result = int(float(number) * unit) if unit else 0
    except (ValueError, OverflowError):
        result = 0
    if isinstance(value, bool) or not 0 < result < MAX_SIZE:
        raise InvalidInput(f"invalid number {str(value)[:40]!r} (try 5000, 200k or 1.5M)")
    return result
