"""The agents of this host: which there are, whether they can work, and how one is chosen."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.installed import Found, Preview, Probed
from hypervisor.agents.profile import MODES, READ_ONLY, AgentProfile
from hypervisor.agents.routing import AUTO, DEFAULTS, lacking, route
from hypervisor.agents.running_status import cooling_down, live_sessions
from hypervisor.core import validate
from hypervisor.core.errors import AgentNotReady, InvalidInput
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask, Task
from hypervisor.runs.spec import RunSpec
from hypervisor.store import settings as store_settings

PROBE_SECONDS = 120.0
MOST_PULLED = 1_000
LONGEST_PROMPT = 200_000
LABEL = "agent:"  # a capability that says which agent a task is for


class AgentView(NamedTuple):
    """An agent as `hv agents` shows it. `memory` is what one is expected to need, in bytes."""

    name: str
    program: str
    path: str
    version: str
    provider: str
    verified: bool
    ready: bool
    why: str  # it is not ready, or what is worth knowing
    install: str
    memory: int
    learned: bool  # the memory was measured here
    workers: int | None
    running: int
    brakes: tuple[Cooldown, ...]
    capabilities: tuple[str, ...]
    resumes: bool
    sandbox: str


def agents(hv: Context, name: str | None = None) -> tuple[AgentView, ...]:
    """List the agents: installed or not, version, memory, how many may run, ready or why not."""
    profiles = hv.settings.agents
    wanted = [profile_of(hv, name)] if name is not None else list(profiles.values())
    brakes = list(cooling_down(hv, hv.now())) if hv.has_store else []
    running = _running(hv)
    found = _find_all(hv, wanted)
    return tuple(_view(hv, profile, found[profile.name], brakes, running) for profile in wanted)


def check_agent(hv: Context, name: str, seconds: float = PROBE_SECONDS) -> Probed:
    """Let an agent answer one word, to see that program, login and model work."""
    profile = profile_of(hv, name)
    if not hv.agent_programs.find(profile).path:
        _refuse_unready(hv, profile)
    modes = profile.permissions or {READ_ONLY: ()}
    mode = READ_ONLY if READ_ONLY in modes else next(iter(modes))
    spec = RunSpec(cwd=".", agent=name, permissions=mode)
    return hv.agent_programs.probe(profile, spec, seconds)


def find_agent(hv: Context, name: str) -> Found:
    """Where its program is, and which version; needs no store."""
    return hv.agent_programs.find(profile_of(hv, name))


def profile_of(hv: Context, name: str) -> AgentProfile:
    """The profile of that name. InvalidInput says which there are."""
    validate.name("the agent", name)
    profiles: Mapping[str, AgentProfile] = hv.settings.agents
    if name in profiles:
        return profiles[name]
    from difflib import get_close_matches

    near = get_close_matches(name, profiles, 1)
    if near:
        raise InvalidInput(f"no agent {name!r}: did you mean {near[0]}? `hv agents` lists them.")
    raise InvalidInput(
        f"no agent {name!r}: there are {', '.join(profiles)}; "
        f"[agents.{name}] in config.toml makes one."
    )


def check_agent_spec(spec: RunSpec) -> None:
    """InvalidInput: what a batch says about its agent makes no sense."""
    for what, value, allowed in (
        ("mode", spec.mode, ("push", "pull")),
        ("permissions", spec.permissions, MODES),
        ("workspace", spec.workspace, ("project", "scratch")),
    ):
        if value not in allowed:
            raise InvalidInput(f"{what} is unknown: use one of {', '.join(allowed)}.")
    validate.number("the number of tasks to pull", spec.pull, 1, MOST_PULLED)
    for what, number in (
        ("the number of turns", spec.turns),
        ("the budget", spec.budget),
        ("the budget of a task", spec.task_budget),
        ("the number of tokens", spec.tokens),
        ("the number of tokens of a task", spec.task_tokens),
    ):
        if number is not None:
            validate.number(what, number, 1, 2**53)
    validate.text("the prompt", spec.prompt, LONGEST_PROMPT)
    validate.text("the model", spec.model, 200)
    validate.keys("allowed tools", spec.allow)
    if spec.fallback and spec.fallback == spec.agent:
        raise InvalidInput("the fallback must be another agent.")
    if spec.mode == "pull":
        _check_pull(spec)
    if spec.schema:
        from hypervisor.queue.result_schema import check_schema

        check_schema(spec.schema)


def _check_pull(spec: RunSpec) -> None:
    """An agent that claims by itself works in one folder, and what it uses is of no one task."""
    wrong = {
        "--scratch": spec.workspace == "scratch",
        "--schema": spec.schema,
        "--task-budget": spec.task_budget is not None,
        "--task-tokens": spec.task_tokens is not None,
        "--fallback with --agent auto": spec.fallback and spec.agent == AUTO,
    }
    for option, is_given in wrong.items():
        if is_given:
            raise InvalidInput(f"{option} needs an agent for each task: leave out --pull.")


def equipped_spec(hv: Context, spec: RunSpec) -> RunSpec:
    """The spec with all agents that may work on it. AgentNotReady: the one it names cannot."""
    if spec.agent == AUTO:
        usable = tuple(usable_agents(hv))
        if not usable:
            raise AgentNotReady(
                "no agent can work here: `hv agents` says why, for each. Nothing was started."
            )
        if spec.fallback:
            _refuse_unready(hv, profile_of(hv, spec.fallback))
        return spec._replace(agents=usable)
    names = tuple(dict.fromkeys(name for name in (spec.agent, spec.fallback) if name))
    for name in names:
        _refuse_unready(hv, profile_of(hv, name))
    return spec._replace(agents=names)


def usable_agents(hv: Context) -> dict[str, AgentProfile]:
    """The agents that are installed here and logged in."""
    profiles = hv.settings.agents
    found = _find_all(hv, profiles.values())
    return {name: profiles[name] for name, seen in found.items() if seen.path and not seen.problem}


def _find_all(hv: Context, profiles: Collection[AgentProfile]) -> dict[str, Found]:
    """All at once: some programs take seconds to say which version they are."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        found = pool.map(hv.agent_programs.find, profiles)
        return dict(zip((profile.name for profile in profiles), found, strict=True))


class Router:
    """Chooses the agent of each task of a batch: the named one, or as config.toml routes."""

    def __init__(self, hv: Context, spec: RunSpec) -> None:
        settings = hv.settings
        self._spec, self._settings = spec, settings
        named = (spec.agent, spec.fallback)
        self._usable: Mapping[str, AgentProfile] = (
            usable_agents(hv)
            if spec.agent == AUTO
            else {name: profile_of(hv, name) for name in named if name}
        )

    def agent(self, task: NewTask) -> str:
        """The name of the agent, "" if none can do what the task requires."""
        settings = self._settings
        if self._spec.agent != AUTO:
            return "" if self.lacking(task) else self._spec.agent
        default = next(iter(self._usable), "")
        rules = (*settings.routes, *DEFAULTS)
        able = settings.capabilities
        return route(task, rules, default, self._usable, able, prices=settings.prices)

    def lacking(self, task: NewTask) -> tuple[str, ...]:
        """What a task requires that no agent here can do."""
        return lacking(task, self._usable.values(), self._settings.capabilities)

    def labelled(self, task: NewTask) -> NewTask:
        """The task, with a label for the agent it goes to where that differs by task."""
        if self._spec.agent != AUTO or any(name.startswith(LABEL) for name in task.requires):
            return task
        chosen = self.agent(task)
        return task._replace(requires=(*task.requires, LABEL + chosen)) if chosen else task


def preview(hv: Context, spec: RunSpec, task: NewTask, item: Item) -> Preview:
    """How the attempt at an item would be started: nothing is started or left behind."""
    name = Router(hv, spec).agent(task) or next(iter(spec.agents))
    return hv.agent_programs.preview(profile_of(hv, name), spec, _as_if_added(task), item)


def _as_if_added(task: NewTask) -> Task:
    unset: dict[str, Any] = dict.fromkeys(Task._fields)
    counts = ("failures", "crashes", "open_dependencies", "created_at", "updated_at")
    given = {name: value for name, value in task._asdict().items() if name in Task._fields}
    own = {"id": "0" * 12, "state": "active", "batch": "", "attempts": 1, "start_at": None}
    return Task(**{**unset, **dict.fromkeys(counts, 0), **given, **own})


def _refuse_unready(hv: Context, profile: AgentProfile) -> None:
    found = hv.agent_programs.find(profile)
    if not found.path:
        how = f" Install it: {profile.install}." if profile.install else ""
        raise AgentNotReady(
            f"{profile.name} is not installed: there is no program {profile.program} on PATH.{how} "
            "Nothing was started."
        )
    if found.problem:
        raise AgentNotReady(f"{profile.name} cannot work: {found.problem}. Nothing was started.")


def _view(
    hv: Context,
    profile: AgentProfile,
    found: Found,
    brakes: list[Cooldown],
    running: Mapping[str, int],
) -> AgentView:
    learned = (
        hv.store.read(store_settings.setting, f"peak agent {profile.name}")
        if hv.has_store
        else None
    )
    held = tuple(brake for brake in brakes if brakes_agent(brake, profile))
    why = "not installed" if not found.path else found.problem
    return AgentView(
        profile.name,
        profile.program,
        found.path,
        found.version,
        profile.provider,
        profile.verified,
        bool(found.path) and not found.problem and not held,
        why,
        profile.install,
        int(learned) if learned else profile.memory,
        bool(learned),
        profile.workers,
        running.get(profile.name, 0),
        held,
        profile.capabilities,
        bool(profile.resume),
        profile.sandbox,
    )


def brakes_agent(brake: Cooldown, profile: AgentProfile) -> bool:
    """Whether the account that rests is one of the agent's provider."""
    return brake.account.partition(":")[0] == (profile.provider or profile.name)


def _running(hv: Context) -> dict[str, int]:
    found: dict[str, int] = {}
    for session in live_sessions(hv) if hv.has_store else ():
        found[session.agent] = found.get(session.agent, 0) + 1
    return found
