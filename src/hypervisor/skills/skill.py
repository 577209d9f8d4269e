"""The format of a skill: a folder with a SKILL.md that describes a `hv run`.

The front matter holds the defaults of options; the body is for people, and is the agent's prompt
unless another one is named. Nothing here touches a file. Errors name the field and its line; an
unknown field is an error, since it would do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import closest
from hypervisor.inputs.task_files.front_matter import (
    FrontMatter,
    Node,
    Values,
    decode_utf8,
    find_front_matter,
)
from hypervisor.runs.config_readers import Reader, one_of
from hypervisor.skills import fields as skill_fields
from hypervisor.skills.fields import (
    AGENT,
    ANY,
    ANY_AGENT,
    CUTS,
    FIELDS,
    LIMITS,
    PROGRAM,
    RENAMED,
    check_name,
)

FILE = "SKILL.md"
MAX_SIZE = 1 << 20  # bytes of a SKILL.md
RunKind = Literal["function", "command", "agent"]
RUN_KINDS: tuple[RunKind, ...] = ("function", "command", "agent")


class SkillRun(NamedTuple):
    """What a skill runs, for each item or as its reduce: exactly one of the three."""

    function: str = ""
    command: tuple[str, ...] = ()
    agent: str = ""
    prompt: str = ""  # of an agent: a file in the folder

    @property
    def kind(self) -> RunKind:
        return next(kind for kind in RUN_KINDS if getattr(self, kind))


class ItemSource(NamedTuple):
    """Where the items come from: PATH read in a format, files below PATH, or a file of the skill.
    `paths`: only the paths of task files are needed, not their content."""

    format: str = ""
    glob: str = ""
    file: str = ""
    paths: bool = False


class Skill(NamedTuple):
    """`options` are those of `hv run`, with the names and units of its parser; `fields` is the
    front matter as it is."""

    name: str
    description: str
    run: SkillRun
    items: ItemSource = ItemSource()
    options: Mapping[str, Any] = MappingProxyType({})
    reduce: SkillRun | None = None
    body: str = ""
    fields: Mapping[str, Any] = MappingProxyType({})

    @property
    def files(self) -> tuple[str, ...]:
        """The files of its folder that it refers to; each must exist."""
        named = [self.options.get(name) for name in skill_fields.FILES]
        named += [self.items.file, self.reduce.prompt if self.reduce else ""]
        named += [self.script, own_file(self.reduce.command) if self.reduce else ""]
        return tuple(dict.fromkeys(str(name) for name in named if name))

    @property
    def script(self) -> str:
        """The file of its folder that is run; "" for another program or a shell command."""
        return "" if self.options.get("shell") else own_file(self.run.command)


def own_file(command: Sequence[str]) -> str:
    """The file of the skill's folder that a command runs; "" for another program."""
    return command[0][2:] if command and command[0].startswith("./") else ""


def read_skill(data: bytes, name: str) -> Skill:
    """Parse the SKILL.md of the folder with that name."""
    if len(data) > MAX_SIZE:
        raise InvalidInput(f"larger than {MAX_SIZE >> 10:,} KB: not a {FILE}.")
    place = find_front_matter(data)
    if place is None:
        raise InvalidInput("line 1: no front matter; it must begin with a line `---`.")
    decode_utf8(data)  # the whole file, so that an error names its line
    body = validate.text("the text below the front matter", decode_utf8(data[place.body :]))
    return _SkillReader(FrontMatter(decode_utf8(data[place.start : place.end]))).skill(name, body)


class _SkillReader:
    """Reads one front matter; every error names its line."""

    def __init__(self, front: FrontMatter) -> None:
        self._front = front

    def skill(self, name: str, body: str) -> Skill:
        front = self._front
        if front.root is None:
            raise InvalidInput("line 1: the front matter is empty.")
        top = self._pairs(front.root, "", (*OWN, *FIELDS, *RENAMED))
        top = {RENAMED.get(field, field): nodes for field, nodes in top.items()}
        for needed in ("name", "description", "run"):
            if needed not in top:
                raise InvalidInput(f"line 1: the field {needed} is missing.")
        self._check_name(top["name"][1], name)
        run = self._run(top["run"][1], "run", RUN_KINDS)
        reduce = self._reduce(top["reduce"][1]) if "reduce" in top else None
        options = self._options(top, FIELDS, "", run, reduce)
        options |= self._limits(top, run, reduce)
        self._check_cuts(top)
        if not options.get("shell"):
            self._check_script(top["run"][1], run)
        items = self._items(top["items"][1]) if "items" in top else ItemSource()
        if run.agent and "prompt" not in options and not body.strip():
            raise InvalidInput(
                "the agent has no prompt: name a file, or write it below the front matter."
            )
        description = self._value(
            top["description"][1],
            "description",
            partial(skill_fields.text, skill_fields.MAX_DESCRIPTION_LENGTH),
        )
        fields = MappingProxyType(front.fields())
        return Skill(name, description, run, items, MappingProxyType(options), reduce, body, fields)

    def _check_name(self, node: Node, folder: str) -> None:
        name = self._value(node, "name", lambda what, value: check_name(value))
        if name != folder:
            why = f"name is {name!r}, but the folder is called {folder!r}: they must be the same"
            raise self._refused(node, why)

    def _run(self, node: Node, what: str, known: tuple[str, ...]) -> SkillRun:
        pairs = self._pairs(node, what, known)
        if sum(kind in pairs for kind in RUN_KINDS) != 1:
            raise self._refused(node, f"{what} must have exactly one of {', '.join(RUN_KINDS)}")
        values = {
            key: self._value(value, f"{what}.{key}", RUN[key]) for key, (_, value) in pairs.items()
        }
        if "command" in values:
            values["command"] = tuple(values["command"])
        return SkillRun(**values)

    def _reduce(self, node: Node) -> SkillRun:
        reduce = self._run(node, "reduce", (*RUN_KINDS, "prompt"))
        self._check_script(node, reduce)
        if bool(reduce.prompt) != bool(reduce.agent):
            raise self._refused(node, "reduce.prompt and reduce.agent must be used together")
        return reduce

    def _items(self, node: Node) -> ItemSource:
        pairs = self._pairs(node, "items", ItemSource._fields)
        values = {
            key: self._value(value, f"items.{key}", ITEMS[key]) for key, (_, value) in pairs.items()
        }
        if "glob" in values and "file" in values:
            raise self._refused(node, "items.glob and items.file cannot be used together")
        if values.get("paths") and values.get("format") != "tasks":
            raise self._refused(pairs["paths"][0], "items.paths needs the format tasks")
        return ItemSource(**values)

    def _limits(
        self, top: Mapping[str, tuple[Node, Node]], run: SkillRun, reduce: SkillRun | None
    ) -> dict[str, Any]:
        if "limits" not in top:
            return {}
        pairs = self._pairs(top["limits"][1], "limits", tuple(LIMITS))
        return self._options(pairs, LIMITS, "limits.", run, reduce)

    def _options(
        self,
        pairs: Mapping[str, tuple[Node, Node]],
        known: Mapping[str, skill_fields.Field],
        prefix: str,
        run: SkillRun,
        reduce: SkillRun | None,
    ) -> dict[str, Any]:
        options = {}
        runs = {"", AGENT if run.agent else PROGRAM}
        if run.agent or (reduce and reduce.agent):
            runs.add(ANY_AGENT)
        for key, field in known.items():
            if key not in pairs:
                continue
            node, value = pairs[key]
            instead = key == "prompt" and run.function  # for an agent in its place
            if field.goes_with not in runs and not instead:
                needs = "a command or a function" if field.goes_with == PROGRAM else "an agent"
                raise self._refused(node, f"{prefix}{key} works only with {needs}")
            options[field.option] = self._value(value, prefix + key, field.read)
        return options

    def _check_script(self, node: Node, run: SkillRun) -> None:
        """A first word ./x is a file of the folder."""
        if run.command and run.command[0].startswith("./"):
            try:
                skill_fields.file_name("command", run.command[0])
            except InvalidInput as error:
                raise self._refused(node, str(error).rstrip(".")) from None

    def _check_cuts(self, top: Mapping[str, tuple[Node, Node]]) -> None:
        cuts = [name for name in CUTS if name in top]
        if len(cuts) > 1:
            raise self._refused(top[cuts[1]][0], f"{' and '.join(cuts)} cannot be used together")

    def _pairs(self, node: Node, what: str, known: tuple[str, ...]) -> dict[str, tuple[Node, Node]]:
        """The keys of a mapping with their nodes; unknown ones are refused."""
        if node.id != "mapping":
            raise self._refused(node, f"{what} must hold fields: {', '.join(known)}")
        pairs, merged = self._front.pairs_of(node)
        if merged:
            raise self._refused(merged[0], "`<<` is not supported here")
        for key, (at, _) in pairs.items():
            if key not in known:
                raise self._refused(at, _unknown(f"{what}." if what else "", key, known))
        return pairs

    def _value(self, node: Node, what: str, read: Reader) -> Any:
        value = Values(self._front).of(node)
        try:
            return read(what, value)
        except InvalidInput as error:
            raise self._refused(node, str(error).rstrip(".")) from None

    def _refused(self, node: Node, why: str) -> InvalidInput:
        line = self._front.line(node.start_mark.index)
        return InvalidInput(f"line {line}: {why}" if why.endswith("?") else f"line {line}: {why}.")


def _unknown(prefix: str, key: str, known: tuple[str, ...]) -> str:
    similar = closest(key, known)
    meant = f"did you mean {prefix}{similar}?" if similar else f"use one of {', '.join(known)}"
    return f"unknown field {(prefix + key)[:80]!r}; {meant}"


OWN = ("name", "description", "run", "items", "limits", "reduce")
RUN: Mapping[str, Reader] = {
    "function": skill_fields.function,
    "command": skill_fields.words,
    "agent": lambda what, value: validate.name(what, skill_fields.short(what, value)),
    "prompt": skill_fields.file_name,
}
ITEMS: Mapping[str, Reader] = {
    "format": one_of(*skill_fields.FORMATS),
    "glob": skill_fields.pattern,
    "file": skill_fields.file_name,
    "paths": skill_fields.yes_or_no,
}
__all__ = ["ANY", "FILE", "ItemSource", "Skill", "SkillRun", "check_name", "read_skill"]
