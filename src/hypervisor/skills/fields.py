"""The fields of a SKILL.md: what each may hold, and which option of `hv run` it stands for.

A reader takes a field's name and its value, and gives the value as the command line would
have made it of the option; what makes no sense is an InvalidInput that names the field.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from hypervisor.agents.profile import MODES
from hypervisor.batches.chunk import GATES, SPANS
from hypervisor.core import units, validate
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.priority import PRIORITIES
from hypervisor.runs.config import MOST_WORKERS, Reader, number, one_of, size, span
from hypervisor.runs.spec import STRATEGIES

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
LONGEST_DESCRIPTION = 1_000
LONGEST_PATH = 500
MOST_WORDS = 1_000
MOST_TRIES = 1_000
FORMATS = ("lines", "jsonl", "csv", "mbox", "maildir", "tasks")
ANY = "any"


class Field(NamedTuple):
    """`option` is what the parser of `hv run` calls it; `goes_with` what it means nothing
    without: an agent, be it of the reduce ("any agent"), or a command or function ("program")."""

    option: str
    read: Reader
    goes_with: str = ""


def check_name(value: object) -> str:
    """The name of a skill, which is also a folder's: nothing that could lead elsewhere."""
    if not isinstance(value, str) or not NAME.match(value):
        raise InvalidInput(
            f"{str(value)[:60]!r} is no name for a skill: write lower-case letters, digits, "
            "'-' and '_', 64 at most."
        )
    return value


def text(longest: int, what: str, value: Any) -> str:
    """One line; numbers are taken as they were written, as nearly as can be."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        _refuse(what, 'text (put it in quotes, as in "yes")')
    value = value.strip()
    if not value.isprintable():
        _refuse(what, "one line without control characters")
    return validate.text(what, value, longest)


def short(what: str, value: Any) -> str:
    return text(validate.LONGEST_NAME, what, value)


def file_name(what: str, value: Any) -> str:
    """A file of the skill's own folder: no way leads out of it."""
    found = text(LONGEST_PATH, what, value).removeprefix("./")
    parts = found.split("/")
    if found.startswith(("/", "~")) or not all(parts) or {".", ".."} & set(parts):
        _refuse(what, "a file in the skill's folder, named without .. and /")
    return found


def words(what: str, value: Any) -> list[str]:
    """A list of words, none of which is read by a shell unless it is asked to."""
    if not isinstance(value, list) or not value:
        _refuse(what, 'a list of words, as in [ruff, check, "{}"]')
    if len(value) > MOST_WORDS:
        _refuse(what, f"at most {MOST_WORDS} words")
    for word in value:
        if isinstance(word, bool) or not isinstance(word, (str, int, float)):
            _refuse(what, 'a list of words: put each in quotes, as in "{}"')
    return [validate.text(what, str(word), 100_000) for word in value]


def function(what: str, value: Any) -> str:
    found = short(what, value)
    module, colon, name = found.partition(":")
    if not (colon and module and name) or " " in found:
        _refuse(what, "package.module:function")
    return found


def pattern(what: str, value: Any) -> str:
    """Files below the folder that the skill is given."""
    found = text(LONGEST_PATH, what, value)
    if found.startswith(("/", "~")) or ".." in found.split("/"):
        _refuse(what, "a pattern below the folder, without .. and /")
    return found


def yes_or_no(what: str, value: Any) -> bool:
    if not isinstance(value, bool):
        _refuse(what, "true or false")
    return value


def _workers(what: str, value: Any) -> int | None:
    return None if value == "auto" else _whole(1, MOST_WORKERS)(what, value)


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
    return [short(what, each) for each in value]


def _stages(what: str, value: Any) -> list[str]:
    """Commands, as the option takes each: one line."""
    if not isinstance(value, list) or not value:
        _refuse(what, 'a list of commands, as in [[jq, ., "{result}"]]')
    stages = [words(what, each) for each in value]
    if any(stage[0].startswith("./") for stage in stages):
        _refuse(what, "commands that are programs: only run and reduce have files of the folder")
    return [shlex.join(stage) for stage in stages]


def _named(read: Callable[[Any], int]) -> Reader:
    def check(what: str, value: Any) -> int:
        try:
            return read(value)
        except InvalidInput as error:
            raise InvalidInput(f"{what}: {error}") from None

    return check


def _scratch(what: str, value: Any) -> bool:
    return bool(one_of("project", "scratch")(what, value) == "scratch")


def _refuse(what: str, wanted: str) -> NoReturn:
    raise InvalidInput(f"{what} must be {wanted}.")


AGENT, PROGRAM, ANY_AGENT = "agent", "program", "any agent"
FIELDS: Mapping[str, Field] = {
    "type": Field("type", _name),
    "priority": Field("priority", one_of(*PRIORITIES)),
    "branch": Field("branch", _name),
    "workers": Field("workers", _workers),
    "strategy": Field("strategy", one_of(*STRATEGIES)),
    "retries": Field("retries", _whole(0, MOST_TRIES)),
    "requires": Field("requires", _names),
    "key": Field("key", _texts),
    "chunk": Field("chunk", one_of(*SPANS)),
    "chunk-by": Field("chunk_by", short),
    "chunk-size": Field("chunk_size", _whole(1, 100_000)),
    "per": Field("per", one_of("item", "chunk")),
    "gate": Field("gate", one_of(*GATES)),
    "write-back": Field("write_back", one_of("none", "receipts", "status")),
    "propose": Field("propose", yes_or_no),
    "then": Field("then", _stages),
    "fail-fast": Field("fail_fast", yes_or_no),
    "result": Field("result", one_of("none", "json"), PROGRAM),
    "stdin": Field("stdin", one_of("closed", "item"), PROGRAM),
    "shell": Field("shell", yes_or_no, PROGRAM),
    "python": Field("python", short, PROGRAM),
    "clean-env": Field("clean_env", yes_or_no, PROGRAM),
    "batch": Field("claim", _whole(1, 1_000), PROGRAM),
    "prompt": Field("prompt", file_name, AGENT),
    "permissions": Field("permissions", one_of(*MODES), ANY_AGENT),
    "workspace": Field("scratch", _scratch, AGENT),
    "allow": Field("allow", _texts, ANY_AGENT),
    "model": Field("model", short, ANY_AGENT),
    "turns": Field("turns", _whole(1, 1_000_000), ANY_AGENT),
    "fallback": Field("fallback", short, ANY_AGENT),
    "pull": Field("pull", _whole(1, 1_000), AGENT),
    "schema": Field("schema", file_name, AGENT),
}
LIMITS: Mapping[str, Field] = {
    "timeout": Field("timeout", _named(span)),
    "memory": Field("memory", _named(size)),
    "silence": Field("silence", _named(span)),
    "max-output": Field("max_output", _named(size)),
    "budget": Field("budget", _named(units.money), ANY_AGENT),
    "task-budget": Field("task_budget", _named(units.money), ANY_AGENT),
    "tokens": Field("tokens", _named(units.amount), ANY_AGENT),
    "task-tokens": Field("task_tokens", _named(units.amount), ANY_AGENT),
}
FILES = ("prompt", "schema")  # options whose value is a file in the skill's folder
CUTS = ("chunk", "chunk-by", "chunk-size")  # one of them cuts a batch
