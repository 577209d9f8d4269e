"""The lines of an output that explain a failure."""

from __future__ import annotations

import re

from hypervisor.core.escape_sequences import SEQUENCE
from hypervisor.core.records import NamedTuple

# Programs hold back up to 8 KB of standard output and write it when they exit, below the error
# message that they have written to standard error at once.
EXCERPT_BYTES = 16_000
GAP = "…"
MESSAGE = re.compile(  # in lower case
    r"(?:error|exception)\b(?!\s*[:=]?\s*0\b)|fatal|panic|aborted|segmentation fault|"
    r"permission denied|out of memory|timed out|cannot|can't|could not|couldn't|unable to|"
    r"failed to|no such file|not found|refused"
)


class Excerpt(NamedTuple):
    """The last lines, and among them the one that looks like the error message."""

    lines: tuple[str, ...]
    message: str


def excerpt(end: bytes, cut: bool, count: int) -> Excerpt:
    """Of the `end` of an output, at most `count` lines, without empty ones; `cut`: there is more
    before. If no line looks like an error message, the last one is taken for it.

    If much was printed below the message, the lines that lead to it are shown, then the last."""
    text = SEQUENCE.sub("", end.decode("utf-8", "replace").replace("\r", "\n"))
    pieces = text.split("\n")
    whole = pieces[1:] if cut and len(pieces) > 1 else pieces
    lines = [line.rstrip() for line in whole if line.strip()]
    if not lines:
        return Excerpt((), "")
    last = len(lines) - 1
    at = next((n for n in range(last, -1, -1) if MESSAGE.search(lines[n].lower())), last)
    if at > last - count:
        return Excerpt(tuple(lines[-count:]), lines[at])
    start = max(at - (count - 3), 0)
    return Excerpt((*lines[start : at + 1], GAP, lines[last]), lines[at])
