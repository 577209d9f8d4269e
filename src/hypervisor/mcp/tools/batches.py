"""The tools of a supervising agent: spawn, watch, wait, steer, decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from hypervisor.agents import spawn
from hypervisor.batches.pipeline_status import Overview, Reduced, pattern
from hypervisor.batches.preflight import preflight
from hypervisor.inputs.template import Item
from hypervisor.learning import learn
from hypervisor.mcp.answers import LONGEST_BODY, bounded, filled, without_empty
from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.tool import CHANGE, END, READ, RUN, Offer
from hypervisor.queue import look
from hypervisor.queue.task import Stats
from hypervisor.runs import run
from hypervisor.runs import status as looking

MOST_RUNNING = 20
MOST_IDS = 200  # list_tasks has all
MOST_PROJECTS = 20
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


class Steered(TypedDict):
    batch: str
    said: str


class Learned(TypedDict):
    task_type: str
    said: str


# What spawn_parallel_tasks takes, with what clients are told of it.
ToSpawn = Annotated[
    Sequence[str | dict[str, Any]],
    Field(
        description="descriptions, or {description, item, body, type, priority, key, "
        "after: [places from 1, keys], requires, exclusive, retries, data}",
        max_length=spawn.MOST_TASKS,
    ),
]
Branch = Annotated[str, Field(description="context that all inherit")]
Argv = Annotated[Sequence[str], Field(description="argv; {} is the item (else the description)")]
Function = Annotated[str, Field(description="package.module:function")]
Agent = Annotated[str, Field(description="claude, codex, gemini, …, auto")]
Prompt = Annotated[str, Field(description="for the agent; {item} {title} {body}")]
Permissions = Annotated[Literal["read-only", "edit"], Field(description="of the agent")]
Reduce = Annotated[
    str | dict[str, Any],
    Field(
        description="a last task: description, command|function|agent, prompt; its item is a file "
        "with all results"
    ),
]
Name = Annotated[str, Field(description="of the batch; same name and tasks add nothing")]
Seconds = Annotated[float, Field(ge=0, le=1e7, description="of an attempt")]
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
        reduce: Reduce = "",
        name: Name = "",
        folder: str = "",
        workers: Annotated[int, Field(ge=0)] = 0,
        timeout_seconds: Seconds = 0,
        json_results: JsonResults = False,
    ) -> Spawned:
        """Run tasks in parallel in the background; returns at once and they finish without you.
        Without command, function or agent they wait for claim_next_task."""
        how = spawn.How(
            tuple(command),
            function,
            agent,
            prompt,
            self.registry.path(folder),
            workers or None,
            int(timeout_seconds * 1000) or None,
            json_results,
            permissions,
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
            ids=list(made.ids[:MOST_IDS]),
            added=made.added,
            reduce=made.reduce,
            queued_because=list(made.why),
            cursor=made.cursor,
            how_to_wait=_how_to_wait(made),
        )

    def get_task_stats(self, batch: Batch = "") -> Status:
        """Where a batch or everything stands: counts, what runs, what is paused, host load."""
        found = looking.status(self.hv, batch or None)
        running = [
            without_empty(
                id=each.task,
                title=each.title[:100],
                worker=each.worker,
                seconds=(self.hv.now() - each.since) // 1000,
                last_line=each.last_line[:200],
            )
            for each in found.attempts[:MOST_RUNNING]
        ]
        return filled(
            Status,
            states=_states(found.stats),
            running=running,
            paused=[f"{each.scope} {each.name}: {each.reason}" for each in found.pauses],
            supervisor=found.supervisor is not None,
            host=found.host,
            checkpoint=found.checkpoint.number if found.checkpoint else None,
        )

    def get_index_stats(self, include_projects: bool = False) -> Counts:
        """Count all tasks by state; with projects, also the newest batches."""
        found = look.stats(self.hv)
        answer = Counts(total=found.total, states=_states(found))
        if include_projects:
            answer["projects"] = [
                {"batch": each.name, "id": each.id, "states": _states(look.stats(self.hv, each.id))}
                for each in look.batches(self.hv, MOST_PROJECTS)
            ]
        return answer

    def get_summary(
        self,
        batch: Batch,
        limit: Annotated[int, Field(ge=0, le=1000, description="tasks to list")] = 20,
        after: Annotated[str, Field(description="`next` of the page before")] = "",
        states: Sequence[str] = (),
    ) -> Sum:
        """What came of a batch: counts, runtime, tokens, and each task with its outcome; the
        stages that follow on it, and its reduce."""
        found = run.summary(self.hv, batch, tasks=False)
        rows: list[dict[str, Any]] = []
        further = ""
        for each in run.reports(self.hv, found.id) if limit else ():
            if each.id <= after or (states and each.state not in states):
                continue
            if len(rows) == limit:
                further = rows[-1]["task_id"]
                break
            rows.append(_row(each))
        return filled(
            Sum,
            batch=found.batch,
            succeeded=found.succeeded,
            states=found.states,
            **_parts(pattern(self.hv, found.id)),
            runtime_seconds=found.runtime_seconds,
            tokens=found.tokens,
            cost=found.cost,
            workers=rows,
            next=further,
        )

    def read_output(
        self,
        id: Annotated[str, Field(description="task")],
        attempt: Annotated[int, Field(ge=0, description="0: the last")] = 0,
        tail: Annotated[int, Field(ge=1, le=100_000, description="bytes from the end")] = 4000,
    ) -> Text:
        """The end of what a task's attempt printed."""
        task = self.hv.resolve(id)
        number = attempt or run.latest_output(self.hv, task)
        size = self.hv.outputs.size(task, number) or 0
        data = run.output(self.hv, task, number, max(size - tail, 0), tail)
        return Text(text=data.decode("utf-8", "replace"), size=size)

    def preflight(
        self,
        items: Annotated[Sequence[str], Field(max_length=10_000)],
        batch: str = "",
        type: str = "run",
        folder: str = ".",
    ) -> Advice:
        """Look at items before running them: done, claimed, missing, in conflict; with advice."""
        found = preflight(
            self.hv,
            [Item(text, n) for n, text in enumerate(items, 1)],
            batch or None,
            type,
            root=self.registry.path(folder),
        )
        return Advice(
            headline=found.headline,
            clear=found.clear,
            advice=f"{found.strategy}: {found.advice}",
            findings=[each.said for each in found.findings],
        )

    def steer_batch(
        self,
        batch: Batch,
        do: Literal["pause", "resume", "stop", "scale"],
        workers: Annotated[int, Field(ge=0, description="for scale")] = 0,
        reason: str = "",
    ) -> Steered:
        """Pause, resume or scale a batch, or stop what runs of it (its tasks go back)."""
        if do == "pause":
            said = "paused" if run.pause(self.hv, batch, reason=reason) else "was paused already"
        elif do == "resume":
            said = "goes on" if run.resume(self.hv, batch) else "was not paused"
            self.registry.look_after()
        elif do == "stop":
            run.pause(self.hv, batch, reason=reason or "stopped")
            said = f"paused; {run.stop_batch(self.hv, batch, reason)} attempts are being stopped"
        else:
            run.scale(self.hv, workers, batch)
            said = f"at most {workers} workers"
        return Steered(batch=batch, said=said)

    def learn_parallelization(
        self,
        task_type: str,
        parallel_benefit: Annotated[
            float, Field(ge=-1, le=1, description="share of time saved; negative: harmful")
        ],
        notes: str = "",
        resource_cost: Annotated[dict[str, float] | None, Field(description="cpu, ram")] = None,
    ) -> Learned:
        """Keep what you learned about running a type of task in parallel. It is shown to whoever
        spawns that type, and the strategy adaptive begins with it; evidence overrides it."""
        learn.learn_parallelization(self.hv, task_type, parallel_benefit, notes, resource_cost)
        return Learned(task_type=task_type, said="kept; the strategy adaptive begins with it")


def _how_to_wait(made: spawn.Spawned) -> str:
    batch = f"{made.batch} reduce" if made.reduce else made.batch
    wait = f"wait_for_events(cursor={made.cursor!r}, batch={batch!r}, until='finished')"
    if not made.reduce:
        return f"{wait}, then get_summary"
    return f"{wait}, then get_task(id={made.reduce!r}); get_summary tells of the others"


def _states(stats: Stats) -> dict[str, int]:
    return {state: count for state, count in stats.states.items() if count}


def _parts(whole: Overview | None) -> dict[str, Any]:
    if whole is None:
        return {}
    stages = [without_empty(**each._asdict()) for each in whole.stages]
    return {"stages": stages, "reduce": _reduced(whole.reduce) if whole.reduce else None}


def _reduced(last: Reduced) -> dict[str, Any]:
    return without_empty(
        **last._replace(result=bounded(last.result), output=last.output[-LONGEST_BODY:])._asdict()
    )


def _row(report: Any) -> dict[str, Any]:
    """A task in the words of a summary."""
    result = report.result
    said = result.get("summary") if isinstance(result, dict) else result
    return without_empty(
        task_id=report.id,
        title=report.title[:100],
        status=report.state,
        outcome=str(said)[:300] if said is not None else "",
        reason=(report.reason or "")[:300],
        commit=result.get("commit") if isinstance(result, dict) else None,
        attempts=report.attempts if report.attempts > 1 else None,
    )
