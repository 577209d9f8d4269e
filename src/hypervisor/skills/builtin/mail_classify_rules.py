"""The rules of mail-classify: read from mail-classify.toml, merged with the user's own, compiled.

The user's lists are added to those that ship; a category of the user's own goes before them.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from hypervisor.core.records import NamedTuple
from hypervisor.skills.builtin.rule_files import (
    RuleFiles,
    Tables,
    check_count,
    check_known,
    check_tables,
    is_name,
    wrong,
)
from hypervisor.skills.builtin.triage_text import WordList

NAME = "mail-classify.toml"
SHIPPED = os.path.join(os.path.dirname(__file__), "mail-classify", NAME)
NUMBERS = ("points", "limits")
WORDS = ("subject", "body")
LISTS = ("from", "headers", "parts", *WORDS)
SWITCHES = ("replace", "off")
IN_CATEGORY = (*LISTS, "folder", *SWITCHES)
IN_OTHERWISE = ("machine", "person", "folder", "from", "headers")
HEADER = re.compile(r"[\w*-]+(:.*)?")
FOLDER = re.compile(r"[\w-][\w. -]{0,60}")

Table = dict[str, Any]
Fits = Callable[[str], object]


class Points(NamedTuple):
    headers: int
    parts: int
    sender: int
    subject: int
    body: int
    most_body: int
    enough: int


def glob(rule: str) -> Fits:
    """Matches a text in which a star stands for anything, in lower case and in linear time."""
    pattern = rule.strip().lower().replace("[", "[[]").replace("?", "[?]")
    return re.compile(fnmatch.translate(pattern)).match


class Globs:
    __slots__ = ("_globs",)

    def __init__(self, rules: Iterable[str]) -> None:
        self._globs = [(rule, glob(rule)) for rule in rules]

    def matches(self, texts: Collection[str]) -> list[str]:
        """The rules that one of the texts fits."""
        return [rule for rule, fits in self._globs if any(map(fits, texts))]


class HeaderRules:
    """`Name`, or `Name: value`: what must be in the header of a mail."""

    __slots__ = ("_rules",)

    def __init__(self, rules: Iterable[str]) -> None:
        self._rules: list[tuple[str, str, Fits | None]] = []
        for rule in rules:
            name, colon, value = (part.strip() for part in rule.partition(":"))
            self._rules.append((rule, name.lower(), glob(value) if colon else None))

    def matches(self, headers: Mapping[str, str]) -> list[str]:
        return [rule for rule, name, value in self._rules if _fits(headers, name, value)]


class Category(NamedTuple):
    name: str
    folder: str  # where such a mail of a Maildir belongs; "": where it is
    sender: Globs
    headers: HeaderRules
    parts: Globs
    subject: WordList
    body: WordList


class Otherwise(NamedTuple):
    """The category of a mail that fits no other."""

    machine: str
    person: str
    folder: str
    sender: Globs
    headers: HeaderRules


class Rules(NamedTuple):
    points: Points
    longest_body: int
    categories: tuple[Category, ...]
    otherwise: Otherwise

    def folder_of(self, category: str) -> str:
        if category == self.otherwise.machine:
            return self.otherwise.folder
        return next((rule.folder for rule in self.categories if rule.name == category), "")


def _fits(headers: Mapping[str, str], name: str, value: Fits | None) -> bool:
    if "*" in name:
        texts = [text for each, text in headers.items() if glob(name)(each)]
    else:
        texts = [headers[name]] if name in headers else []
    return bool(texts) if value is None else any(map(value, texts))


# From the files


def _made(shipped: Tables, own: list[tuple[str, Tables]]) -> Rules:
    tables = shipped
    for path, given in own:
        tables = _merged(tables, given, path)
    points = {"sender" if name == "from" else name: n for name, n in tables["points"].items()}
    other = tables["otherwise"]
    return Rules(
        Points(**points),
        tables["limits"]["body"],
        tuple(
            _category(name, table)
            for name, table in tables["category"].items()
            if not table.get("off")
        ),
        Otherwise(
            other["machine"],
            other["person"],
            other["folder"],
            Globs(other["from"]),
            HeaderRules(other["headers"]),
        ),
    )


def _category(name: str, table: Table) -> Category:
    lists = {key: table.get(key, ()) for key in LISTS}
    return Category(
        name,
        table.get("folder", ""),
        Globs(lists["from"]),
        HeaderRules(lists["headers"]),
        Globs(lists["parts"]),
        WordList(lists["subject"]),
        WordList(lists["body"]),
    )


def _merged(base: Tables, given: Tables, path: str) -> Tables:
    check_tables(path, given, base)
    merged = dict(base)
    for table in NUMBERS:
        merged[table] = _numbers(base[table], given.get(table, {}), table, path)
    other = given.get("otherwise", {})
    _check(path, "otherwise", other, IN_OTHERWISE)
    merged["otherwise"] = _added(base["otherwise"], other)
    merged["category"] = _categories(base["category"], given.get("category", {}), path)
    return merged


def _numbers(base: Table, given: Table, table: str, path: str) -> Table:
    for key, value in given.items():
        check_known(path, table, key, base)
        check_count(path, table, key, value)
    return {**base, **given}


def _categories(base: Table, given: Table, path: str) -> Table:
    for name, table in given.items():
        if not is_name(name) or not isinstance(table, dict):
            raise wrong(path, f"category.{name}", "", "must be a table with a plain name")
        _check(path, f"category.{name}", table, IN_CATEGORY)
    own = {name: table for name, table in given.items() if name not in base}
    return {**own, **{name: _added(table, given.get(name, {})) for name, table in base.items()}}


def _added(base: Table, given: Table) -> Table:
    """The user's lists behind those that ship, the rest in place of them."""
    if given.get("replace"):
        base = {}
    lists = {key: [*base.get(key, ()), *given[key]] for key in LISTS if key in given}
    return {**base, **given, **lists}


def _check(path: str, table: str, given: Table, known: tuple[str, ...]) -> None:
    for key, value in given.items():
        check_known(path, table, key, known)
        if key in SWITCHES:
            if not isinstance(value, bool):
                raise wrong(path, table, key, "must be true or false")
        elif key == "folder":
            if value != "" and not (isinstance(value, str) and FOLDER.fullmatch(value)):
                raise wrong(path, table, key, "must be the plain name of a folder")
        elif key not in LISTS:
            if not is_name(value):
                raise wrong(path, table, key, "must be one line")
        elif not (isinstance(value, list) and all(map(is_name, value))):
            raise wrong(path, table, key, "must be a list of strings")
        elif bad := [word for word in value if not _usable(key, word)]:
            raise wrong(path, table, key, f"has {bad[0]!r}, which cannot be searched for")


def _usable(key: str, rule: str) -> bool:
    if key in WORDS:
        return re.search(r"\w", rule) is not None
    return key != "headers" or HEADER.fullmatch(rule) is not None


rules_for = RuleFiles(SHIPPED, NAME, _made).rules_for
