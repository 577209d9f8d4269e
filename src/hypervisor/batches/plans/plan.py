"""Plans: the proposals of a batch's done tasks, checked against the current files.

Proposals are taken in the order of their tasks, each on top of the previous ones, so that a file
can be edited and then moved, and conflicts are found before anything is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hypervisor.batches.plans import action as actions
from hypervisor.batches.plans.action import Step, visible
from hypervisor.batches.plans.diff import FileDiff, file_diff
from hypervisor.batches.sql import actions as actions_sql
from hypervisor.batches.sql import chunks as chunks_sql
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.queue.add import check_task
from hypervisor.queue.context import Context
from hypervisor.queue.sql import queries
from hypervisor.queue.task import Batch, NewTask

if TYPE_CHECKING:
    from hypervisor.batches.plans.files import ActionFiles

PAGE = 1_000
MAX_SHOWN = 2_000  # characters shown of a new task


class PlannedAction(NamedTuple):
    """A proposal and its effect; `refused` says why it is left out. `added` and `removed` are the
    lines of its diff, None if there is none."""

    task: str
    kind: str
    category: str
    what: str
    why: str
    diff: str
    refused: str
    data: dict[str, Any]
    added: int | None = None
    removed: int | None = None


class Plan(NamedTuple):
    """The actions to do, those refused, and those that would change nothing."""

    batch: str
    id: str
    root: str
    hash: str
    to_do: tuple[PlannedAction, ...]
    refused: tuple[PlannedAction, ...]
    unchanged: tuple[PlannedAction, ...]
    kinds: dict[str, int]
    categories: dict[str, int]
    states: dict[str, int]  # of actions approved earlier
    held_back: dict[str, int]  # tasks left out, by the state of their chunk
    chunk: int | None = None  # the only one whose actions are shown
    ready: int = 0  # actions of other chunks, which are approved


class Proposed(NamedTuple):
    """A proposal, with its position in the result of its task."""

    task: str
    chunk: int
    category: str
    place: int
    proposal: object


def plan(
    hv: Context,
    batch: str,
    diffs: bool | range = True,
    *,
    chunk: int | None = None,
    task: str | None = None,
) -> Plan:
    """Show the changes that a batch proposes, with diffs, and those that are refused.

    With `chunk`, what this chunk would change if it were approved; with `task`, what this task
    would. A range makes the diffs of these actions only."""
    planned = hv.store.read(queries.batch, validate.text("the batch", batch))
    rows = hv.store.read(actions_sql.every, planned.id)
    settled = {row.data["print"] for row in rows if row.state in actions.SETTLED}
    root = root_of(planned)
    if chunk is not None:
        hv.store.read(chunks_sql.find, planned.id, chunk)
    wanted = _Wanted(chunk, None if task is None else hv.resolve(task), diffs)
    draft = _Draft(files_of(hv, planned, root) if root else None, wanted)
    for proposed in proposals(hv, planned, chunk or 0):
        draft.take(proposed, settled)
    to_do = tuple(draft.to_do)
    return Plan(
        planned.name,
        planned.id,
        root,
        actions.digest([(action.task, action.data) for action in to_do]),
        to_do,
        tuple(draft.refused),
        tuple(draft.unchanged),
        _counts([action.kind for action in to_do]),
        _counts([action.category for action in to_do]),
        _counts([row.state for row in rows]),
        hv.store.read(actions_sql.held_back, planned.id, chunk or 0),
        chunk,
        draft.others,
    )


def proposals(hv: Context, batch: Batch, chunk: int = 0) -> Iterator[Proposed]:
    """All proposals in approved chunks, and in this one whatever its state."""
    after = ""
    while page := hv.store.read(actions_sql.proposing, batch.id, after, PAGE, chunk):
        for task, _, result, own in page:
            for place, (category, proposal) in enumerate(actions.proposals_of(result)):
                yield Proposed(task, own, category, place, proposal)
        after = page[-1].task


def current_paths(hv: Context, batch: Batch) -> dict[str, str | None]:
    """The new absolute paths of files that plans have moved; None: deleted."""
    from os.path import join

    now: dict[str, str | None] = {}
    first: dict[str, str] = {}  # by current path: the path before any plan
    for row in hv.store.read(actions_sql.every, batch.id):
        step = row.data.get("step")
        if row.state not in (actions.APPLIED, actions.UNDOING) or step is None:
            continue
        if step["kind"] in (actions.MOVE, actions.REMOVE):
            path = join(row.data["root"], step["path"])
            to = join(row.data["root"], step["to"]) if "to" in step else None
            origin = first.pop(path, path)
            now[origin] = to
            if to:
                first[to] = origin
    return now


def root_of(batch: Batch) -> str:
    """The folder that a batch was started in; "" if it was not."""
    return str(batch.spec.get("cwd", "")) if isinstance(batch.spec, dict) else ""


def files_of(hv: Context, batch: Batch, root: str) -> ActionFiles:
    from hypervisor.batches.plans.files import ActionFiles

    return ActionFiles(root, hv.batch_files.folder(batch.name))


def new_task(batch: str, task: str, fingerprint: str, proposal: dict[str, Any]) -> NewTask:
    """The task that a proposal asks for. Its key makes sure that it is never added twice."""
    return check_task(
        NewTask(
            proposal["title"],
            proposal.get("body", ""),
            proposal.get("type", "task"),
            key=proposal.get("key") or f"plan {batch} {fingerprint}",
            data={"plan": batch, "proposed_by": task},
        )
    )


def edited(content: bytes, proposal: dict[str, Any]) -> bytes:
    from hypervisor.inputs.task_files.markdown import with_body_line, with_fields

    if proposal["set"]:
        content = with_fields(content, proposal["set"])
    for line in proposal.get("lines", ()):
        content = with_body_line(content, line)
    return content


def content_hash(content: bytes) -> str:
    from hashlib import sha256

    return sha256(content).hexdigest()


def _counts(words: Sequence[str]) -> dict[str, int]:
    return {word: words.count(word) for word in sorted(set(words))}


class _File(NamedTuple):
    """A file as it will be after the previous actions."""

    hash: str = ""  # empty: no such file
    mode: int = 0
    origin: str = ""  # the path of its current content …
    content: bytes | None = None  # … unless an action sets it
    by: str = ""  # the last task that changes it
    fields: dict[str, Any] = {}  # noqa: RUF012  # what edits have set, never changed in place


class _Unchanged(Exception):
    """A proposal would change nothing."""


class _Wanted(NamedTuple):
    """What a plan shows: of a chunk, a task or everything, and which actions with diffs."""

    chunk: int | None
    task: str | None
    diffs: bool | range

    def shows(self, proposed: Proposed) -> bool:
        return self.chunk in (None, proposed.chunk) and self.task in (None, proposed.task)

    def wants_diff(self, position: int) -> bool:
        return self.diffs if isinstance(self.diffs, bool) else position in self.diffs


class _Draft:
    """Builds a plan, proposal by proposal. `others` are to be done, but not shown."""

    def __init__(self, files: ActionFiles | None, wanted: _Wanted) -> None:
        self._files = files
        self._wanted = wanted
        self._diffs = False  # whether the current action needs one
        self._seen: dict[str, _File] = {}
        self._keys: set[str] = set()
        self.to_do: list[PlannedAction] = []
        self.refused: list[PlannedAction] = []
        self.unchanged: list[PlannedAction] = []
        self.others = 0

    def take(self, proposed: Proposed, settled: set[str]) -> None:
        """Add a proposal to `to_do`, `refused` or `unchanged`."""
        task, _, category, place, proposal = proposed
        fingerprint = actions.fingerprint(task, place, proposal)
        if fingerprint in settled:
            self._remember(task, proposal)
            return
        is_shown = self._wanted.shows(proposed)
        self._diffs = is_shown and self._wanted.wants_diff(len(self.to_do))
        checked, problem = self._check(task, category, fingerprint, proposal)
        if not is_shown:
            self.others += problem is None
        elif problem is None:
            self.to_do.append(checked)
        else:
            (self.refused if problem else self.unchanged).append(checked)

    def _check(
        self, task: str, category: str, fingerprint: str, proposal: object
    ) -> tuple[PlannedAction, str | None]:
        """The action, and None if it is to be done; otherwise why not, "" if nothing changes."""
        kind, what, why = "?", "", ""
        data: dict[str, Any] = {}
        try:
            data = {"proposal": actions.checked(proposal), "print": fingerprint}
            kind, why = data["proposal"]["do"], data["proposal"].get("why", "")
            what = actions.wording(kind, data)
            step, diff = self._step(task, data)
        except InvalidInput as error:
            what = what or visible(str(proposal)[:200])
            refused = str(error).rstrip(".")
            return PlannedAction(task, kind, category, what, why, "", refused, data), refused
        except _Unchanged:
            return PlannedAction(task, kind, category, what, why, "", "", data), ""
        if step is not None and self._files is not None:
            data |= {"root": self._files.root, "step": actions.step_data(step)}
        what = actions.wording(kind, data)
        action = PlannedAction(task, kind, category, what, why, diff.text, "", data, *diff[1:])
        return action, None

    def _remember(self, task: str, proposal: object) -> None:
        """Remember fields set by an earlier plan: another task may not set them differently."""
        with suppress(InvalidInput):
            checked = actions.checked(proposal)
            if checked["do"] == actions.EDIT and self._files is not None:
                path = self._files.locate(checked["path"])
                here = self._file(path)
                fields = {**here.fields, **checked["set"]}
                self._seen[path] = here._replace(by=task, fields=fields)

    def _step(self, task: str, data: dict[str, Any]) -> tuple[Step | None, FileDiff]:
        proposal = data["proposal"]
        kind = proposal["do"]
        if kind == actions.TASK:
            return None, FileDiff(self._task(task, data))
        if self._files is None:
            raise InvalidInput("the batch was not started in a folder, so it has no files")
        path = self._files.locate(proposal["path"])
        if kind == actions.CREATE:
            return self._create(task, path, proposal["text"].encode())
        here = self._file(path)
        if not here.hash:
            reason = f"task {here.by} removes it" if here.by else "no such file"
            raise InvalidInput(f"{visible(path)}: {reason}")
        if kind == actions.MOVE:
            return self._move(task, path, here, self._files.locate(proposal["to"])), FileDiff()
        if kind == actions.DELETE:
            return self._delete(task, path, here)
        return self._replace(task, path, here, proposal)

    def _task(self, task: str, data: dict[str, Any]) -> str:
        proposal = data["proposal"]
        new = new_task("", task, data["print"], proposal)
        if new.key in self._keys:
            raise InvalidInput("a task with this key is proposed twice")
        self._keys.add(new.key or "")
        return _head(new.body) if self._diffs else ""

    def _delete(self, task: str, path: str, here: _File) -> tuple[Step, FileDiff]:
        step = Step(actions.REMOVE, path, before=here.hash, mode_before=here.mode)
        diff = FileDiff()
        if self._diffs:
            with suppress(InvalidInput):  # too large to be read: it can be deleted anyway
                diff = file_diff(self._content(path, here), None, path)
        self._seen[path] = _File(by=task)
        return step, diff

    def _create(self, task: str, path: str, content: bytes) -> tuple[Step, FileDiff]:
        there = self._file(path)
        after = content_hash(content)
        if there.hash == after and not there.by:
            raise _Unchanged
        self._refuse_existing(path, there)
        self._seen[path] = _File(after, 0, "", content, task)
        step = Step(actions.PLACE, path, after=after)
        return step, file_diff(None, content, path) if self._diffs else FileDiff()

    def _move(self, task: str, path: str, here: _File, to: str) -> Step:
        if path == to:
            raise _Unchanged
        self._refuse_existing(to, self._file(to))
        self._seen[path] = _File(by=task)
        self._seen[to] = here._replace(by=task)
        return Step(actions.StepKind.MOVE, path, to, here.hash)

    def _replace(
        self, task: str, path: str, here: _File, proposal: dict[str, Any]
    ) -> tuple[Step, FileDiff]:
        before = self._content(path, here)
        fields = here.fields
        if proposal["do"] == actions.EDIT:
            for name, value in proposal["set"].items():
                if name in fields and fields[name] != value and here.by != task:
                    raise InvalidInput(f"task {here.by} sets {name!r} to something else")
            fields = {**fields, **proposal["set"]}
            content = edited(before, proposal)
        else:
            if here.by:
                raise InvalidInput(f"task {here.by} also changes this file")
            content = proposal["text"].encode()
        if content == before:
            raise _Unchanged
        after = content_hash(content)
        self._seen[path] = _File(after, here.mode, "", content, task, fields)
        mode = here.mode or None  # 0: a new file, its mode is not known yet
        step = Step(actions.REPLACE, path, "", here.hash, after, mode, mode)
        return step, file_diff(before, content, path) if self._diffs else FileDiff()

    def _file(self, path: str) -> _File:
        assert self._files is not None
        if path not in self._seen:
            facts = self._files.facts(path)
            self._seen[path] = _File(*facts, path) if facts else _File()
        return self._seen[path]

    def _content(self, path: str, here: _File) -> bytes:
        assert self._files is not None
        if here.content is not None:
            return here.content
        content = self._files.read(here.origin)
        if content_hash(content) != here.hash:
            raise InvalidInput(f"{visible(path)} is being changed right now")
        return content

    def _refuse_existing(self, path: str, there: _File) -> None:
        if there.hash:
            reason = f"task {there.by} creates it" if there.by else "it already exists"
            raise InvalidInput(f"{visible(path)}: {reason}")


def _head(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}\n… ({len(text)} characters)"
