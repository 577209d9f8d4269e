"""Which items name the same files, and which keys keep them from running together.

A name stands for itself and for everything below it, so a folder and a file in it overlap.
Each name gets the key of the topmost shared name above it or of itself: two items that
overlap then always have a key in common, and an item has at most as many keys as names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache

MOST_NAMES = 40  # of one item: beyond that, folders stand for what is in them
ROOT = "."
MAGIC = re.compile(r"[*?\[]")
LONGEST_KEY = 900


def above(name: str) -> Iterator[str]:
    """The folders that a name is in, the outermost first."""
    if name in (ROOT, "/"):
        return
    yield "/" if name.startswith("/") else ROOT
    at = name.find("/", 1)
    while at > 0:
        yield name[:at]
        at = name.find("/", at + 1)


def outermost(names: Iterable[str]) -> set[str]:
    """Without what lies below another one of them, and few enough to be keys."""
    found = set(names)
    while len(found) > MOST_NAMES:
        deepest = max(map(_depth, found))
        found = {parent(name) if _depth(name) == deepest else name for name in found}
    return {name for name in found if not any(folder in found for folder in above(name))}


def parent(name: str) -> str:
    folder = name.rpartition("/")[0]
    return folder or ("/" if name.startswith("/") else ROOT)


def shared(named: Mapping[str, int]) -> set[str]:
    """The names that concern several items; `named` says how many items name each."""
    found = {name for name, count in named.items() if count > 1}
    for name in named:
        found.update(folder for folder in above(name) if folder in named)
    return found


def topmost(name: str, among: Collection[str]) -> str | None:
    """The outermost of these that the name is or lies in."""
    return next((each for each in (*above(name), name) if each in among), None)


def key(name: str) -> str:
    """The exclusive key that stands for a file."""
    if len(name) <= LONGEST_KEY:
        return f"file:{name}"
    from hashlib import sha256

    return f"file:{name[:200]} {sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def fixed_folder(pattern: str) -> str:
    """The folder in which all that fits a pattern must lie."""
    fixed = []
    for part in pattern.split("/")[:-1]:
        if MAGIC.search(part):
            break
        fixed.append(part)
    return "/".join(fixed) or ("/" if pattern.startswith("/") else ROOT)


@lru_cache(maxsize=256)
def matcher(pattern: str) -> re.Pattern[str]:
    """What fits a pattern: `*` and `?` stay within a folder, `**` does not."""
    parts, at = [], 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            parts.append(r"(?:[^/]+/)*")
            at += 3
        elif pattern.startswith("**", at):
            parts.append(".*")
            at += 2
        else:
            text, at = _one(pattern, at)
            parts.append(text)
    return re.compile("".join(parts), re.DOTALL)


def _one(pattern: str, at: int) -> tuple[str, int]:
    char = pattern[at]
    if char == "*":
        return "[^/]*", at + 1
    if char == "?":
        return "[^/]", at + 1
    end = pattern.find("]", at + 2) if char == "[" else -1
    if end < 0:
        return re.escape(char), at + 1
    inner = pattern[at + 1 : end]
    not_in = inner.startswith("!")
    inner = re.sub(r"([\\^\[\]&~|])", r"\\\1", inner[1:] if not_in else inner)
    return f"(?!/)[{'^' if not_in else ''}{inner}]", end + 1


def _depth(name: str) -> int:
    return 0 if name in (ROOT, "/") else name.count("/") + 1
