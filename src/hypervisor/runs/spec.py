"""Running a batch: how its tasks are run, and what is seen while and after they run."""

from typing import Literal, NamedTuple

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.template import Template, parse
from hypervisor.queue.lease import AttemptResult, Worker
from hypervisor.queue.task import Json

STRATEGIES = ("auto", "parallel", "sequential", "adaptive")
ALL = "all"
BATCH = "batch"
TYPE = "type"
LISTS = ("command", "agents", "allow")  # of a RunSpec


class RunSpec(NamedTuple):
    """How each task of a batch is run: a command or a Python function, where and within what.

    Kept with the batch, so that any supervisor can go on with it. The environment
    is not part of it: it may hold secrets, which the store never sees.
    """

    cwd: str
    command: tuple[str, ...] = ()
    function: str | None = None
    shell: bool = False
    python: str | None = None
    stdin: str = "closed"  # or "item"
    clean_env: bool = False
    workers: int | None = None  # None: as many as the host's cores
    claim: int | None = None  # how many tasks a worker claims at once; None: as it pays
    fail_fast: bool = False
    strategy: str = "auto"
    time: int | None = None  # limits of an attempt: milliseconds …
    memory: int | None = None  # … bytes …
    silence: int | None = None  # … milliseconds …
    output: int | None = None  # … bytes
    result: str = "none"  # or "json": the last line that a command prints is its result
    gate: str = "none"  # checkpoints: after each chunk, after the first, none
    write_back: str = "none"  # what goes into task files: nothing, "receipts", "status" with them
    propose: bool = False  # workers are told to propose changes, not to make them
    agent: str = ""  # the profile that works on the tasks; "auto": the routing chose, per task
    agents: tuple[str, ...] = ()  # all that may: the agent, those routed to, the fallback
    fallback: str = ""  # the agent to use while another one is rate-limited
    prompt: str = ""  # the template, whole
    mode: str = "push"  # or "pull": the agent claims by itself, up to `pull` tasks
    pull: int = 10
    permissions: str = "edit"
    allow: tuple[str, ...] = ()  # tools of the agent that are allowed beyond the mode's
    model: str = ""
    turns: int | None = None
    workspace: str = "project"  # or "scratch": a copy for each attempt, its changes kept as a patch
    task_budget: int | None = None  # millionths of the currency …
    budget: int | None = None  # … for the whole batch
    task_tokens: int | None = None
    tokens: int | None = None
    schema: str = ""  # JSON Schema of the `data` in an agent's report, as text
    skill: str = ""  # the recipe that the batch was made from


def template_of(spec: RunSpec) -> Template:
    """The command with its placeholders. One that reads the item does not get it as a word."""
    return parse(spec.command, spec.shell, append=spec.stdin != "item")


def spec_from(data: Json) -> RunSpec:
    """The spec that a batch keeps; fields of a newer version are an error, not a guess."""
    if not isinstance(data, dict) or not {"cwd"} <= set(data) <= set(RunSpec._fields):
        raise InvalidInput("this batch was declared by another version; declare it again.")
    lists = {name: tuple(data[name]) for name in LISTS if name in data}
    return RunSpec(**{**data, **lists})


def spec_data(spec: RunSpec) -> Json:
    """The spec as it is kept: only what differs from the defaults."""
    defaults = RunSpec._field_defaults
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in spec._asdict().items()
        if name not in defaults or value != defaults[name]
    }


class Pause(NamedTuple):
    """What nobody may claim for now: everything, a batch, or a type."""

    scope: str
    name: str
    reason: str
    actor: str
    at: int


# What becomes of the task of a stopped attempt. People ask for the first three. "lost": the claim
# has ended; "limit": a failure, tried again if it may be; "classify": how the agent ended decides.
StopAction = Literal["cancel", "fail", "release", "lost", "limit", "classify"]


class Stop(NamedTuple):
    """A running attempt that must end, and what then becomes of its task."""

    task: str
    attempt: int
    next: StopAction
    reason: str
    actor: str


class Running(NamedTuple):
    """A claimed task and who works on it."""

    task: str
    title: str
    type: str
    priority: str
    batch: str
    attempt: int
    claimed_at: int
    worker: Worker


class AtWork(NamedTuple):
    """A worker process that serves a batch."""

    worker: Worker
    batch: str
    started_at: int
    agent: str = ""


class Ready(NamedTuple):
    """A batch with tasks that could be claimed now, the best of them first."""

    batch: str
    rank: int
    priority: str
    types: tuple[str, ...]
    tasks: int  # how many, up to a bound
    requires: tuple[str, ...] = ()  # what it takes to claim them, if nobody in particular asked

    def joined(self, later: "Ready") -> "Ready":
        """Both together, as the better of them."""
        types = tuple(dict.fromkeys((*self.types, *later.types)))
        return self._replace(types=types, tasks=self.tasks + later.tasks, requires=())


LEAST_ROOM = 1 << 20  # bytes: with less left on the disk nothing is started


def no_room_text(where: str) -> str:
    return f"no space left on the disk of {where}: nothing is started until there is room"


class TaskReport(NamedTuple):
    """How one task of a batch stands, with what its attempts cost together."""

    id: str
    title: str
    state: str
    reason: str | None
    result: Json
    attempts: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    exit_code: int | None
    chunk: int = 0
    tokens: int = 0  # of agents
    cost_micros: int | None = None  # None: no agent worked on it, or nobody knows
    estimated: bool = False
    outcome: str = ""  # how the last run of an agent came out


class Output(NamedTuple):
    """The kept output of an attempt."""

    task: str
    attempt: int
    size: int
    changed_at: int


class Leftovers(NamedTuple):
    """What a dead worker left: verdicts that the store may not know, and what was running."""

    verdicts: tuple[AttemptResult, ...]
    running: str | None  # the token
    leader: tuple[int, int] | None  # pid and start of its first process
    group: str | None  # the worker's cgroup


class Vital(NamedTuple):
    """How an attempt's tree is doing: figures that only grow, but for the memory."""

    cpu: float
    memory: int
    written: int
    processes: int
