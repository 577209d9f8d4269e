"""The files that items name, in `files:` or in their text, and which of them are shared.

Names are relative to the folder of the run where they lie in it. A pattern stands for the
files that fit it now and for those named by others that do not exist yet; one that fits too
many stands for its whole folder. Nothing outside the folder is ever listed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from glob import iglob
from itertools import islice

from hypervisor.domain import overlap
from hypervisor.domain.preflight import names_in
from hypervisor.domain.template import Item

MARKDOWN = (".md", ".markdown")
MOST_MATCHES = 2_000
MOST_LISTED = 1_000  # names of one item
MOST_PATTERNS, MOST_YET_TO_COME = 3, 15  # of one item: a task may have a hundred keys
LARGEST_TEXT = 1 << 20
QUOTED = re.compile(r"`([^`\n]{1,300})`")
SPACE = re.compile(r"\s")
LOOKS_LIKE_PATH = re.compile(r"[\w./+@ -]*[/.][\w./+@ -]*\Z")
FEW = 2

Conflict = tuple[str, int, tuple[str, ...]]  # name, how many items, the first of them


class NamedFiles:
    def __init__(self, root: str, in_text: bool = False) -> None:
        self.root = os.path.realpath(root)
        self.absent: set[str] = set()
        self._in_text = in_text
        self._number = 0
        self._items: dict[str, list[int]] = {}  # name → the items that name it
        self._who: dict[str, list[str]] = {}
        self._patterns: dict[str, list[int]] = {}
        self._shared: set[str] | None = None
        self._fits: dict[str, list[str]] = {}
        self._matches = lru_cache(maxsize=256)(self._list)

    def add(self, item: Item) -> None:
        self._number += 1
        self._shared = None
        names, patterns = self._of(item)
        for name in names:
            self._items.setdefault(name, []).append(self._number)
            who = self._who.setdefault(name, [])
            if len(who) < FEW:
                who.append(item.text[:80])
        for pattern in patterns:
            self._patterns.setdefault(pattern, []).append(self._number)

    def keys_for(self, item: Item) -> tuple[str, ...]:
        shared = self._all_shared()
        if not shared:
            return ()
        names, patterns = self._of(item)
        names |= self._yet_to_come(patterns)
        tops = {overlap.topmost(name, shared) for name in names}
        return tuple(sorted(overlap.key(top) for top in tops if top))

    def conflicts(self) -> tuple[list[Conflict], int]:
        """Each shared name with how many items share it and who, and how many share at all."""
        shared = self._all_shared()
        groups: dict[str, list[list[int]]] = {}
        who: dict[str, list[str]] = {}
        for name, numbers in self._items.items():
            if top := overlap.topmost(name, shared):
                groups.setdefault(top, []).append(numbers)
                who.setdefault(top, []).extend(self._who[name])
        for pattern, numbers in self._patterns.items():
            for top in {overlap.topmost(name, shared) for name in self._fitting(pattern)}:
                if top:
                    groups.setdefault(top, []).append(numbers)
        everybody: set[int] = set()
        found = []
        for name, parts in groups.items():
            items = set().union(*parts)
            everybody |= items
            found.append((name, len(items), tuple(who.get(name, ())[:FEW])))
        return sorted(found), len(everybody)

    def _all_shared(self) -> set[str]:
        """Patterns count for what fits them and does not exist yet."""
        if self._shared is None:
            self._fits = {}
            counts = {name: len(numbers) for name, numbers in self._items.items()}
            for pattern, numbers in self._patterns.items():
                for name in self._fitting(pattern):
                    counts[name] = counts.get(name, 0) + len(numbers)
            self._shared = overlap.shared(counts)
        return self._shared

    def _yet_to_come(self, patterns: Iterable[str]) -> set[str]:
        return {name for pattern in patterns for name in self._fitting(pattern)}

    def _fitting(self, pattern: str) -> list[str]:
        if pattern not in self._fits:
            fits = overlap.matcher(pattern).fullmatch
            found = [name for name in self.absent if fits(name)]
            too_many = len(found) > MOST_YET_TO_COME
            self._fits[pattern] = [overlap.fixed_folder(pattern)] if too_many else found
        return self._fits[pattern]

    def _of(self, item: Item) -> tuple[set[str], set[str]]:
        """The names of an item, and its patterns."""
        names: set[str] = set()
        patterns: set[str] = set()
        if is_task_file(item):
            names.add(self._inside(os.path.abspath(item.text)))
        for text in declared(item, "files")[:MOST_LISTED]:
            name = self._inside(os.path.join(self.root, text))
            if not overlap.MAGIC.search(text) or os.path.lexists(os.path.join(self.root, name)):
                names.add(name)
                self._remember(name)
            elif name.startswith("/") or len(patterns) >= MOST_PATTERNS:
                names.add(overlap.fixed_folder(name))
            else:
                names.update(self._matches(name))
                patterns.add(name)
        if self._in_text and is_task_file(item):
            names.update(self._mentioned(item.text))
        for pattern in patterns:  # which stands for those, too
            fits = overlap.matcher(pattern).fullmatch
            names = {name for name in names if name not in self.absent or not fits(name)}
        return overlap.outermost(names), patterns

    def _remember(self, name: str) -> None:
        if not os.path.lexists(os.path.join(self.root, name)):
            self.absent.add(name)

    def _inside(self, path: str) -> str:
        """Relative to the root if it lies there; links are followed, so that one file has one
        name."""
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError):
            real = os.path.normpath(path)
        if real == self.root:
            return overlap.ROOT
        inner = real.removeprefix(self.root.rstrip("/") + "/")
        return inner if inner != real else real

    def _list(self, pattern: str) -> frozenset[str]:
        """What fits a pattern now; its folder, if that is too much or too dear to tell."""
        if pattern.count("**") > 1:
            return frozenset({overlap.fixed_folder(pattern)})
        found = iglob(pattern, root_dir=self.root, recursive=True, include_hidden=True)
        names = list(islice(found, MOST_MATCHES + 1))
        if len(names) > MOST_MATCHES:
            return frozenset({overlap.fixed_folder(pattern)})
        return frozenset(self._inside(os.path.join(self.root, name)) for name in names)

    def _mentioned(self, path: str) -> set[str]:
        """Paths in backticks that exist below the root."""
        try:
            with open(path, "rb") as file:
                text = file.read(LARGEST_TEXT).decode("utf-8", "replace")
        except OSError:
            return set()
        found: set[str] = set()
        for quoted in islice(QUOTED.finditer(text), MOST_LISTED):
            name = quoted.group(1).strip()
            if LOOKS_LIKE_PATH.match(name) and not name.startswith("/"):
                inner = self._inside(os.path.join(self.root, name))
                if not inner.startswith("/") and os.path.isfile(os.path.join(self.root, inner)):
                    found.add(inner)
        return found


def is_task_file(item: Item) -> bool:
    """Only of those do we know what their columns mean."""
    path = (item.columns or {}).get("path")
    return path == item.text and item.text.lower().endswith(MARKDOWN)


def declared(item: Item, name: str) -> list[str]:
    """A list that an item declares. Elsewhere than in task files only a real list will do: the
    columns of a table may be called anything."""
    value = (item.columns or {}).get(name)
    return names_in(value) if isinstance(value, list) or is_task_file(item) else []


def is_readable(item: Item) -> bool:
    """False only for what must be a file and is none that can be read."""
    if not item.text.lower().endswith(MARKDOWN):
        return True
    is_path = item.columns is None and not SPACE.search(item.text)
    if not is_path and not is_task_file(item):
        return True
    try:
        return os.path.isfile(item.text) and os.access(item.text, os.R_OK)
    except ValueError:  # a NUL in it
        return False
