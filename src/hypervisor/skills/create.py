"""Making a skill of a batch that was run: the folder that `hv run NAME` can do it again with.

How the batch was run is kept with it; its tasks tell what they have in common, and how it was
cut into chunks, as far as that can be seen. Nothing that is there is ever overwritten, and the
folder appears as a pipeline or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypervisor.agents.prompt import INSTRUCTIONS
from hypervisor.batches.sql import chunks as chunks_sql
from hypervisor.batches.sql import pipelines
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, WrongState
from hypervisor.core.gitignore import unignore_skills
from hypervisor.core.places import DATA
from hypervisor.core.text import pluralize
from hypervisor.inputs.items import column_text, item_of
from hypervisor.inputs.named_files import is_task_file
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.queue.priority import DEFAULT
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch, Task, TaskFilter
from hypervisor.runs.spec import RunSpec, spec_from
from hypervisor.skills.folders import (
    FoundSkill,
    check_inside,
    find_skill,
    project_folder,
    user_folder,
)
from hypervisor.skills.render import (
    PROMPT,
    SCHEMA,
    Fields,
    costs_of,
    fields_of,
    limits_of,
    permissions_of,
    run_of,
    skill_text,
)
from hypervisor.skills.skill import FILE, check_name, own_file, read_skill

SAMPLE = 1_000  # tasks that are looked at
LARGEST_FILE = 1 << 20  # of a script that goes along
LABEL = "agent:"  # says which agent a task is for
PLAIN = "run"  # the type of tasks that were given none
OF_CHUNK = {"chunk", "count", "items"}  # the columns of a task for a pipeline chunk
SHAPES = {
    "day": re.compile(r"\d{4}-\d\d-\d\d\Z"),
    "week": re.compile(r"\d{4}-W\d\d\Z"),
    "month": re.compile(r"\d{4}-\d\d\Z"),
}


class MadeSkill(NamedTuple):
    """The folder and its files; `notes` says what could not be taken over."""

    name: str
    folder: str
    files: dict[str, str]  # name → text, as far as it is text
    notes: tuple[str, ...]
    written: bool


def new_skill(
    hv: Context,
    name: str,
    batch: str,
    *,
    user: bool = False,
    description: str = "",
    dry_run: bool = False,
) -> MadeSkill:
    """Make a skill of a batch that was run, in the project or for all projects of the user."""
    check_name(name)
    folder = os.path.join(_home(user), name)
    if os.path.lexists(folder):
        raise WrongState(f"{folder} is there already. Nothing was changed; take another name.")
    source = hv.store.read(queries.batch, validate.text("the batch", batch))
    if source.spec is None:
        raise InvalidInput(f"nothing runs the tasks of {source.name}: there is nothing to keep.")
    builder = _SkillBuilder(hv, name, source, spec_from(source.spec))
    files = builder.files(description)
    read_skill(files[FILE], name)  # what is written can be read, or is not written
    if not dry_run:
        _write(folder, files, builder.programs)
    shown = {each: data.decode("utf-8", "replace") for each, data in files.items()}
    return MadeSkill(name, folder, shown, tuple(builder.notes), not dry_run)


class _SkillBuilder:
    """The files of the new folder, put together step by step."""

    def __init__(self, hv: Context, name: str, batch: Batch, spec: RunSpec) -> None:
        self._hv, self._name, self._batch, self._spec = hv, name, batch, spec
        self._tasks = hv.store.read(queries.list_tasks, TaskFilter(batch=batch.id), SAMPLE)
        self._old = find_skill(spec.skill) if spec.skill else None
        self._files: dict[str, bytes] = {}
        self.programs: set[str] = set()  # those of the files that are run
        self.notes: list[str] = []

    def files(self, description: str) -> dict[str, bytes]:
        spec, fields = self._spec, fields_of(self._spec)
        description = description or f"as the batch {self._batch.name}"
        if spec.agent:
            self._files[PROMPT] = (spec.prompt or INSTRUCTIONS).encode()
        if spec.schema:
            self._files[SCHEMA] = spec.schema.encode()
        fields["run"] = self._own_program(spec, fields["run"])
        fields |= self._items() | self._common() | self._cut() | self._following()
        usual = "status" if fields.get("items", {}).get("format") == "tasks" else "none"
        if spec.write_back != usual:
            fields["write-back"] = spec.write_back
        front = {"name": self._name, "description": _line(description)} | fields
        body = f"# {self._name}\n\nMade from the batch `{_line(self._batch.name)}`.\n"
        return {FILE: skill_text(front, body).encode()} | self._files

    def _own_program(self, spec: RunSpec, way: Fields) -> Fields:
        """A script that was named ./x goes along, and so does that of another skill: in a skill
        that means a file of its folder."""
        if not spec.command or spec.shell:
            return way
        path = os.path.normpath(os.path.join(spec.cwd, spec.command[0]))
        of_skill = self._old is not None and path.startswith(f"{self._old.folder}/")
        if not (own_file(spec.command) or of_skill):
            return way
        name = os.path.basename(path)
        try:
            with open(path, "rb") as file:
                data = file.read(LARGEST_FILE + 1)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None
        if len(data) > LARGEST_FILE or name in (FILE, PROMPT, SCHEMA) or name in self._files:
            return {"command": [path, *spec.command[1:]]}
        self._files[name] = data
        self.programs.add(name)
        self.notes.append(f"{name} was copied into the skill")
        return {"command": [f"./{name}", *spec.command[1:]]}

    # What the tasks tell

    def _common(self) -> Fields:
        """What all tasks have in common, where it is not the usual."""
        found: Fields = {}
        for name, usual in (("type", PLAIN), ("priority", DEFAULT), ("retries", 0)):
            values = {getattr(task, name) for task in self._tasks}
            value = values.pop() if len(values) == 1 else usual
            if value != usual and value != self._name:
                found[name] = value
        if found.get("type") == self._spec.skill:
            del found["type"]  # it was that of the other skill's name
        needs = [set(task.requires) for task in self._tasks]
        shared = set.intersection(*needs) if needs else set()
        if wanted := sorted(each for each in shared if not each.startswith(LABEL)):
            found["requires"] = wanted
        branches = {task.branch for task in self._tasks} - {""}
        known = self._old.skill.options.get("branch") if self._old else None
        if known and branches == {known}:
            found["branch"] = known
        elif branches:  # it may have been that of the git checkout
            self.notes.append(f"the branch {', '.join(sorted(branches)[:3])}: give --branch")
        return found

    def _items(self) -> Fields:
        """Where items come from is not kept: the skill's own, if one was run, or what they are."""
        if self._old is not None:
            return self._old_items(self._old)
        items = [item_of(task) for task in self._tasks if _is_item(task)]
        if not items or self._per_chunk():
            return {}
        if all(map(is_task_file, items)):
            return {"items": {"format": "tasks"}}
        if any(item.columns is not None for item in items) or not self._all_files(items):
            return {}
        endings = {os.path.splitext(item.text)[1] for item in items}
        pattern = f"**/*{endings.pop()}" if len(endings) == 1 else "**/*"
        where = os.path.commonpath([os.path.dirname(item.text) or "." for item in items])
        self.notes.append(f"it took {pluralize(len(items), 'file')} of {where}")
        return {"items": {"glob": pattern}}

    def _old_items(self, old: FoundSkill) -> Fields:
        items = old.skill.items
        if items.file:
            with open(check_inside(old.folder, items.file), "rb") as file:
                self._files[os.path.basename(items.file)] = file.read()
            items = items._replace(file=os.path.basename(items.file))
        found = {name: value for name, value in items._asdict().items() if value}
        return {"items": found} if found else {}

    def _all_files(self, items: Sequence[Item]) -> bool:
        paths = [os.path.join(self._spec.cwd, item.text) for item in items]
        if any(os.path.isabs(item.text) or ".." in item.text.split("/") for item in items):
            return False
        return all(map(os.path.isfile, paths))

    def _per_chunk(self) -> bool:
        return bool(self._tasks) and all(map(_is_chunk, self._tasks))

    def _cut(self) -> Fields:
        """How it was cut into chunks, by what those are called."""
        chunks = self._hv.store.read(chunks_sql.every, self._batch.id)
        names = [chunk.name for chunk in chunks]
        if not names:
            return {}
        found: Fields = {"per": "chunk"} if self._per_chunk() else {}
        named = [name for name in names if name != "undated"]
        for span, shape in SHAPES.items():
            if named and all(map(shape.match, named)):
                return found | {"chunk": span}
        if names == [str(number + 1) for number in range(len(names))]:
            return found | {"chunk-size": max(self._sizes(chunks))}
        by = self._field(set(names))
        if by is None:
            self.notes.append(f"{pluralize(len(names), 'chunk')}: what cut them is not known")
            return found
        return found | {"chunk-by": by}

    def _sizes(self, chunks: Sequence[Any]) -> list[int]:
        if not self._per_chunk():
            return [sum(chunk.tasks.values()) or 1 for chunk in chunks]
        columns = [item_of(task).columns or {} for task in self._tasks]
        return [int(each.get("count", 1)) for each in columns] or [1]

    def _field(self, names: set[str]) -> str | None:
        """The column whose values are the names of the chunks."""
        items = [item_of(task) for task in self._tasks if _is_item(task)]
        for column in (items[0].columns or {}) if items else ():
            if {
                " ".join(column_text(item, column).split())[:100] or "none" for item in items
            } == names:
                return str(column)
        return None

    # What follows on the items

    def _following(self) -> Fields:
        pipeline = self._hv.store.read(pipelines.of_batch, self._batch.id)
        if pipeline is None:
            return {}
        if pipeline.stages[0] != self._batch.id:
            raise InvalidInput(
                f"{self._batch.name} is a later stage of another batch: name that one."
            )
        found: Fields = {}
        stages = [
            spec_from(self._hv.store.read(queries.batch, each).spec) for each in pipeline.stages[1:]
        ]
        if all(stage.command for stage in stages) and stages:
            found["then"] = [_from_anywhere(stage) for stage in stages]
        if pipeline.reduce_batch:
            last = spec_from(self._hv.store.read(queries.batch, pipeline.reduce_batch).spec)
            found["reduce"] = self._own_program(last, run_of(last))
            if last.agent:
                self._files["reduce.md"] = (last.prompt or INSTRUCTIONS).encode()
                found["reduce"]["prompt"] = "reduce.md"
                found |= self._only_agent(last)
        return found

    def _only_agent(self, last: RunSpec) -> Fields:
        """What the agent of the reduce may do and cost, where no other one works."""
        if self._spec.agent:
            return {}  # it has the leave of that one
        found = permissions_of(last, "read-only" if self._spec.propose else "edit")
        limits = limits_of(self._spec) | costs_of(last)
        return found | ({"limits": limits} if limits else {})


def _from_anywhere(stage: RunSpec) -> list[str]:
    """The command of a later stage; no file of the skill's folder can be one."""
    first, *rest = stage.command
    own = own_file(stage.command)
    return [os.path.normpath(os.path.join(stage.cwd, first)) if own else first, *rest]


def _home(user: bool) -> str:
    if user:
        return user_folder()
    found = project_folder()
    if found is None:
        raise InvalidInput(
            "there is no .hypervisor folder here or above, so no project: --user keeps the skill "
            "for all of yours."
        )
    return found


def _write(folder: str, files: dict[str, bytes], programs: set[str]) -> None:
    """All files in one step: the folder is written beside its place and renamed."""
    above = os.path.dirname(folder)
    fresh = os.path.join(above, f".{os.path.basename(folder)}.{os.getpid()}.new")
    try:
        os.makedirs(fresh)
        for name, data in files.items():
            mode = 0o755 if name in programs else 0o644
            handle = os.open(os.path.join(fresh, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
            with open(handle, "wb") as file:
                file.write(data)
        os.rename(fresh, folder)  # fails if somebody else has just made one
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise InvalidInput(f"{folder} cannot be written: {error.strerror}.") from None
    if os.path.basename(os.path.dirname(above)) == DATA:
        unignore_skills(os.path.dirname(above))


def _is_item(task: Task) -> bool:
    return isinstance(task.data, dict) and isinstance(task.data.get("item"), str)


def _is_chunk(task: Task) -> bool:
    """Whether the task stands for a pipeline chunk: its item is a list."""
    columns = item_of(task).columns if _is_item(task) else None
    return (task.key or "").startswith("chunk ") and set(columns or ()) == OF_CHUNK


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]
