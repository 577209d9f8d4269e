"""Which items name the same files, and the keys that prevent them from running together.

A name stands for itself and for everything below it, so a folder and a file in it overlap.
Each name gets the key of the topmost shared name among itself and its parents: two items that
overlap then always have a key in common, and an item has at most as many keys as names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache

from hypervisor.inputs.item_names import is_utf8, printable_path

MAX_NAMES = 40  # of one item; beyond that, folders replace the files in them
ROOT = "."
MAGIC = re.compile(r"[*?\[]")
MAX_KEY_LENGTH = 900


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
    """The names without those below another one, few enough to be keys."""
    kept = set(names)
    while len(kept) > MAX_NAMES:
        deepest = max(map(_depth, kept))
        kept = {parent(name) if _depth(name) == deepest else name for name in kept}
    return {name for name in kept if not any(folder in kept for folder in above(name))}


def parent(name: str) -> str:
    folder = name.rpartition("/")[0]
    return folder or ("/" if name.startswith("/") else ROOT)


def shared(counts: Mapping[str, int]) -> set[str]:
    """The names that several items share; `counts` is the number of items that name each."""
    names = {name for name, count in counts.items() if count > 1}
    for name in counts:
        names.update(folder for folder in above(name) if folder in counts)
    return names


def topmost(name: str, among: Collection[str]) -> str | None:
    """The outermost of `among` that is the name or one of its parents."""
    return next((path for path in (*above(name), name) if path in among), None)


def key(name: str) -> str:
    """The exclusive key for a file."""
    if len(name) <= MAX_KEY_LENGTH and is_utf8(name):
        return f"file:{name}"
    from hashlib import sha256

    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"file:{printable_path(name)[:200]} {digest}"


def fixed_folder(pattern: str) -> str:
    """The innermost folder that holds everything a pattern can match."""
    fixed = []
    for part in pattern.split("/")[:-1]:
        if MAGIC.search(part):
            break
        fixed.append(part)
    return "/".join(fixed) or ("/" if pattern.startswith("/") else ROOT)


@lru_cache(maxsize=256)
def matcher(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression: `*` and `?` stay within a folder, `**` does not."""
    parts, at = [], 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            parts.append(r"(?:[^/]+/)*")
            at += 3
        elif pattern.startswith("**", at):
            parts.append(".*")
            at += 2
        else:
            regex, at = _translate(pattern, at)
            parts.append(regex)
    return re.compile("".join(parts), re.DOTALL)


def _translate(pattern: str, at: int) -> tuple[str, int]:
    """The regular expression for the character or class at `at`, and where the next begins."""
    char = pattern[at]
    if char == "*":
        return "[^/]*", at + 1
    if char == "?":
        return "[^/]", at + 1
    end = pattern.find("]", at + 2) if char == "[" else -1
    if end < 0:
        return re.escape(char), at + 1
    inner = pattern[at + 1 : end]
    negated = inner.startswith("!")
    inner = re.sub(r"([\\^\[\]&~|])", r"\\\1", inner[1:] if negated else inner)
    return f"(?!/)[{'^' if negated else ''}{inner}]", end + 1


def _depth(name: str) -> int:
    return 0 if name in (ROOT, "/") else name.count("/") + 1
