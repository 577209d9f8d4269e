"""The tools for single tasks: show, list, create, change, cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import Field, with_config
from typing_extensions import TypedDict

from hypervisor.core.errors import InvalidInput, RequestError
from hypervisor.mcp.answers import bounded, brief, cut, message_line, without_empty
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tool import ADD, CHANGE, END, READ, Offer, in_short
from hypervisor.queue import queries
from hypervisor.queue.add import add
from hypervisor.queue.queries import TaskOverview
from hypervisor.queue.task import Changes, NewTask

MAX_RECEIPTS = 20
MAX_CREATED = 5_000
LISTS = ("requires", "exclusive", "after")
FIELDS = tuple(name for name in NewTask._fields if name != "chunk")
Priority = Literal["critical", "high", "medium", "low"]
Id = Annotated[str, Field(description="id or its beginning")]


@with_config(extra="allow")
class TaskAnswer(TypedDict, total=False):
    id: str
    title: str
    state: str
    body: str
    data: Any
    result: Any
    reason: str
    receipts: list[str]


class TaskListAnswer(TypedDict, total=False):
    tasks: list[dict[str, Any]]
    next: str


class Created(TypedDict, total=False):
    ids: list[str]
    duplicates: list[dict[str, str]]


class Moved(TypedDict):
    id: str
    state: str


class Ended(TypedDict, total=False):
    moved: list[Moved]
    refused: list[str]


class TaskTools:
    def __init__(self, registry: ClaimRegistry) -> None:
        self.registry, self.hv = registry, registry.hv

    def reading(self) -> tuple[Offer, ...]:
        return (Offer(self.get_task, READ),)

    def offers(self) -> tuple[Offer, ...]:
        return (
            Offer(self.list_tasks, READ),
            Offer(self.create_task, ADD),
            Offer(self.update_task, CHANGE),
            Offer(self.cancel_task, END),
        )

    def get_task(
        self,
        id: Annotated[str, Field(description="id, its beginning, or a token")] = "",
        fields: Annotated[Sequence[str], Field(description="only these")] = (),
    ) -> TaskAnswer:
        """Show one task with its result, attempts, messages and last receipts."""
        task = whole(queries.show(self.hv, self.registry.task(id)))
        return cast("TaskAnswer", _only(task, fields))

    def list_tasks(
        self,
        *,
        states: Annotated[
            Sequence[str], Field(description="active, blocked, done, failed, …")
        ] = (),
        batch: str = "",
        type: str = "",
        branch: str = "",
        assignee: str = "",
        text: Annotated[str, Field(description="words in the title")] = "",
        limit: Annotated[int, Field(ge=1, le=500)] = 20,
        before: Annotated[str, Field(description="`next` of the previous page")] = "",
        fields: Annotated[Sequence[str], Field(description="only these")] = (),
    ) -> TaskListAnswer:
        """List tasks, newest first, with their main fields."""
        tasks = queries.list_tasks(
            self.hv,
            states,
            batch or None,
            type=type or None,
            branch=branch or None,
            assignee=assignee or None,
            text=text or None,
            limit=limit + 1,
            before=before or None,
        )
        names = queries.batch_names(self.hv, (task.batch for task in tasks))
        page = [_only(brief(task, names.get(task.batch, "")), fields) for task in tasks[:limit]]
        return TaskListAnswer(
            tasks=page, **({"next": tasks[limit - 1].id} if len(tasks) > limit else {})
        )

    def create_task(
        self,
        *,
        title: str = "",
        body: str = "",
        type: str = "task",
        priority: Priority = "medium",
        batch: str = "",
        key: Annotated[
            str, Field(description="a key that the batch already has adds nothing")
        ] = "",
        branch: str = "",
        assignee: str = "",
        requires: Annotated[Sequence[str], Field(description="capabilities")] = (),
        after: Annotated[Sequence[str], Field(description="ids or keys of tasks to wait for")] = (),
        retries: int = 0,
        data: Any = None,
        tasks: Annotated[
            Sequence[dict[str, Any]],
            Field(description="many, with these fields", max_length=MAX_CREATED),
        ] = (),
    ) -> Created:
        """Add a task, or many, for others to claim."""
        common = {
            "body": body,
            "type": type,
            "priority": priority,
            "key": key or None,
            "branch": branch or self.registry.branch() or "",
            "assignee": assignee,
            "requires": requires,
            "after": after,
            "retries": retries,
            "data": data,
        }
        if tasks and title:
            raise InvalidInput("give either a title or tasks, not both. Nothing was added.")
        given = [{**common, "key": None, **task} for task in tasks] or [{**common, "title": title}]
        added = add(self.hv, [_new(n, task) for n, task in enumerate(given, 1)], batch or None)
        return Created(ids=list(added.ids), duplicates=[old._asdict() for old in added.duplicates])

    def update_task(
        self,
        *,
        id: Id,
        title: str | None = None,
        body: str | None = None,
        type: str | None = None,
        priority: Priority | None = None,
        branch: str | None = None,
        assignee: str | None = None,
        requires: Sequence[str] | None = None,
        after: Sequence[str] | None = None,
        retries: int | None = None,
        data: Any = None,
        move: Annotated[
            Literal["", "retry", "answer", "tell", "accept", "take_back", "approve", "reject"],
            Field(
                description="answer, tell: reason is for its agent; "
                "accept: out "
                "of the inbox; take_back: end its claim; approve, reject: a person's decision"
            ),
        ] = "",
        reason: Annotated[str, Field(description="for the move")] = "",
    ) -> Moved:
        """Change a task's fields, or move it."""
        from hypervisor.agents.answer import answer, tell
        from hypervisor.queue import steer

        changes = Changes(
            title,
            body,
            type,
            priority,
            branch,
            assignee,
            _tuple(requires),
            _tuple(after),
            None,
            retries,
            data,
        )
        changed = any(value is not None for value in changes)
        if changed or not move:
            moved = steer.update(self.hv, id, changes)
        if move == "retry":
            moved = steer.retry(self.hv, id, reason)
        elif move == "accept":
            moved = steer.accept(self.hv, id)
        elif move == "take_back":
            moved = steer.take_back(self.hv, id, reason)
        elif move == "answer":
            moved = answer(self.hv, id, reason)
        elif move == "tell":
            moved = tell(self.hv, id, reason)
        elif move:
            from hypervisor.git.review import decide_as_agent

            moved = decide_as_agent(self.hv, id, move, reason)
        if move in ("retry", "answer") or after is not None:  # it may be ready to run now
            self.registry.look_after()
        return Moved(id=moved.task, state=moved.state)

    def cancel_task(
        self,
        ids: Annotated[Sequence[str], Field(min_length=1, max_length=1000)],
        reason: str = "",
        then: Annotated[
            Literal["cancel", "fail", "retry"],
            Field(description="or stop its attempt and fail or retry it"),
        ] = "cancel",
    ) -> Ended:
        """Cancel tasks, or stop their attempts with all their processes."""
        from hypervisor.queue import steer
        from hypervisor.runs import control

        moved: list[Moved] = []
        refused: list[str] = []
        for task in ids:
            try:
                after = (
                    steer.cancel(self.hv, task, reason)
                    if then == "cancel"
                    else control.kill(self.hv, task, reason, retry=then == "retry")
                )
                moved.append(Moved(id=after.task, state=after.state))
            except RequestError as error:
                refused.append(in_short(error))
        if refused and not moved:
            raise InvalidInput(refused[0])
        return Ended(moved=moved, refused=refused)


def whole(shown: TaskOverview) -> dict[str, Any]:
    """A task with its batch, dependencies, attempts and receipts."""
    from hypervisor.queue.message import question_of

    task, detail = shown.detail.task, shown.detail
    last = detail.attempts[-1] if detail.attempts else None
    return {
        "id": task.id,
        "title": task.title,
        "state": task.state,
        "body": cut(task.body),
        "type": task.type,
        "priority": task.priority,
        "batch": shown.batch.name if shown.batch else "",
        "branch": task.branch,
        "assignee": task.assignee,
        "requires": list(task.requires),
        "key": task.key,
        "data": bounded(task.data),
        "result": bounded(task.result),
        "reason": task.reason,
        "unblock": task.unblock,
        "question": question_of(task),
        "messages": [message_line(message) for message in shown.messages],
        "waits_for": list(detail.waits_for),
        "attempts": task.attempts,
        "worker": last.worker if last and last.outcome is None else "",
        "receipts": [line.text for line in shown.receipts[-MAX_RECEIPTS:]],
    }


def _only(task: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """The requested fields, or all of them, without empty ones."""
    if unknown := [name for name in fields if name not in task]:
        raise InvalidInput(f"unknown field {unknown[0][:40]!r}; use one of {', '.join(task)}.")
    return without_empty(**({name: task[name] for name in ("id", *fields)} if fields else task))


def _new(number: int, fields: Mapping[str, Any]) -> NewTask:
    if unknown := sorted(set(fields) - set(FIELDS)):
        raise InvalidInput(
            f"task {number}: unknown field {unknown[0][:40]!r}; use one of {', '.join(FIELDS)}. "
            "Nothing was added."
        )
    lists = {name: fields[name] for name in LISTS if name in fields}
    if any(not isinstance(value or [], list | tuple) for value in lists.values()):
        raise InvalidInput(f"task {number}: {', '.join(LISTS)} must be lists. Nothing was added.")
    return NewTask(**{"title": "", **fields, **{k: tuple(v or ()) for k, v in lists.items()}})


def _tuple(values: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
