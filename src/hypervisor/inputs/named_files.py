"""The files that items name, in `files:` or in their text, and which of them are shared.

Names inside the run's folder are relative to it. A pattern stands for the files that match it
now and for missing files that other items name; one that matches too many stands for its whole
folder. Files outside the folder are never listed.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from glob import iglob
from itertools import islice

from hypervisor.inputs.item_names import printable_path
from hypervisor.inputs.path_overlap import (
    MAGIC,
    ROOT,
    fixed_folder,
    key,
    matcher,
    outermost,
    topmost,
)
from hypervisor.inputs.path_overlap import shared as shared_names
from hypervisor.inputs.template import Item

MARKDOWN = (".md", ".markdown")
MAX_MATCHES = 2_000
MAX_LISTED = 1_000  # names of one item
MAX_PATTERNS, MAX_ABSENT = 3, 15  # of one item: a task has at most a hundred keys
MAX_TEXT_SIZE = 1 << 20
QUOTED = re.compile(r"`([^`\n]{1,300})`")
SPACE = re.compile(r"\s")
LOOKS_LIKE_PATH = re.compile(r"[\w./+@ -]*[/.][\w./+@ -]*\Z")
MAX_EXAMPLES = 2

Conflict = tuple[str, int, tuple[str, ...]]  # name, number of items, the first of them


class NamedFiles:
    """Collects the files that items name, and finds the exclusive keys that items need."""

    def __init__(self, root: str, in_text: bool = False) -> None:
        self.root = os.path.realpath(root)
        self.absent: set[str] = set()
        self._in_text = in_text
        self._number = 0
        self._items: dict[str, list[int]] = {}  # name → the items that name it
        self._first_items: dict[str, list[str]] = {}
        self._patterns: dict[str, list[int]] = {}
        self._shared: set[str] | None = None
        self._absent_by_pattern: dict[str, list[str]] = {}
        self._matches = lru_cache(maxsize=256)(self._list_matches)

    def add(self, item: Item) -> None:
        self._number += 1
        self._shared = None
        names, patterns = self._names_and_patterns(item)
        for name in names:
            self._items.setdefault(name, []).append(self._number)
            first_items = self._first_items.setdefault(name, [])
            if len(first_items) < MAX_EXAMPLES:
                first_items.append(printable_path(item.text)[:80])
        for pattern in patterns:
            self._patterns.setdefault(pattern, []).append(self._number)

    def keys_for(self, item: Item) -> tuple[str, ...]:
        shared = self._all_shared()
        if not shared:
            return ()
        names, patterns = self._names_and_patterns(item)
        names |= {name for pattern in patterns for name in self._absent_matches(pattern)}
        tops = {topmost(name, shared) for name in names}
        return tuple(sorted(key(top) for top in tops if top))

    def conflicts(self) -> tuple[list[Conflict], int]:
        """The shared names, and the number of items that share any."""
        shared = self._all_shared()
        groups: dict[str, list[list[int]]] = {}
        first_items: dict[str, list[str]] = {}
        for name, numbers in self._items.items():
            if top := topmost(name, shared):
                groups.setdefault(top, []).append(numbers)
                first_items.setdefault(top, []).extend(self._first_items[name])
        for pattern, numbers in self._patterns.items():
            for top in {topmost(name, shared) for name in self._absent_matches(pattern)}:
                if top:
                    groups.setdefault(top, []).append(numbers)
        sharing: set[int] = set()
        conflicts = []
        for name, parts in groups.items():
            items = set().union(*parts)
            sharing |= items
            conflicts.append((name, len(items), tuple(first_items.get(name, ())[:MAX_EXAMPLES])))
        return sorted(conflicts), len(sharing)

    def _all_shared(self) -> set[str]:
        """The shared names; a pattern counts for the missing files that match it."""
        if self._shared is None:
            self._absent_by_pattern = {}
            counts = {name: len(numbers) for name, numbers in self._items.items()}
            for pattern, numbers in self._patterns.items():
                for name in self._absent_matches(pattern):
                    counts[name] = counts.get(name, 0) + len(numbers)
            self._shared = shared_names(counts)
        return self._shared

    def _absent_matches(self, pattern: str) -> list[str]:
        """The missing files that match a pattern; its folder, if they are too many."""
        if pattern not in self._absent_by_pattern:
            matches = matcher(pattern).fullmatch
            names = [name for name in self.absent if matches(name)]
            too_many = len(names) > MAX_ABSENT
            self._absent_by_pattern[pattern] = [fixed_folder(pattern)] if too_many else names
        return self._absent_by_pattern[pattern]

    def _names_and_patterns(self, item: Item) -> tuple[set[str], set[str]]:
        """The names of an item, and its patterns."""
        names: set[str] = set()
        patterns: set[str] = set()
        if is_task_file(item):
            names.add(self._relative(os.path.abspath(item.text)))
        for text in declared(item, "files")[:MAX_LISTED]:
            name = self._relative(os.path.join(self.root, text))
            if not MAGIC.search(text) or os.path.lexists(os.path.join(self.root, name)):
                names.add(name)
                if not os.path.lexists(os.path.join(self.root, name)):
                    self.absent.add(name)
            elif name.startswith("/") or len(patterns) >= MAX_PATTERNS:
                names.add(fixed_folder(name))
            else:
                names.update(self._matches(name))
                patterns.add(name)
        if self._in_text and is_task_file(item):
            names.update(self._mentioned(item.text))
        for pattern in patterns:  # it stands for the missing files that match it
            matches = matcher(pattern).fullmatch
            names = {name for name in names if name not in self.absent or not matches(name)}
        return outermost(names), patterns

    def _relative(self, path: str) -> str:
        """Relative to the root if inside it; links are followed, so one file has one name."""
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError):
            real = os.path.normpath(path)
        if real == self.root:
            return ROOT
        return real.removeprefix(self.root.rstrip("/") + "/")

    def _list_matches(self, pattern: str) -> frozenset[str]:
        """The files that match a pattern now; its folder if they are too many or slow to find."""
        if pattern.count("**") > 1:
            return frozenset({fixed_folder(pattern)})
        matches = iglob(pattern, root_dir=self.root, recursive=True, include_hidden=True)
        names = list(islice(matches, MAX_MATCHES + 1))
        if len(names) > MAX_MATCHES:
            return frozenset({fixed_folder(pattern)})
        return frozenset(self._relative(os.path.join(self.root, name)) for name in names)

    def _mentioned(self, path: str) -> set[str]:
        """Paths in backticks that exist below the root."""
        try:
            with open(path, "rb") as file:
                text = file.read(MAX_TEXT_SIZE).decode("utf-8", "replace")
        except OSError:
            return set()
        names: set[str] = set()
        for quoted in islice(QUOTED.finditer(text), MAX_LISTED):
            name = quoted.group(1).strip()
            if LOOKS_LIKE_PATH.match(name) and not name.startswith("/"):
                inner = self._relative(os.path.join(self.root, name))
                if not inner.startswith("/") and os.path.isfile(os.path.join(self.root, inner)):
                    names.add(inner)
        return names


def is_task_file(item: Item) -> bool:
    """Whether it is a Markdown file whose columns are its fields."""
    path = (item.columns or {}).get("path")
    return path == item.text and item.text.lower().endswith(MARKDOWN)


def declared(item: Item, name: str) -> list[str]:
    """A list in a column of an item. Outside task files it must be a real list, since the columns
    of a table may have any meaning."""
    value = (item.columns or {}).get(name)
    return names_in(value) if isinstance(value, list) or is_task_file(item) else []


def names_in(value: object) -> list[str]:
    """The names in a list, or in a text, separated by commas or semicolons."""
    if isinstance(value, str):
        value = value.replace(";", ",").split(",")
    if not isinstance(value, (list, tuple)):
        return []
    texts = (str(name).strip() for name in value if isinstance(name, (str, int)))
    return [text for text in texts if text]


def is_readable(item: Item) -> bool:
    """False only for an item that looks like a file and cannot be read."""
    if not item.text.lower().endswith(MARKDOWN):
        return True
    is_path = item.columns is None and not SPACE.search(item.text)
    if not is_path and not is_task_file(item):
        return True
    try:
        return os.path.isfile(item.text) and os.access(item.text, os.R_OK)
    except ValueError:  # a NUL in it
        return False
