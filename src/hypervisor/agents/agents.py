"""The agents of this host: whether they can work, and how one is chosen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hypervisor.agents.installed import Calls
from hypervisor.agents.routing import DEFAULTS, lacking, route
from hypervisor.agents.running_status import cooling_down, live_sessions
from hypervisor.core import validate
from hypervisor.core.errors import AgentNotReady, InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import closest
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask, Task
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import (
    AUTO,
    AgentSpec,
    Permissions,
    RunSpec,
    agent_of,
)

if TYPE_CHECKING:
    from hypervisor.agents.cooldown import Cooldown
    from hypervisor.agents.gateway.access import CallWay
    from hypervisor.agents.installed import InstalledAgent, Preview, ProbeResult
    from hypervisor.agents.profile import AgentProfile

PROBE_SECONDS = 120.0
LABEL = "agent:"  # a capability that says which agent a task is for


class AgentView(NamedTuple):
    """An agent as `hv agents` shows it. `memory` is the expected need, in bytes."""

    name: str
    program: str
    path: str
    version: str
    provider: str
    verified: bool
    ready: bool
    why: str  # why it is not ready, or a hint
    install: str
    memory: int
    learned: bool  # the memory was measured here
    workers: int | None
    running: int
    cooldowns: tuple[Cooldown, ...]
    capabilities: tuple[str, ...]
    resumes: bool
    sandbox: str
    calls: Calls  # how its model is called
    calls_text: str  # the same in words, with the reason


def agents(hv: Context, name: str | None = None) -> tuple[AgentView, ...]:
    """List the agents with their version, memory and worker limit, and whether each is ready."""
    profiles = hv.agent_settings.profiles
    chosen = [profile_of(hv, name)] if name is not None else list(profiles.values())
    cooldowns = list(cooling_down(hv, hv.now())) if hv.has_store else []
    running = _running(hv)
    installed = _find_all(hv, chosen)
    return tuple(
        _view(hv, profile, installed[profile.name], cooldowns, running) for profile in chosen
    )


def check_agent(hv: Context, name: str, seconds: float = PROBE_SECONDS) -> ProbeResult:
    """Send an agent a one-word prompt to check its program, login and model."""
    profile = profile_of(hv, name)
    if not hv.agent_programs.find(profile).path:
        _refuse_unready(hv, profile)
    allowed: Mapping[Permissions, object] = profile.permissions or {"read-only": ()}
    permissions = "read-only" if "read-only" in allowed else next(iter(allowed))
    spec = AgentSpec(name, permissions=permissions)
    return hv.agent_programs.probe(profile, spec, seconds)


def find_agent(hv: Context, name: str) -> InstalledAgent:
    """The path and version of its program; needs no store."""
    return hv.agent_programs.find(profile_of(hv, name))


def profile_of(hv: Context, name: str) -> AgentProfile:
    """The profile of that name. InvalidInput lists the known ones."""
    validate.name("the agent", name)
    profiles: Mapping[str, AgentProfile] = hv.agent_settings.profiles
    if name in profiles:
        return profiles[name]
    if similar := closest(name, profiles):
        raise InvalidInput(
            f"unknown agent {name!r}; did you mean {similar}? `hv agents` lists all agents."
        )
    raise InvalidInput(
        f"unknown agent {name!r}; use one of {', '.join(profiles)}, or add [agents.{name}] to "
        f"config.toml."
    )


def equipped_spec(hv: Context, spec: AgentSpec) -> AgentSpec:
    """The spec with all agents that may be used. AgentNotReady: the one it names cannot be."""
    if spec.name == AUTO:
        usable = tuple(usable_agents(hv))
        if not usable:
            raise AgentNotReady(
                "no agent is ready on this host; `hv agents` shows why. Nothing was started."
            )
        if spec.fallback:
            _refuse_unready(hv, profile_of(hv, spec.fallback))
        return spec._replace(agents=usable)
    names = tuple(dict.fromkeys(name for name in (spec.name, spec.fallback) if name))
    for name in names:
        _refuse_unready(hv, profile_of(hv, name))
    return spec._replace(agents=names)


def assign_agents(
    hv: Context, spec: RunSpec, tasks: Iterable[NewTask]
) -> tuple[RunSpec, Iterable[NewTask]]:
    """The spec of a batch with its agents, and its tasks, labeled with their agents if they are
    not all the same."""
    agent = agent_of(spec)
    if not agent.agents:
        agent = equipped_spec(hv, agent)
    labelled = map(Router(hv, agent).labelled, tasks) if agent.name == AUTO else tasks
    return spec._replace(work=agent), labelled


def usable_agents(hv: Context) -> dict[str, AgentProfile]:
    """The agents that are installed here and logged in."""
    profiles = hv.agent_settings.profiles
    installed = _find_all(hv, profiles.values())
    return {
        name: profiles[name]
        for name, program in installed.items()
        if program.path and not program.problem
    }


def _find_all(hv: Context, profiles: Collection[AgentProfile]) -> dict[str, InstalledAgent]:
    """In parallel: some programs take seconds to print their version."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        programs = pool.map(hv.agent_programs.find, profiles)
        return dict(zip((profile.name for profile in profiles), programs, strict=True))


class Router:
    """Chooses the agent for each task: the named one, or by the routing in config.toml."""

    def __init__(self, hv: Context, spec: AgentSpec) -> None:
        self._spec, self._settings = spec, hv.agent_settings
        self._capabilities = hv.settings.capabilities
        named = (spec.name, spec.fallback)
        self._usable: Mapping[str, AgentProfile] = (
            usable_agents(hv)
            if spec.name == AUTO
            else {name: profile_of(hv, name) for name in named if name}
        )

    def agent(self, task: NewTask) -> str:
        """The name of the agent; "" if none has the required capabilities."""
        settings = self._settings
        if self._spec.name != AUTO:
            return "" if self.lacking(task) else self._spec.name
        default = next(iter(self._usable), "")
        rules = (*settings.routes, *DEFAULTS)
        capabilities = self._capabilities
        return route(task, rules, default, self._usable, capabilities, prices=settings.prices)

    def lacking(self, task: NewTask) -> tuple[str, ...]:
        """The required capabilities that no agent here has."""
        return lacking(task, self._usable.values(), self._capabilities)

    def labelled(self, task: NewTask) -> NewTask:
        """The task, labeled with its agent if not all tasks have the same."""
        if self._spec.name != AUTO or any(name.startswith(LABEL) for name in task.requires):
            return task
        chosen = self.agent(task)
        return task._replace(requires=(*task.requires, LABEL + chosen)) if chosen else task


def preview(hv: Context, spec: RunSpec, task: NewTask, item: Item) -> Preview:
    """How an attempt at an item would be started. Nothing is started or left behind."""
    agent = agent_of(spec)
    name = Router(hv, agent).agent(task) or next(iter(agent.agents))
    profile = profile_of(hv, name)
    start = hv.agent_programs.preview(profile, spec, _as_if_added(task), item)
    way = hv.agent_programs.call_way(profile, hv.agent_settings, agent)
    return start._replace(calls=way.calls, calls_text=str(way))


def ways_of(hv: Context, spec: AgentSpec) -> dict[str, CallWay]:
    """How each agent of a run calls its model."""
    find, settings = hv.agent_programs.call_way, hv.agent_settings
    return {name: find(profile_of(hv, name), settings, spec) for name in spec.agents}


def _as_if_added(task: NewTask) -> Task:
    unset: dict[str, Any] = dict.fromkeys(Task._fields)
    counts = ("failures", "crashes", "open_dependencies", "created_at", "updated_at")
    fields = {name: value for name, value in task._asdict().items() if name in Task._fields}
    own = {"id": "0" * 12, "state": "active", "batch": "", "attempts": 1, "start_at": None}
    return Task(**{**unset, **dict.fromkeys(counts, 0), **fields, **own})


def _refuse_unready(hv: Context, profile: AgentProfile) -> None:
    program = hv.agent_programs.find(profile)
    if not program.path:
        hint = f" Install it: {profile.install}." if profile.install else ""
        raise AgentNotReady(
            f"{profile.name} is not installed: {profile.program} is not on PATH.{hint} "
            "Nothing was started."
        )
    if program.problem:
        raise AgentNotReady(f"{profile.name} is not ready: {program.problem}. Nothing was started.")


def _view(
    hv: Context,
    profile: AgentProfile,
    program: InstalledAgent,
    cooldowns: list[Cooldown],
    running: Mapping[str, int],
) -> AgentView:
    learned = hv.store.read(runs_sql.memory_peak, agent=profile.name) if hv.has_store else None
    own_cooldowns = tuple(cooldown for cooldown in cooldowns if applies_to(cooldown, profile))
    way = hv.agent_programs.call_way(profile, hv.agent_settings)
    problem = "not installed" if not program.path else program.problem
    return AgentView(
        profile.name,
        profile.program,
        program.path,
        program.version,
        profile.provider,
        profile.verified,
        bool(program.path) and not program.problem and not own_cooldowns,
        problem,
        profile.install,
        int(learned) if learned else profile.memory,
        bool(learned),
        profile.workers,
        running.get(profile.name, 0),
        own_cooldowns,
        profile.capabilities,
        profile.can_resume,
        profile.own_sandbox,
        way.calls,
        str(way),
    )


def applies_to(cooldown: Cooldown, profile: AgentProfile) -> bool:
    """Whether the cooldown is for an account of the agent's provider."""
    return cooldown.account.partition(":")[0] == (profile.provider or profile.name)


def _running(hv: Context) -> dict[str, int]:
    counts: dict[str, int] = {}
    for session in live_sessions(hv) if hv.has_store else ():
        counts[session.agent] = counts.get(session.agent, 0) + 1
    return counts
