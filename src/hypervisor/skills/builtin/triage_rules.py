"""The rules of triage: read from triage.toml, checked, merged with the user's own, kept.

The shipped file defines which tables and keys exist and of what kind they are, so it is the
only list of them. A mistake in a user's file is an error that names the file and the key;
nothing is triaged by rules that were misread.
"""

from __future__ import annotations

import os
import re
from typing import Any

from hypervisor.core.records import NamedTuple
from hypervisor.skills.builtin.rule_files import (
    MAX_NAME_LENGTH,
    RuleFiles,
    Tables,
    check_count,
    check_known,
    check_tables,
    is_count,
    is_name,
    wrong,
)
from hypervisor.skills.builtin.triage_text import WordList

NAME = "triage.toml"
SHIPPED = os.path.join(os.path.dirname(__file__), "triage", NAME)


class Closure(NamedTuple):
    headings: frozenset[str]
    ticked: bool
    done: frozenset[str]
    cancelled: frozenset[str]


class Weights(NamedTuple):
    """How matching words are counted, and when one side wins."""

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


def _merged(base: Tables, changes: Tables, path: str) -> Tables:
    check_tables(path, changes, base)
    merged = dict(base)
    for table, keys in changes.items():
        for key, value in keys.items():
            check_known(path, table, key, base[table])
            _check(path, table, key, value, base[table][key])
        merged[table] = {**base[table], **keys}
    return merged


def _check(path: str, table: str, key: str, value: Any, shipped: Any) -> None:
    """The value must have the type of the shipped value, and be valid there."""
    if isinstance(shipped, bool):
        if not isinstance(value, bool):
            raise wrong(path, table, key, "must be true or false")
    elif isinstance(shipped, int):
        check_count(path, table, key, value)
    elif isinstance(shipped, str):
        if not is_name(value):
            raise wrong(path, table, key, f"must be one line of 1 to {MAX_NAME_LENGTH} characters")
    elif shipped and isinstance(shipped[0], int):
        if not (isinstance(value, list) and all(map(is_count, value))):
            raise wrong(path, table, key, "must be a list of whole numbers")
    elif not (isinstance(value, list) and all(map(is_name, value))):
        raise wrong(path, table, key, "must be a list of words")
    elif key == "levels" and len(value) != len(shipped):
        raise wrong(path, table, key, f"must be {len(shipped)} words")
    elif bad := [word for word in value if not re.search(r"\w", word)]:
        raise wrong(path, table, key, f"contains {bad[0]!r}, which has no letter or digit")


def _rules(tables: Tables, own: list[tuple[str, Tables]]) -> Rules:
    for path, changes in own:
        tables = _merged(tables, changes, path)
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


rules_for = RuleFiles(SHIPPED, NAME, _rules).rules_for
