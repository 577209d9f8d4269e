"""Rules of a skill in TOML: the shipped file, and the user's own in the folder of the run.

A mistake in a user's file is an error that names the file and the key. Files are read again only
if one of them has changed.
"""

from __future__ import annotations

import importlib.util
import os
import tomllib
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from hypervisor.core.errors import InvalidInput

BUILT_IN = "hypervisor.skills.builtin."
MAX_FILE_SIZE = 1_000_000
MAX_NAME_LENGTH = 100

Tables = dict[str, dict[str, Any]]
Stamp = tuple[tuple[int, int, int] | None, ...]
Rules = TypeVar("Rules")


class RuleFiles(Generic[Rules]):
    """`make` builds the rules from the shipped tables and those of the user with their paths;
    of two user files, the one in the run's folder comes last and takes precedence."""

    def __init__(
        self, shipped: str, name: str, make: Callable[[Tables, list[tuple[str, Tables]]], Rules]
    ) -> None:
        self._shipped, self._make = shipped, make
        self._names = (os.path.join(".hypervisor", name), name)
        self._kept: dict[str, tuple[Stamp, Rules]] = {}

    def rules_for(self, folder: str) -> Rules:
        """The rules for a run in this folder."""
        paths = [os.path.join(folder, name) for name in self._names]
        stamp = tuple(_stamp(path) for path in paths)
        kept = self._kept.get(folder)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        existing = [path for path, mark in zip(paths, stamp, strict=True) if mark is not None]
        rules = self._make(_read(self._shipped), [(path, _read(path)) for path in existing])
        self._kept[folder] = stamp, rules
        return rules


def check_rules(function: str, folder: str) -> None:
    """Check the rules of a built-in skill's function for a run in this folder."""
    module = function.partition(":")[0]
    if module.startswith(BUILT_IN) and importlib.util.find_spec(module):
        rules_for = getattr(importlib.import_module(module), "rules_for", None)
        if rules_for is not None:
            rules_for(folder)


def wrong(path: str, table: str, key: str, what: str) -> InvalidInput:
    place = f"[{table}] {key}" if key else f"[{table}]"
    return InvalidInput(f"{path}: {place} {what}. Nothing was changed; correct the file.")


def check_tables(path: str, given: Tables, known: Tables) -> None:
    for table, value in given.items():
        check_known(path, table, "", known)
        if not isinstance(value, dict):
            raise wrong(path, table, "", "must be a table")


def check_known(path: str, table: str, key: str, known: Collection[str]) -> None:
    """The table, or the key if given, must be a known one."""
    if (key or table) not in known:
        raise wrong(path, table, key, f"is unknown: use one of {', '.join(known)}")


def check_count(path: str, table: str, key: str, value: Any) -> None:
    if not is_count(value):
        raise wrong(path, table, key, "must be a whole number, 0 or more")


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_name(value: Any) -> bool:
    return (
        isinstance(value, str) and 0 < len(value.strip()) <= MAX_NAME_LENGTH and value.isprintable()
    )


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: str) -> Tables:
    try:
        if not os.path.isfile(path):
            raise InvalidInput(f"{path} is not a file. Nothing was changed; remove it.")
        with open(path, "rb") as file:
            text = file.read(MAX_FILE_SIZE + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(text) > MAX_FILE_SIZE:
        raise InvalidInput(f"{path} is too large for rules. Nothing was changed.")
    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(
            f"{path} is not valid TOML: {error}. Nothing was changed; correct it."
        ) from None


def _unreadable(path: str, error: OSError) -> InvalidInput:
    return InvalidInput(f"{path} cannot be read: {error.strerror}. Nothing was changed.")
