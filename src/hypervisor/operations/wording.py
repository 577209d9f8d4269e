"""Words that depend on numbers."""


def counted(number: int, noun: str) -> str:
    """`1 task`, `2,000 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"
