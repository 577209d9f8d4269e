"""What is mounted where, as /proc/self/mountinfo tells it."""

from __future__ import annotations

import re
from typing import NamedTuple

ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """`root` is the folder of the file system that is seen at `point`."""

    device: str
    root: str
    point: str
    kind: str
    options: tuple[str, ...]


def read_mounts(proc: str = "/proc") -> list[Mount]:
    """The mounts, the last one on top; OSError where they cannot be read."""
    with open(f"{proc}/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return parse_mounts(file.read())


def parse_mounts(mountinfo: str) -> list[Mount]:
    mounts = []
    for line in mountinfo.split("\n"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.partition(" ")[0]
        if kind and len(fields) > 4:
            root, point = map(_unescape, fields[3:5])
            options = tuple(after.rpartition(" ")[2].split(","))
            mounts.append(Mount(fields[2], root, point, kind, options))
    return mounts


def _unescape(path: str) -> str:
    """Blanks and backslashes are written as octal numbers."""
    return ESCAPED.sub(lambda code: chr(int(code[1], 8)), path)
