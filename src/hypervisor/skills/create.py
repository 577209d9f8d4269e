"""Creating a skill from a batch, so that `hv run NAME` can run it again.

The batch's spec says how it was run. What its tasks have in common, and how it was split into
chunks, is inferred from them as far as possible. Existing files are never overwritten, and the
folder is written completely or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import Any

from hypervisor.agents.prompt import INSTRUCTIONS
from hypervisor.batches.sql import chunks as chunks_sql
from hypervisor.batches.sql import pipelines
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput, WrongState
from hypervisor.core.gitignore import unignore_skills
from hypervisor.core.places import DATA
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import pluralize
from hypervisor.inputs.items import column_text, item_of
from hypervisor.inputs.named_files import is_task_file
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.queue.lane import DEFAULT_PRIORITY
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch, Task, TaskFilter
from hypervisor.runs.spec import AgentSpec, RunSpec, spec_from
from hypervisor.skills.fields import check_name
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
from hypervisor.skills.skill import FILE, own_file, read_skill

SAMPLE = 1_000  # number of tasks to examine
MAX_FILE_SIZE = 1 << 20  # of a script that is copied
LABEL = "agent:"  # prefix of the requirement that names a task's agent
PLAIN = "run"  # the default type of tasks
OF_CHUNK = {"chunk", "count", "items"}  # the columns of a task for a whole chunk
SHAPES = {
    "day": re.compile(r"\d{4}-\d\d-\d\d\Z"),
    "week": re.compile(r"\d{4}-W\d\d\Z"),
    "month": re.compile(r"\d{4}-\d\d\Z"),
}


class MadeSkill(NamedTuple):
    """The folder and its files; `notes`: what could not be saved, and other remarks."""

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
    """Create a skill from a batch, in the project or for all projects of the user."""
    check_name(name)
    folder = os.path.join(_home(user), name)
    if os.path.lexists(folder):
        raise WrongState(f"{folder} already exists. Nothing was changed; choose another name.")
    source = hv.store.read(queries.batch, validate.text("the batch", batch))
    if source.spec is None:
        raise InvalidInput(
            f"batch {source.name} has no command, function or agent to save as a skill."
        )
    builder = _SkillBuilder(hv, name, source, spec_from(source.spec))
    files = builder.files(description)
    read_skill(files[FILE], name)  # never write an invalid skill
    if not dry_run:
        _write(folder, files, builder.programs)
    texts = {path: data.decode("utf-8", "replace") for path, data in files.items()}
    return MadeSkill(name, folder, texts, tuple(builder.notes), not dry_run)


class _SkillBuilder:
    """Builds the files of the new folder."""

    def __init__(self, hv: Context, name: str, batch: Batch, spec: RunSpec) -> None:
        self._hv, self._name, self._batch, self._spec = hv, name, batch, spec
        self._tasks = hv.store.read(queries.list_tasks, TaskFilter(batch=batch.id), SAMPLE)
        self._old = find_skill(spec.skill) if spec.skill else None
        self._files: dict[str, bytes] = {}
        self.programs: set[str] = set()  # names of executable files
        self.notes: list[str] = []

    def files(self, description: str) -> dict[str, bytes]:
        spec, fields = self._spec, fields_of(self._spec)
        description = description or f"repeats the batch {self._batch.name}"
        if spec.agent:
            self._files[PROMPT] = (spec.agent.prompt or INSTRUCTIONS).encode()
        if spec.agent and spec.agent.schema:
            self._files[SCHEMA] = spec.agent.schema.encode()
        fields["run"] = self._own_program(spec, fields["run"])
        fields |= self._items() | self._common() | self._cut() | self._following()
        usual = "status" if fields.get("items", {}).get("format") == "tasks" else "none"
        if spec.write_back != usual:
            fields["write-back"] = spec.write_back
        front = {"name": self._name, "description": _line(description)} | fields
        body = f"# {self._name}\n\nMade from the batch `{_line(self._batch.name)}`.\n"
        return {FILE: skill_text(front, body).encode()} | self._files

    def _own_program(self, spec: RunSpec, way: Fields) -> Fields:
        """Copy a script given as ./x, or one of another skill, into the folder."""
        if not spec.command or spec.command.shell:
            return way
        argv = spec.command.argv
        path = os.path.normpath(os.path.join(spec.cwd, argv[0]))
        of_skill = self._old is not None and path.startswith(f"{self._old.folder}/")
        if not (own_file(argv) or of_skill):
            return way
        name = os.path.basename(path)
        try:
            with open(path, "rb") as file:
                data = file.read(MAX_FILE_SIZE + 1)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None
        if len(data) > MAX_FILE_SIZE or name in (FILE, PROMPT, SCHEMA) or name in self._files:
            return {"command": [path, *argv[1:]]}
        self._files[name] = data
        self.programs.add(name)
        self.notes.append(f"{name} was copied into the skill")
        return {"command": [f"./{name}", *argv[1:]]}

    # Inferred from the tasks

    def _common(self) -> Fields:
        """Values that all tasks share and that are not the default."""
        fields: Fields = {}
        for name, usual in (("type", PLAIN), ("priority", DEFAULT_PRIORITY), ("retries", 0)):
            values = {getattr(task, name) for task in self._tasks}
            value = values.pop() if len(values) == 1 else usual
            if value != usual and value != self._name:
                fields[name] = value
        if fields.get("type") == self._spec.skill:
            del fields["type"]  # the default type of the other skill
        needs = [set(task.requires) for task in self._tasks]
        shared = set.intersection(*needs) if needs else set()
        if required := sorted(name for name in shared if not name.startswith(LABEL)):
            fields["requires"] = required
        branches = {task.branch for task in self._tasks} - {""}
        known = self._old.skill.options.get("branch") if self._old else None
        if known and branches == {known}:
            fields["branch"] = known
        elif branches:  # it may have been that of the git checkout
            named = ", ".join(sorted(branches)[:3])
            self.notes.append(f"the branch {named} is not saved; use --branch")
        return fields

    def _items(self) -> Fields:
        """The source of the items: that of the other skill, or what the items look like."""
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
        folder = os.path.commonpath([os.path.dirname(item.text) or "." for item in items])
        self.notes.append(f"the batch had {pluralize(len(items), 'file')} of {folder}")
        return {"items": {"glob": pattern}}

    def _old_items(self, old: FoundSkill) -> Fields:
        items = old.skill.items
        if items.file:
            with open(check_inside(old.folder, items.file), "rb") as file:
                self._files[os.path.basename(items.file)] = file.read()
            items = items._replace(file=os.path.basename(items.file))
        given = {name: value for name, value in items._asdict().items() if value}
        return {"items": given} if given else {}

    def _all_files(self, items: Sequence[Item]) -> bool:
        paths = [os.path.join(self._spec.cwd, item.text) for item in items]
        if any(os.path.isabs(item.text) or ".." in item.text.split("/") for item in items):
            return False
        return all(map(os.path.isfile, paths))

    def _per_chunk(self) -> bool:
        return bool(self._tasks) and all(map(_is_chunk, self._tasks))

    def _cut(self) -> Fields:
        """How the batch was split into chunks, inferred from their names."""
        chunks = self._hv.store.read(chunks_sql.every, self._batch.id)
        names = [chunk.name for chunk in chunks]
        if not names:
            return {}
        fields: Fields = {"per": "chunk"} if self._per_chunk() else {}
        dated = [name for name in names if name != "undated"]
        for span, shape in SHAPES.items():
            if dated and all(map(shape.match, dated)):
                return fields | {"chunk": span}
        if names == [str(number + 1) for number in range(len(names))]:
            return fields | {"chunk-size": max(self._sizes(chunks))}
        by = self._field(set(names))
        if by is None:
            self.notes.append(f"cannot tell how the {pluralize(len(names), 'chunk')} were split")
            return fields
        return fields | {"chunk-by": by}

    def _sizes(self, chunks: Sequence[Any]) -> list[int]:
        if not self._per_chunk():
            return [sum(chunk.tasks.values()) or 1 for chunk in chunks]
        columns = [item_of(task).columns or {} for task in self._tasks]
        return [int(values.get("count", 1)) for values in columns] or [1]

    def _field(self, names: set[str]) -> str | None:
        """The column whose values are the names of the chunks."""
        items = [item_of(task) for task in self._tasks if _is_item(task)]
        for column in (items[0].columns or {}) if items else ():
            if {
                " ".join(column_text(item, column).split())[:100] or "none" for item in items
            } == names:
                return str(column)
        return None

    # Later stages and the reduce

    def _following(self) -> Fields:
        pipeline = self._hv.store.read(pipelines.of_batch, self._batch.id)
        if pipeline is None:
            return {}
        if pipeline.stages[0] != self._batch.id:
            raise InvalidInput(
                f"{self._batch.name} is a later stage of another batch; use that batch."
            )
        fields: Fields = {}
        stages = [self._stage(batch) for batch in pipeline.stages[1:]]
        if stages and all(stages):
            fields["then"] = stages
        if pipeline.reduce_batch:
            last = self._spec_of(pipeline.reduce_batch)
            fields["reduce"] = self._own_program(last, run_of(last.work))
            if last.agent:
                self._files["reduce.md"] = (last.agent.prompt or INSTRUCTIONS).encode()
                fields["reduce"]["prompt"] = "reduce.md"
                fields |= self._only_agent(last.agent)
        return fields

    def _spec_of(self, batch: str) -> RunSpec:
        return spec_from(self._hv.store.read(queries.batch, batch).spec)

    def _stage(self, batch: str) -> list[str]:
        """The command of a later stage, [] if it runs something else. It cannot be a file of the
        skill's folder."""
        spec = self._spec_of(batch)
        if not spec.command:
            return []
        first, *rest = argv = spec.command.argv
        is_own = own_file(argv)
        return [os.path.normpath(os.path.join(spec.cwd, first)) if is_own else first, *rest]

    def _only_agent(self, last: AgentSpec) -> Fields:
        """The permissions and limits of the reduce's agent, if it is the only agent."""
        if self._spec.agent:
            return {}  # those of the other agent apply
        fields = permissions_of(last, "read-only" if self._spec.propose else "edit")
        limits = limits_of(self._spec) | costs_of(last)
        return fields | ({"limits": limits} if limits else {})


def _home(user: bool) -> str:
    if user:
        return user_folder()
    folder = project_folder()
    if folder is None:
        raise InvalidInput(
            "no project: no .hypervisor folder here or in any parent folder; use --user to "
            "save the skill for all your projects."
        )
    return folder


def _write(folder: str, files: dict[str, bytes], programs: set[str]) -> None:
    """Write all files atomically: to a new folder, which is then renamed."""
    above = os.path.dirname(folder)
    fresh = os.path.join(above, f".{os.path.basename(folder)}.{os.getpid()}.new")
    try:
        os.makedirs(fresh)
        for name, data in files.items():
            mode = 0o755 if name in programs else 0o644
            handle = os.open(os.path.join(fresh, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
            with open(handle, "wb") as file:
                file.write(data)
        os.rename(fresh, folder)  # fails if another process has just created one
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise InvalidInput(f"{folder} cannot be written: {error.strerror}.") from None
    if os.path.basename(os.path.dirname(above)) == DATA:
        unignore_skills(os.path.dirname(above))


def _is_item(task: Task) -> bool:
    return isinstance(task.data, dict) and isinstance(task.data.get("item"), str)


def _is_chunk(task: Task) -> bool:
    """Whether the task is a whole chunk: its item is a list."""
    columns = item_of(task).columns if _is_item(task) else None
    return (task.key or "").startswith("chunk ") and set(columns or ()) == OF_CHUNK


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]
