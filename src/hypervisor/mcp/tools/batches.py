"""The tools of a supervising agent: spawn, watch, wait, steer, decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from hypervisor.agents import spawn
from hypervisor.core.text import pluralize
from hypervisor.inputs.template import Item
from hypervisor.mcp.answers import MAX_BODY_LENGTH, bounded, filled, without_empty
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tool import CHANGE, END, READ, RUN, Offer
from hypervisor.queue import queries
from hypervisor.queue.lifecycle import state_called
from hypervisor.queue.task import Stats
from hypervisor.runs.spec import GitSpec

if TYPE_CHECKING:
    from hypervisor.batches.pipeline_status import Overview, Reduced

MAX_RUNNING = 20
MAX_IDS = 200  # list_tasks has all
MAX_PROJECTS = 20
Batch = Annotated[str, Field(description="name or id")]


class Counts(TypedDict, total=False):
    total: int
    states: dict[str, int]
    projects: list[dict[str, Any]]


class Status(TypedDict, total=False):
    states: dict[str, int]
    running: list[dict[str, Any]]
    paused: list[str]
    supervisor: bool
    host: dict[str, Any]
    checkpoint: int


class Sum(TypedDict, total=False):
    batch: str
    succeeded: bool
    states: dict[str, int]
    runtime_seconds: float
    tokens: int
    cost: float
    stages: list[dict[str, Any]]
    reduce: dict[str, Any]
    workers: list[dict[str, Any]]
    next: str


class Text(TypedDict, total=False):
    text: str
    size: int


class Spawned(TypedDict, total=False):
    batch: str
    ids: list[str]
    added: int
    reduce: str
    queued_because: list[str]
    cursor: str
    how_to_wait: str


class Advice(TypedDict, total=False):
    headline: str
    clear: bool
    advice: str
    findings: list[str]


class SteerAnswer(TypedDict):
    batch: str
    message: str


class Learned(TypedDict):
    task_type: str
    message: str


# The parameters of spawn_parallel_tasks, with their descriptions.
ToSpawn = Annotated[
    Sequence[str | dict[str, Any]],
    Field(
        description="descriptions, or {description, item, body, type, priority, key, "
        "after: [numbers from 1, or keys], requires, exclusive, retries, data}",
        max_length=spawn.MAX_TASKS,
    ),
]
Branch = Annotated[str, Field(description="branch that all tasks inherit")]
Argv = Annotated[Sequence[str], Field(description="argv; {} is the item (else the description)")]
Function = Annotated[str, Field(description="package.module:function")]
Agent = Annotated[str, Field(description="claude, codex, gemini, …, auto")]
Prompt = Annotated[str, Field(description="for the agent, with {item}, {title}, {body}")]
Permissions = Annotated[Literal["read-only", "edit"], Field(description="of the agent")]
Merge = Annotated[
    Literal["", "branch", "local", "push", "pr"],
    Field(description="merge work done in clones; branch: hv/NAME"),
]
Verify = Annotated[Sequence[str], Field(description="shell commands to pass first")]
Reduce = Annotated[
    str | dict[str, Any],
    Field(
        description="a final task: description, command|function|agent, prompt; its item is a file "
        "with all results"
    ),
]
Name = Annotated[str, Field(description="of the batch; repeating name and tasks adds nothing")]
Seconds = Annotated[float, Field(ge=0, le=1e7, description="time limit of an attempt")]
JsonResults = Annotated[bool, Field(description="a command's last line is its result")]


class BatchTools:
    def __init__(self, registry: ClaimRegistry) -> None:
        self.registry, self.hv = registry, registry.hv

    def offers(self) -> tuple[Offer, ...]:
        return (
            Offer(self.spawn_parallel_tasks, RUN),
            Offer(self.get_task_stats, READ),
            Offer(self.get_index_stats, READ),
            Offer(self.get_summary, READ),
            Offer(self.read_output, READ),
            Offer(self.preflight, READ),
            Offer(self.steer_batch, END),
            Offer(self.learn_parallelization, CHANGE),
        )

    def spawn_parallel_tasks(
        self,
        *,
        tasks: ToSpawn,
        branch_id: Branch = "",
        strategy: Literal["auto", "parallel", "sequential", "adaptive"] = "auto",
        command: Argv = (),
        function: Function = "",
        agent: Agent = "",
        prompt: Prompt = "",
        permissions: Permissions = "edit",
        merge: Merge = "",
        verify: Verify = (),
        reduce: Reduce = "",
        name: Name = "",
        folder: str = "",
        workers: Annotated[int, Field(ge=0)] = 0,
        timeout_seconds: Seconds = 0,
        json_results: JsonResults = False,
    ) -> Spawned:
        """Run tasks in parallel in the background. Returns immediately; they finish without you.
        Without a command, function or agent, they wait for claim_next_task."""
        how = spawn.TaskRunner(
            tuple(command),
            function,
            agent,
            prompt,
            self.registry.path(folder),
            workers or None,
            int(timeout_seconds * 1000) or None,
            json_results,
            permissions,
            GitSpec(merge=merge, verify=tuple(verify)),
        )
        made = spawn.spawn_parallel_tasks(
            self.hv,
            tasks,
            branch_id or self.registry.branch() or "",
            strategy,
            how=how,
            name=name,
            reduce=reduce or None,
        )
        if made.supervised:
            self.registry.look_after()
        return filled(
            Spawned,
            batch=made.batch,
            ids=list(made.ids[:MAX_IDS]),
            added=made.added,
            reduce=made.reduce,
            queued_because=list(made.why),
            cursor=made.cursor,
            how_to_wait=_how_to_wait(made),
        )

    def get_task_stats(self, batch: Batch = "") -> Status:
        """The progress of a batch or of everything: counts, running tasks, pauses, host load."""
        from hypervisor.monitoring import status as monitoring

        current = monitoring.status(self.hv, batch or None)
        running = [
            without_empty(
                id=attempt.task,
                title=attempt.title[:100],
                worker=attempt.worker,
                seconds=(self.hv.now() - attempt.since) // 1000,
                last_line=attempt.last_line[:200],
            )
            for attempt in current.attempts[:MAX_RUNNING]
        ]
        return filled(
            Status,
            states=_states(current.stats),
            running=running,
            paused=[f"{pause.scope} {pause.name}: {pause.reason}" for pause in current.pauses],
            supervisor=current.supervisor is not None,
            host=current.host,
            checkpoint=current.checkpoint.number if current.checkpoint else None,
        )

    def get_index_stats(self, include_projects: bool = False) -> Counts:
        """Count all tasks by state; with projects, also the newest batches."""
        stats = queries.stats(self.hv)
        answer = Counts(total=stats.total, states=_states(stats))
        if include_projects:
            answer["projects"] = [
                {"batch": name, "id": id, "states": _states(queries.stats(self.hv, id))}
                for id, name, *_ in queries.batches(self.hv, MAX_PROJECTS)
            ]
        return answer

    def get_summary(
        self,
        batch: Batch,
        limit: Annotated[int, Field(ge=0, le=1000, description="tasks to list")] = 20,
        after: Annotated[str, Field(description="`next` of the previous page")] = "",
        states: Sequence[str] = (),
    ) -> Sum:
        """The results of a batch: counts, runtime, tokens, the outcome of each task, later stages
        and the reduce."""
        from hypervisor.batches.pipeline_status import pattern
        from hypervisor.batches.summary import summary
        from hypervisor.runs import results

        totals = summary(self.hv, batch, tasks=False)
        wanted = {state_called(state) for state in states}
        rows: list[dict[str, Any]] = []
        next_page = ""
        for report in results.reports(self.hv, totals.id) if limit else ():
            if report.id <= after or (wanted and report.state not in wanted):
                continue
            if len(rows) == limit:
                next_page = rows[-1]["task_id"]
                break
            rows.append(_row(report))
        return filled(
            Sum,
            batch=totals.batch,
            succeeded=totals.succeeded,
            states=totals.states,
            **_parts(pattern(self.hv, totals.id)),
            runtime_seconds=totals.runtime_seconds,
            tokens=totals.tokens,
            cost=totals.cost,
            workers=rows,
            next=next_page,
        )

    def read_output(
        self,
        id: Annotated[str, Field(description="task")],
        attempt: Annotated[int, Field(ge=0, description="0: the last")] = 0,
        tail: Annotated[int, Field(ge=1, le=100_000, description="bytes from the end")] = 4000,
    ) -> Text:
        """Read the end of the output of a task's attempt."""
        from hypervisor.runs import results

        task = self.hv.resolve(id)
        number = attempt or results.latest_output(self.hv, task)
        size = self.hv.outputs.size(task, number) or 0
        data = results.output(self.hv, task, number, max(size - tail, 0), tail)
        return Text(text=data.decode("utf-8", "replace"), size=size)

    def preflight(
        self,
        items: Annotated[Sequence[str], Field(max_length=10_000)],
        batch: str = "",
        type: str = "run",
        folder: str = ".",
    ) -> Advice:
        """Check items before running them: done, claimed, missing or conflicting; with advice."""
        from hypervisor.batches.preflight import preflight

        checked = preflight(
            self.hv,
            [Item(text, n) for n, text in enumerate(items, 1)],
            batch or None,
            type,
            root=self.registry.path(folder),
        )
        return Advice(
            headline=checked.headline,
            clear=checked.clear,
            advice=f"{checked.strategy}: {checked.advice}",
            findings=[finding.message for finding in checked.findings],
        )

    def steer_batch(
        self,
        batch: Batch,
        do: Literal["pause", "resume", "stop", "scale"],
        workers: Annotated[int, Field(ge=0, description="for scale")] = 0,
        reason: str = "",
    ) -> SteerAnswer:
        """Pause, resume or scale a batch, or stop its running tasks, which are then requeued."""
        from hypervisor.runs import control

        if do == "pause":
            is_new = control.pause(self.hv, batch, reason=reason)
            outcome = "paused" if is_new else "already paused"
        elif do == "resume":
            outcome = "resumed" if control.resume(self.hv, batch) else "was not paused"
            self.registry.look_after()
        elif do == "stop":
            control.pause(self.hv, batch, reason=reason or "stopped")
            stopped = control.stop_batch(self.hv, batch, reason)
            outcome = f"paused; stopping {pluralize(stopped, 'attempt')}"
        else:
            control.scale(self.hv, workers, batch)
            outcome = f"at most {pluralize(workers, 'worker')}"
        return SteerAnswer(batch=batch, message=outcome)

    def learn_parallelization(
        self,
        task_type: str,
        parallel_benefit: Annotated[
            float, Field(ge=-1, le=1, description="share of time saved; negative: harmful")
        ],
        notes: str = "",
        resource_cost: Annotated[dict[str, float] | None, Field(description="cpu, ram")] = None,
    ) -> Learned:
        """Record how much a type of task gains from running in parallel. It is shown when that
        type is spawned, and the adaptive strategy starts from it; measurements override it."""
        from hypervisor.learning import learn

        learn.learn_parallelization(self.hv, task_type, parallel_benefit, notes, resource_cost)
        return Learned(task_type=task_type, message="saved; the adaptive strategy starts from it")


def _how_to_wait(made: spawn.Spawned) -> str:
    batch = f"{made.batch} reduce" if made.reduce else made.batch
    wait = f"wait_for_events(cursor={made.cursor!r}, batch={batch!r}, until='finished')"
    if not made.reduce:
        return f"{wait}, then get_summary"
    return f"{wait}, then get_task(id={made.reduce!r}); get_summary covers the others"


def _states(stats: Stats) -> dict[str, int]:
    return {state: count for state, count in stats.states.items() if count}


def _parts(whole: Overview | None) -> dict[str, Any]:
    if whole is None:
        return {}
    stages = [without_empty(**stage._asdict()) for stage in whole.stages]
    return {"stages": stages, "reduce": _reduced(whole.reduce) if whole.reduce else None}


def _reduced(last: Reduced) -> dict[str, Any]:
    return without_empty(
        **last._replace(
            result=bounded(last.result), output=last.output[-MAX_BODY_LENGTH:]
        )._asdict()
    )


def _row(report: Any) -> dict[str, Any]:
    """A task as a row of the summary."""
    result = report.result
    outcome = result.get("summary") if isinstance(result, dict) else result
    return without_empty(
        task_id=report.id,
        title=report.title[:100],
        status=report.state,
        outcome=str(outcome)[:300] if outcome is not None else "",
        reason=(report.reason or "")[:300],
        commit=report.commit or (result.get("commit") if isinstance(result, dict) else None),
        target=report.target,
        unchanged=report.unchanged or None,
        attempts=report.attempts if report.attempts > 1 else None,
    )
