"""The run spec of a batch, and values that describe running and finished tasks."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.template import Template, parse
from hypervisor.queue.lease import Worker
from hypervisor.queue.lifecycle import FIRST_DELAY
from hypervisor.queue.task import Json
from hypervisor.resources.limits import Limits

AUTO = "auto"  # instead of an agent: the routing chooses, per task

Strategy = Literal["auto", "parallel", "sequential", "adaptive"]
Gate = Literal["each", "first", "none"]  # the chunks after which a person decides
WriteBack = Literal["none", "receipts", "status"]  # into task files; "status": receipts as well
Stdin = Literal["closed", "item"]
ResultFormat = Literal["none", "json"]  # "json": the last line of the output is the result
Permissions = Literal["read-only", "edit", "full"]
Mode = Literal["push", "pull"]  # "pull": the agent claims by itself
# "scratch": a copy for each attempt, kept as a patch; "clone": of the git repository;
# "": chosen when the batch is submitted (check_spec.py)
Workspace = Literal["", "project", "scratch", "clone"]
MergeMode = Literal[
    "", "branch", "local", "push", "pr"
]  # where finished work is merged; "": nowhere
MergeStrategy = Literal["merge", "squash", "rebase"]
PullRequestPer = Literal["batch", "task"]

# What happens to an attempt when its host cannot reach the store: paused and then stopped, stopped
# earlier, or continued, in which case its result may come too late and is only kept.
OnCut = Literal["freeze", "stop", "finish"]

ON_CUTS: tuple[OnCut, ...] = get_args(OnCut)
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
GATES: tuple[Gate, ...] = get_args(Gate)
WRITE_BACKS: tuple[WriteBack, ...] = get_args(WriteBack)
STDINS: tuple[Stdin, ...] = get_args(Stdin)
RESULT_FORMATS: tuple[ResultFormat, ...] = get_args(ResultFormat)
PERMISSIONS: tuple[Permissions, ...] = get_args(Permissions)
MODES: tuple[Mode, ...] = get_args(Mode)
WORKSPACES: tuple[Workspace, ...] = get_args(Workspace)
MERGE_MODES: tuple[MergeMode, ...] = get_args(MergeMode)
MERGE_STRATEGIES: tuple[MergeStrategy, ...] = get_args(MergeStrategy)


class CommandSpec(NamedTuple):
    """A command, run once for each task."""

    argv: tuple[str, ...]  # words with placeholders
    shell: bool = False
    stdin: Stdin = "closed"
    clean_env: bool = False
    result: ResultFormat = "none"


class FunctionSpec(NamedTuple):
    """A Python function, called once for each task."""

    name: str  # package.module:function
    python: str | None = None  # the interpreter; None: our own
    clean_env: bool = False
    result: ResultFormat = "none"


class AgentSpec(NamedTuple):
    """An agent that works on the tasks, and what it may do and cost."""

    name: str  # of its profile; "auto": the routing chooses, per task
    agents: tuple[str, ...] = ()  # all that may work: the agent, those routed to, the fallback
    fallback: str = ""  # the agent to use while another one is rate-limited
    prompt: str = ""  # the template, whole
    mode: Mode = "push"
    pull: int = 10  # the most tasks that an agent claims by itself
    permissions: Permissions = "edit"
    allow: tuple[str, ...] = ()  # tools that are allowed in addition to the permissions
    model: str = ""
    turns: int | None = None
    task_budget: int | None = None  # millionths of a US dollar …
    budget: int | None = None  # … for the whole batch
    task_tokens: int | None = None
    tokens: int | None = None
    schema: str = ""  # JSON Schema of the `data` in an agent's report, as text
    gateway: bool | None = (
        None  # whether it calls its model through the gateway; None: as configured
    )


WorkSpec = CommandSpec | FunctionSpec | AgentSpec


class GitSpec(NamedTuple):
    """How clones of a repository are made, and what happens to the work in them."""

    base: str = ""  # the revision to start from; once submitted, the id of a commit
    sparse: tuple[str, ...] = ()  # folders to check out; none: everything
    include_dirty: bool = False  # start from the checkout with its uncommitted changes
    continues: bool = False  # a retry continues with what the last attempt left
    merge: MergeMode = ""
    target: str = ""  # the branch to merge into; "": hv/BATCH, or the one that is checked out
    strategy: MergeStrategy = "merge"
    verify: tuple[str, ...] = ()  # commands that must succeed before work lands
    pr_per: PullRequestPer = "batch"  # with merge "pr"
    # Of a batch that other hosts may work on without the repository; "" if they need it.
    host: str = ""  # that has the repository and merges
    root: str = ""  # of the repository there …
    hub: str = ""  # … and of its hub
    exchange: str = ""  # where hosts hand each other commits: a URL


class RunSpec(NamedTuple):
    """How the tasks of a batch are run: the command, function or agent, the folder and the limits.

    It is stored with the batch, so any supervisor can continue it. The environment is not part of
    it: it may contain secrets, which the store never sees.
    """

    cwd: str
    work: WorkSpec
    workers: int | None = None  # None: as many as the host's cores
    claim: int | None = None  # how many tasks a worker claims at once; None: as it pays
    fail_fast: bool = False
    retry_delay: int = FIRST_DELAY  # milliseconds before the first retry, doubled for each more
    strategy: Strategy = "auto"
    limits: Limits = Limits()  # of an attempt
    gate: Gate = "none"
    write_back: WriteBack = "none"
    propose: bool = False  # workers should propose changes, not make them
    skill: str = ""  # the recipe that the batch was made from
    workspace: Workspace = ""
    git: GitSpec = GitSpec()
    on: tuple[str, ...] = ()  # labels of the hosts that may run it; its tasks require them, too
    per_host: int | None = None  # the most workers on one host
    pack: bool = False  # fill one host after another, instead of all alike
    on_cut: OnCut | None = None  # when a host cannot reach the store; None: as configured there
    sandbox: str = ""  # a level; "": as configured

    @property
    def command(self) -> CommandSpec | None:
        return self.work if isinstance(self.work, CommandSpec) else None

    @property
    def function(self) -> FunctionSpec | None:
        return self.work if isinstance(self.work, FunctionSpec) else None

    @property
    def agent(self) -> AgentSpec | None:
        return self.work if isinstance(self.work, AgentSpec) else None


# The store keeps a spec as one flat object. In it the first field of each kind of work has the name
# of the kind, which tells the kinds apart; the other fields keep their names.
KINDS: dict[str, type[WorkSpec]] = {
    "command": CommandSpec,
    "function": FunctionSpec,
    "agent": AgentSpec,
}
Names = Mapping[str, str]  # of fields, to their names in the store
WORK: dict[type[WorkSpec], Names] = {
    kind: {field: field for field in kind._fields} | {kind._fields[0]: name}
    for name, kind in KINDS.items()
}
LIMITS: Names = {field: field for field in Limits._fields}
GIT: Names = {field: f"git_{field}" for field in GitSpec._fields}
PARTS = ("work", "limits", "git")
COMMON: Names = {field: field for field in RunSpec._fields if field not in PARTS}
STORED = frozenset(
    name for names in (COMMON, LIMITS, GIT, *WORK.values()) for name in names.values()
)


def template_of(command: CommandSpec) -> Template:
    """The command with its placeholders. A command that reads the item from stdin does not get it
    as an argument."""
    return parse(command.argv, command.shell, append=command.stdin != "item")


def agent_of(spec: RunSpec) -> AgentSpec:
    """The agent of a batch that is known to have one."""
    if spec.agent is None:
        raise InvalidInput("this batch has no agent.")
    return spec.agent


def spec_from(data: Json) -> RunSpec:
    """The stored spec of a batch. Unknown fields, from a newer version, are an error.

    Earlier versions also stored options that do not apply to the kind of work: these are ignored.
    """
    kinds = [name for name in KINDS if data.get(name)] if isinstance(data, dict) else []
    if not isinstance(data, dict) or not {"cwd"} <= set(data) <= STORED or len(kinds) > 1:
        raise InvalidInput(
            "this batch was created by another version of Hypervisor; create it again."
        )
    kind = KINDS[kinds[0]] if kinds else CommandSpec
    data = {"command": (), **data}
    work = kind(**_stored(data, WORK[kind]))
    limits, git = Limits(**_stored(data, LIMITS)), GitSpec(**_stored(data, GIT))
    return RunSpec(work=work, limits=limits, git=git, **_stored(data, COMMON))


def spec_data(spec: RunSpec) -> Json:
    """The spec as it is stored: only fields that differ from their defaults."""
    return {
        "cwd": spec.cwd,
        **_changed(spec.work, WORK[type(spec.work)]),
        **_changed(spec, COMMON),
        **_changed(spec.limits, LIMITS),
        **_changed(spec.git, GIT),
    }


def _stored(data: Mapping[str, Any], names: Names) -> dict[str, Any]:
    return {
        field: tuple(data[name]) if isinstance(data[name], list) else data[name]
        for field, name in names.items()
        if name in data
    }


def _changed(part: RunSpec | WorkSpec | Limits | GitSpec, names: Names) -> dict[str, Any]:
    defaults, values = part._field_defaults, part._asdict()
    return {
        name: list(values[field]) if isinstance(values[field], tuple) else values[field]
        for field, name in names.items()
        if field not in defaults or values[field] != defaults[field]
    }


class Running(NamedTuple):
    """A claimed task and its worker."""

    task: str
    title: str
    type: str
    priority: str
    batch: str
    attempt: int
    claimed_at: int
    worker: Worker


class ActiveWorker(NamedTuple):
    """A worker process that serves a batch."""

    worker: Worker
    batch: str
    started_at: int
    agent: str = ""


class Ready(NamedTuple):
    """A batch with tasks that could be claimed now."""

    batch: str
    rank: int
    priority: str
    types: tuple[str, ...]
    tasks: int  # how many, up to a bound
    requires: tuple[str, ...] = ()  # what it takes to claim them, for no particular worker

    def joined(self, later: "Ready") -> "Ready":
        """Both combined, with the rank and priority of this one."""
        types = tuple(dict.fromkeys((*self.types, *later.types)))
        return self._replace(types=types, tasks=self.tasks + later.tasks, requires=())


class WorkingHost(NamedTuple):
    """A host with workers, since its last boot."""

    host: str
    boot: str
    workers: int
    since: int
    seen_at: int


class TaskReport(NamedTuple):
    """The state of a task, with the total usage of its attempts."""

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
    cost_micros: int | None = None  # None: no agent worked on it, or unknown
    estimated: bool = False
    outcome: str = ""  # of the last agent session
    commit: str = ""  # that its work was merged as, in a batch that merges …
    target: str = ""  # … and where
    unchanged: bool = False  # done in a clone, without any change


class Output(NamedTuple):
    """The stored output of an attempt."""

    task: str
    attempt: int
    size: int
    changed_at: int


class TreeUsage(NamedTuple):
    """The usage of an attempt's process tree. All figures only grow, except for the memory."""

    cpu: float
    memory: int
    written: int
    processes: int
