"""Writes the table in docs/how-to/sandbox.md from runs/sandbox/level.py, which tests try out."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from marked import keep

from hypervisor.runs.sandbox.level import PROMISES, Level, refused

COLUMNS: tuple[tuple[str, Level, str], ...] = (
    ("`none`", "none", ""),
    ("`files`, bubblewrap", "files", "bubblewrap"),
    ("`files`, Landlock", "files", "landlock"),
    ("`network`", "network", "bubblewrap"),
)


def page_part() -> str:
    return "\n".join(_rows())


def _rows() -> Iterator[str]:
    yield f"| an attempt tries to | {' | '.join(head for head, _, _ in COLUMNS)} |"
    yield "|---" * (1 + len(COLUMNS)) + "|"
    for name, deed in PROMISES.items():
        cells = ("refused" if name in refused(level, wall) else "–" for _, level, wall in COLUMNS)
        yield f"| {deed.text} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(keep("docs/how-to/sandbox.md", __file__, page_part(), sys.argv[1:]))
