"""The fields of a SKILL.md: the valid values of each, and the option of `hv run` it sets.

A reader takes a field's name and value, and returns the value as the command line parses it; an
invalid value raises InvalidInput with the name of the field.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from hypervisor.batches.chunk import SPANS
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import amount, money
from hypervisor.queue.lane import PRIORITIES
from hypervisor.runs.config_readers import MAX_WORKERS, Reader, number, one_of, size, span
from hypervisor.runs.sandbox.level import LEVELS
from hypervisor.runs.spec import (
    GATES,
    MERGE_MODES,
    PERMISSIONS,
    RESULT_FORMATS,
    STDINS,
    STRATEGIES,
    WORKSPACES,
    WRITE_BACKS,
)

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
MAX_DESCRIPTION_LENGTH = 1_000
MAX_PATH_LENGTH = 500
MAX_WORDS = 1_000
MAX_TRIES = 1_000
FORMATS = ("lines", "jsonl", "csv", "mbox", "maildir", "tasks")
ANY = "any"


class Field(NamedTuple):
    """`option` is its name in the parser of `hv run`; `goes_with` says what it needs: an agent,
    an agent that may be that of the reduce ("any agent"), or a command or function ("program")."""

    option: str
    read: Reader
    goes_with: str = ""


def check_name(value: object) -> str:
    """The name of a skill, which is also that of its folder."""
    if not isinstance(value, str) or not NAME.match(value):
        raise InvalidInput(
            f"invalid skill name {str(value)[:60]!r}: use lower-case letters, digits, '-' and "
            f"'_', at most 64."
        )
    return value


def text(longest: int, what: str, value: Any) -> str:
    """One line; a number is accepted and converted to text."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        _refuse(what, 'text (put it in quotes, as in "yes")')
    value = value.strip()
    if not value.isprintable():
        _refuse(what, "one line without control characters")
    return validate.text(what, value, longest)


def short(what: str, value: Any) -> str:
    return text(validate.MAX_NAME_LENGTH, what, value)


def file_name(what: str, value: Any) -> str:
    """A file in the skill's own folder."""
    path = text(MAX_PATH_LENGTH, what, value).removeprefix("./")
    parts = path.split("/")
    if path.startswith(("/", "~")) or not all(parts) or {".", ".."} & set(parts):
        _refuse(what, "a relative path in the skill's folder, without `..`")
    return path


def words(what: str, value: Any) -> list[str]:
    """The words of a command line."""
    if not isinstance(value, list) or not value:
        _refuse(what, 'a list of words, as in [ruff, check, "{}"]')
    if len(value) > MAX_WORDS:
        _refuse(what, f"at most {MAX_WORDS} words")
    for word in value:
        if isinstance(word, bool) or not isinstance(word, (str, int, float)):
            _refuse(what, 'a list of words: put each in quotes, as in "{}"')
    return [validate.text(what, str(word), 100_000) for word in value]


def function(what: str, value: Any) -> str:
    path = short(what, value)
    module, colon, name = path.partition(":")
    if not (colon and module and name) or " " in path:
        _refuse(what, "package.module:function")
    return path


def pattern(what: str, value: Any) -> str:
    """A pattern for files below the folder that the skill is run on."""
    glob = text(MAX_PATH_LENGTH, what, value)
    if glob.startswith(("/", "~")) or ".." in glob.split("/"):
        _refuse(what, "a pattern below the folder, without `..`")
    return glob


def yes_or_no(what: str, value: Any) -> bool:
    if not isinstance(value, bool):
        _refuse(what, "true or false")
    return value


def _workers(what: str, value: Any) -> int | None:
    return None if value == "auto" else _whole(1, MAX_WORKERS)(what, value)


def _whole(low: int, high: int) -> Callable[[str, Any], int]:
    return number(low, high, whole=True)


def _name(what: str, value: Any) -> str:
    return validate.name(what, short(what, value))


def _names(what: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        _refuse(what, "a list of names, as in [gpu]")
    return list(validate.names(what, value))


def _texts(what: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        _refuse(what, 'a list of texts, as in ["Bash(git log:*)"]')
    return [short(what, item) for item in value]


def _stages(what: str, value: Any) -> list[str]:
    """Commands as the option expects them: one line each."""
    if not isinstance(value, list) or not value:
        _refuse(what, 'a list of commands, as in [[jq, ., "{result}"]]')
    stages = [words(what, command) for command in value]
    if any(stage[0].startswith("./") for stage in stages):
        _refuse(what, "a list of programs; only run and reduce can use files of the folder")
    return [shlex.join(stage) for stage in stages]


def _named(read: Callable[[Any], int]) -> Reader:
    def check(what: str, value: Any) -> int:
        try:
            return read(value)
        except InvalidInput as error:
            raise InvalidInput(f"{what}: {error}") from None

    return check


def _scratch(what: str, value: Any) -> bool:
    return bool(one_of(*filter(None, WORKSPACES))(what, value) == "scratch")


def _refuse(what: str, wanted: str) -> NoReturn:
    raise InvalidInput(f"{what} must be {wanted}.")


AGENT, PROGRAM, ANY_AGENT = "agent", "program", "any agent"
FIELDS: Mapping[str, Field] = {
    "type": Field("type", _name),
    "priority": Field("priority", one_of(*PRIORITIES)),
    "branch": Field("branch", _name),
    "workers": Field("workers", _workers),
    "strategy": Field("strategy", one_of(*STRATEGIES)),
    "retries": Field("retries", _whole(0, MAX_TRIES)),
    "requires": Field("requires", _names),
    "exclusive": Field("exclusive", _texts),
    "chunk": Field("chunk", one_of(*SPANS)),
    "chunk-by": Field("chunk_by", short),
    "chunk-size": Field("chunk_size", _whole(1, 100_000)),
    "per": Field("per", one_of("item", "chunk")),
    "gate": Field("gate", one_of(*GATES)),
    "write-back": Field("write_back", one_of(*WRITE_BACKS)),
    "propose": Field("propose", yes_or_no),
    "then": Field("then", _stages),
    "fail-fast": Field("fail_fast", yes_or_no),
    "sandbox": Field("sandbox", one_of(*LEVELS)),
    "merge": Field("merge", one_of(*filter(None, MERGE_MODES))),
    "verify": Field("verify", _texts),
    "result": Field("result", one_of(*RESULT_FORMATS), PROGRAM),
    "stdin": Field("stdin", one_of(*STDINS), PROGRAM),
    "shell": Field("shell", yes_or_no, PROGRAM),
    "python": Field("python", short, PROGRAM),
    "clean-env": Field("clean_env", yes_or_no, PROGRAM),
    "claim": Field("claim", _whole(1, 1_000), PROGRAM),
    "prompt": Field("prompt", file_name, AGENT),
    "permissions": Field("permissions", one_of(*PERMISSIONS), ANY_AGENT),
    "workspace": Field("scratch", _scratch, AGENT),
    "allow": Field("allow", _texts, ANY_AGENT),
    "model": Field("model", short, ANY_AGENT),
    "turns": Field("turns", _whole(1, 1_000_000), ANY_AGENT),
    "fallback": Field("fallback", short, ANY_AGENT),
    "pull": Field("pull", _whole(1, 1_000), AGENT),
    "schema": Field("schema", file_name, AGENT),
}
RENAMED = {"key": "exclusive", "batch": "claim"}
LIMITS: Mapping[str, Field] = {
    "timeout": Field("timeout", _named(span)),
    "memory": Field("memory", _named(size)),
    "silence": Field("silence", _named(span)),
    "max-output": Field("max_output", _named(size)),
    "budget": Field("budget", _named(money), ANY_AGENT),
    "task-budget": Field("task_budget", _named(money), ANY_AGENT),
    "tokens": Field("tokens", _named(amount), ANY_AGENT),
    "task-tokens": Field("task_tokens", _named(amount), ANY_AGENT),
}
FILES = ("prompt", "schema")  # options whose value is a file in the skill's folder
CUTS = ("chunk", "chunk-by", "chunk-size")  # only one can be used
