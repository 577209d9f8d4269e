"""The `hv run` that a form asks for: its words, its standard input, and how to type it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import takewhile

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import one_line
from hypervisor.skills.folders import FoundSkill, find_skill, places
from hypervisor.web.dashboard.run_fields import KINDS, Field, Kind, groups

MAX_ITEMS = 5_000  # in a form; files are for more
FEW = 5  # items that are words of the command, not its standard input
MAX_SHOWN = 4_000  # characters of items in a command to copy
MAGIC = frozenset("*?[")
PLAIN = re.compile(r"(?:[\w@%+=:,./-]|\{(?:|#|/|//|\.|/\.|[A-Za-z_]\w*)\})+", re.ASCII)
CODES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
Form = Mapping[str, str]


class RunCommand(NamedTuple):
    """The words after `hv`; `lines` are its standard input."""

    words: tuple[str, ...]  # options
    work: tuple[str, ...]  # `-- COMMAND …`, or nothing
    lines: tuple[str, ...] = ()

    @property
    def stdin(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    def arguments(self, verb: str, *more: str) -> list[str]:
        return [verb, *self.words, *more, *self.work]

    def shell(self) -> str:
        """What to type in a terminal; many items are better in a file."""
        command = " ".join(map(quoted, ("hv", "run", *self.words, *self.work)))
        if not self.lines:
            return command
        items = " ".join(map(quoted, self.lines))
        if len(items) > MAX_SHOWN:
            return f"{command} < items.txt"
        return f"printf '%s\\n' {items} | {command}"


def quoted(word: str) -> str:
    """A word for a shell. What cannot be seen is written as its code, as bash and zsh read it."""
    if PLAIN.fullmatch(word):
        return word
    if one_line(word) == word:
        return shlex.quote(word)
    return "$'" + "".join(map(_written, word)) + "'"


def _written(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if one_line(char) == char:
        return char
    return CODES.get(char) or f"\\U{ord(char):08x}"


def kind_of(form: Form) -> Kind:
    kind = form.get("kind") or "command"
    if kind not in KINDS:
        raise InvalidInput(f"unknown kind of run {kind[:40]!r}")
    return kind


def skill_of(form: Form, folder: str) -> FoundSkill | None:
    if kind_of(form) != "skill" or not form.get("skill"):
        return None
    return find_skill(form["skill"], places(folder=folder))


def command_of(form: Form, folder: str) -> RunCommand:
    """InvalidInput: something is missing, or a path is outside the folder."""
    kind, skill = kind_of(form), skill_of(form, folder)
    given = {name: value.strip() for name, value in form.items() if value.strip()}
    first = _skill_words(given, skill, folder) if kind == "skill" else ()
    items, lines = ((), ()) if kind == "skill" else _items(given, folder)
    options = [
        word
        for group in groups(kind, skill)
        for field in group.fields
        for word in _option(field, given, folder)
    ]
    own, work = _work(kind, given, folder)
    return RunCommand((*first, *own, *options, *items), work, lines)


def _work(kind: Kind, given: Form, folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is run: as options, and behind `--`."""
    if kind == "function":
        return ("--fn", _needed(given, "function", "a function")), ()
    if kind == "agent":
        agent = _value("--agent", _needed(given, "agent", "an agent"))
        return (*agent, *_prompt(given, folder)), ()
    if kind == "skill":
        return _value("--agent", given["agent"]) if "agent" in given else (), ()
    text = _needed(given, "command", "a command")
    if "shell" in given:
        return ("--shell",), ("--", text)
    try:
        return (), ("--", *shlex.split(text))
    except ValueError as error:
        raise InvalidInput(f"invalid command: {error}") from None


def _prompt(given: Form, folder: str) -> tuple[str, ...]:
    text, file = given.get("prompt"), given.get("prompt_file")
    if text and file:
        raise InvalidInput("give the prompt or a file with it, not both")
    if file:
        return _value("--prompt", inside(folder, file))
    if not text:
        return ()
    if "\n" not in text and len(text) < 1_000 and os.path.isfile(os.path.join(folder, text)):
        inside(folder, text)  # the command reads a file of that name
    return _value("--prompt", text)


def _skill_words(given: Form, skill: FoundSkill | None, folder: str) -> tuple[str, ...]:
    if skill is None:
        raise InvalidInput("choose a skill")
    if "path" not in given:
        return (skill.skill.name,)
    return skill.skill.name, inside(folder, given["path"])


def _items(given: Form, folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """As options, and as lines of the standard input."""
    lines = tuple(line for line in given.get("items", "").splitlines() if line.strip())
    if len(lines) > MAX_ITEMS:
        raise InvalidInput(f"too many items for a form: {len(lines):,}; put them into a file")
    named = ("--items", inside(folder, given["files"])) if "files" in given else ()
    if not lines and not named:
        raise InvalidInput("no items: give some, or the files to take them from")
    if len(lines) <= FEW:
        return (*(word for line in lines for word in _value("--item", line)), *named), ()
    return ("--items", "-", *named) if named else (), lines


def _option(field: Field, given: Form, folder: str) -> Iterator[str]:
    text = given.get(field.name)
    if text is None:
        return
    if field.name == "rerun":
        yield f"--{_chosen(field, text)}"
    elif field.shape == "flag":
        yield field.option
    elif field.shape == "lines":
        for line in filter(str.strip, text.splitlines()):
            yield from _value(field.option, line)
    elif field.shape == "choice":
        yield from _value(field.option, _chosen(field, text))
    else:
        yield from _value(field.option, inside(folder, text) if field.is_path else text)


def _chosen(field: Field, text: str) -> str:
    if text not in dict(field.choices):
        raise InvalidInput(f"{field.label}: invalid value {text[:40]!r}")
    return text


def _value(option: str, text: str) -> tuple[str, ...]:
    """An option and its value, which may begin with a dash."""
    return (f"{option}={text}",) if text.startswith("-") else (option, text)


def _needed(given: Form, name: str, what: str) -> str:
    if name not in given:
        raise InvalidInput(f"give {what}")
    return given[name]


def inside(folder: str, path: str) -> str:
    """A path or pattern below the folder; what is elsewhere is for the command line."""
    root, parts = os.path.realpath(folder), path.split("/")
    fixed = list(takewhile(lambda part: not MAGIC & set(part), parts))
    base = "/" if path.startswith("/") else root
    start = os.path.realpath(os.path.join(base, *filter(None, fixed)))
    if ".." in parts or path.startswith("~") or os.path.commonpath((root, start)) != root:
        raise InvalidInput(f"{path[:200]} is outside {folder}: use `hv run` for it")
    return f"./{path}" if path.startswith("-") else path
