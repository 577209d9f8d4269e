"""Text for people: words that depend on numbers, and text without invisible characters."""

JOINERS = "\u200c\u200d"  # invisible, but part of how words and emoji are written


def pluralize(number: int, noun: str) -> str:
    """`1 task`, `2,000 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def one_line(text: str) -> str:
    """Text for a single line: line breaks and control characters made visible."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in JOINERS else repr(c)[1:-1] for c in text)


def amount_text(micros: int) -> str:
    """An amount for people: 1.00, 0.0042."""
    text = f"{micros / 1_000_000:.4f}"
    return text[:-2] if text.endswith("00") else text
