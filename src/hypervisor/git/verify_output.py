"""What a failed verification printed, for people and for the next attempt: a bounded part of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypervisor.runs.outputs.excerpt import EXCERPT_BYTES, excerpt

if TYPE_CHECKING:
    from hypervisor.git.verify import Verdict

MAX_LINES = 20
MAX_LINE = 300  # characters
TITLE = "The end of its output:"


def failure_text(what: str, verdict: Verdict) -> str:
    """One line with the error message and the path of the output, then the end of the output."""
    lines, message = _end_of(verdict)
    because = f": {message}" if message and not message.startswith("$ ") else ""
    summary = f"{what}: {verdict.reason}{because}; output: {verdict.output_path}"
    return "\n".join([summary, TITLE, *lines] if lines else [summary])


def output_in(reason: str) -> list[str]:
    """The lines of output in such a text."""
    head, found, lines = reason.partition(f"\n{TITLE}\n")
    return lines.split("\n") if found and "\n" not in head else []


def _end_of(verdict: Verdict) -> tuple[list[str], str]:
    try:
        with open(verdict.output_path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(0, size - EXCERPT_BYTES))
            end = file.read(EXCERPT_BYTES)
    except OSError:  # deleted, or on another host
        return [], ""
    end = end.removesuffix(f"\n{verdict.reason}\n".encode("utf-8", "replace"))
    found = excerpt(end, start > 0, MAX_LINES)
    lines = [_printable(line) for line in found.lines]
    return lines, _printable(found.message.strip())


def _printable(line: str) -> str:
    """Without what is left of control characters."""
    text = "".join(letter if letter.isprintable() else " " for letter in line)
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…"
