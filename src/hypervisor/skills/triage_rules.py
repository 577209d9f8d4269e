"""The rules of triage: read from triage.toml, checked, merged with the user's own, kept.

The shipped file defines which tables and keys exist and of what kind they are, so it is the
only list of them. A mistake in a user's file is an error that names the file and the key;
nothing is triaged by rules that were misread.
"""

from __future__ import annotations

import os
import re
import tomllib
from typing import Any, NamedTuple

from hypervisor.domain.errors import InvalidInput
from hypervisor.skills.triage_text import WordList

SHIPPED = os.path.join(os.path.dirname(__file__), "triage.toml")
OVERRIDES = (os.path.join(".hypervisor", "triage.toml"), "triage.toml")  # the last one wins
LARGEST_FILE = 1_000_000
LONGEST_NAME = 100

Tables = dict[str, dict[str, Any]]
Stamp = tuple[tuple[int, int, int] | None, ...]


class Closure(NamedTuple):
    headings: frozenset[str]
    ticked: bool
    done: frozenset[str]
    cancelled: frozenset[str]


class Weights(NamedTuple):
    """How found words are counted, and when one side wins."""

    title: int
    body: int
    enough: int
    margin: int


class Complexity(NamedTuple):
    levels: tuple[str, str, str]
    medium_from: int
    complex_from: int
    words: tuple[int, ...]
    checkboxes: tuple[int, ...]
    most_for_hard: int
    easy: WordList
    hard: WordList


class Rules(NamedTuple):
    person: str
    bot: str
    closure: Closure
    assignee: Weights
    judgement: WordList
    automatable: WordList
    complexity: Complexity
    largest: int


_kept: dict[str, tuple[Stamp, Rules]] = {}


def rules_for(folder: str) -> Rules:
    """The rules for a run in this folder; read again only when a file changed."""
    paths = [os.path.join(folder, name) for name in OVERRIDES]
    stamp = tuple(_stamp(path) for path in paths)
    kept = _kept.get(folder)
    if kept is not None and kept[0] == stamp:
        return kept[1]
    tables = _read(SHIPPED)
    for path, there in zip(paths, stamp, strict=True):
        if there is not None:
            tables = _merged(tables, _read(path), path)
    rules = _rules(tables)
    _kept[folder] = stamp, rules
    return rules


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: str) -> Tables:
    try:
        if not os.path.isfile(path):
            raise InvalidInput(f"{path} is not a file. Nothing was changed; move it away.")
        with open(path, "rb") as file:
            text = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(text) > LARGEST_FILE:
        raise InvalidInput(f"{path} is too large for rules. Nothing was changed.")
    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(
            f"{path} is no valid TOML: {error}. Nothing was changed; correct it."
        ) from None


def _unreadable(path: str, error: OSError) -> InvalidInput:
    return InvalidInput(f"{path} cannot be read: {error.strerror}. Nothing was changed.")


def _merged(base: Tables, changes: Tables, path: str) -> Tables:
    merged = dict(base)
    for table, keys in changes.items():
        if table not in base:
            raise _wrong(path, table, None, f"is unknown: use one of {', '.join(base)}")
        if not isinstance(keys, dict):
            raise _wrong(path, table, None, "must be a table")
        for key, value in keys.items():
            if key not in base[table]:
                known = ", ".join(base[table])
                raise _wrong(path, table, key, f"is unknown: use one of {known}")
            _check(path, table, key, value, base[table][key])
        merged[table] = {**base[table], **keys}
    return merged


def _check(path: str, table: str, key: str, value: Any, shipped: Any) -> None:
    """The value must be of the shipped value's kind, and make sense there."""
    if isinstance(shipped, bool):
        if not isinstance(value, bool):
            raise _wrong(path, table, key, "must be true or false")
    elif isinstance(shipped, int):
        if not _is_count(value):
            raise _wrong(path, table, key, "must be a whole number, 0 or more")
    elif isinstance(shipped, str):
        if not _is_name(value):
            raise _wrong(path, table, key, f"must be one line of 1 to {LONGEST_NAME} characters")
    elif shipped and isinstance(shipped[0], int):
        if not (isinstance(value, list) and all(map(_is_count, value))):
            raise _wrong(path, table, key, "must be a list of whole numbers")
    elif not (isinstance(value, list) and all(map(_is_name, value))):
        raise _wrong(path, table, key, "must be a list of words")
    elif key == "levels" and len(value) != len(shipped):
        raise _wrong(path, table, key, f"must be {len(shipped)} words")
    elif bad := [word for word in value if not re.search(r"\w", word)]:
        raise _wrong(path, table, key, f"has {bad[0]!r}, which has no letter or digit")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.strip()) <= LONGEST_NAME and value.isprintable()


def _wrong(path: str, table: str, key: str | None, what: str) -> InvalidInput:
    place = f"[{table}] {key}" if key else f"[{table}]"
    return InvalidInput(f"{path}: {place} {what}. Nothing was changed; correct the file.")


def _rules(tables: Tables) -> Rules:
    closure, complexity = tables["closure"], tables["complexity"]
    return Rules(
        person=" ".join(tables["names"]["person"].split()),
        bot=" ".join(tables["names"]["bot"].split()),
        closure=Closure(
            headings=_folded(closure["headings"]),
            ticked=closure["ticked"],
            done=_folded(closure["done"]),
            cancelled=_folded(closure["cancelled"]),
        ),
        assignee=Weights(**tables["assignee"]),
        judgement=_all_words(tables["judgement"]),
        automatable=_all_words(tables["automatable"]),
        complexity=Complexity(
            levels=tuple(complexity["levels"]),
            medium_from=complexity["medium_from"],
            complex_from=complexity["complex_from"],
            words=tuple(complexity["words"]),
            checkboxes=tuple(complexity["checkboxes"]),
            most_for_hard=complexity["most_for_hard"],
            easy=WordList(complexity["easy"]),
            hard=WordList(complexity["hard"]),
        ),
        largest=tables["files"]["largest"],
    )


def _folded(words: list[str]) -> frozenset[str]:
    return frozenset(word.strip().casefold() for word in words)


def _all_words(table: dict[str, list[str]]) -> WordList:
    return WordList([*table["words"], *table["also"]])
