"""What runs in the background, and what it is made of: the supervisor, workers, the notifier."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.app import connect, locks_folder, places_for, prompts_folder
from hypervisor.core.errors import InvalidInput, StoreError, StoreFull, StoreGone

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypervisor.core.places import Places
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Worker as Identity
    from hypervisor.resources.cgroup import Group
    from hypervisor.runs.processes.fork_server import ForkServer
    from hypervisor.runs.processes.journal import Journal
    from hypervisor.runs.processes.launcher import LocalLauncher
    from hypervisor.runs.spec import RunSpec
    from hypervisor.runs.supervisor import Supervisor
    from hypervisor.runs.worker import Worker

IDLE_MS = 3_000
TICK = 0.25
WAITING_TICK = 0.05
FULL_TICK = 1.0
STORE_PATIENCE, ASKED_PATIENCE = 300.0, 10.0
WORKER_NEEDS = (
    "hypervisor.runs.worker",
    "hypervisor.runs.processes.runner",
    "hypervisor.runs.processes.environment",
    "hypervisor.resources.host",
    "hypervisor.runs.processes.launcher",
    "hypervisor.runs.outputs.spool",
    "hypervisor.batches.files",
    "hypervisor.inputs.task_files.files",
    "hypervisor.notifications.delivery",
    "hypervisor.agents.homes",
    "hypervisor.queue.claim",
    "hypervisor.store.ledger",
    "hypervisor.store.sqlite",
)
SUPERVISOR_NEEDS = (
    "hypervisor.resources.load",
    "hypervisor.runs.processes.signals",
    "hypervisor.resources.governor",
    "hypervisor.runs.supervisor",
    "hypervisor.batches.pipeline",
)


def supervise(
    detached: bool, store: str | None = None, each_tick: Callable[[str], None] | None = None
) -> int:
    """Be the supervisor of the store on this host until there is nothing left to do.

    `each_tick` is told what signals have asked for so far: "", "drain" or "stop".
    """
    import time

    nursery = _nursery() if detached else None  # before the store is opened
    from hypervisor.resources.governor import Governor
    from hypervisor.resources.load import HostLoad
    from hypervisor.runs.processes.launcher import LocalLauncher
    from hypervisor.runs.processes.signals import Signals
    from hypervisor.runs.supervisor import Supervisor

    hv = connect(store, create=not detached)  # whoever starts one in the background has the store
    launcher = hv.launcher
    assert isinstance(launcher, LocalLauncher)
    if not _hold(launcher):
        return 0  # there is one
    signals = Signals()
    signals.wake_for_children()
    launcher.adopt(nursery)
    governor = Governor(
        HostLoad(memory_limit=hv.settings.memory_limit),
        hv.settings.thresholds,
        hv.settings.strategy,
    )
    supervisor = Supervisor(hv, governor, cores(), IDLE_MS if detached else None)
    troubled: float | None = None  # since then
    while True:
        try:
            if not supervisor.tick(hv.now(), signals.asked) and _leave(supervisor, signals.asked):
                break
            if each_tick is not None:
                each_tick(signals.asked)
            troubled = None
        except StoreGone as error:  # whatever took its place is not ours to supervise
            print(f"{error}", file=sys.stderr, flush=True)
            launcher.leave(lambda: True, at_once=True)
            break
        except (StoreError, OSError) as error:  # workers go on, and so do we once it is back
            if isinstance(error, StoreFull) and not signals.asked:
                supervisor.disk_is_full(hv.now())
                signals.wait(FULL_TICK)
                continue
            print(f"{error}", file=sys.stderr, flush=True)
            troubled = troubled or time.monotonic()
            patience = ASKED_PATIENCE if signals.asked else STORE_PATIENCE
            if time.monotonic() > troubled + patience:
                launcher.leave(lambda: True, at_once=True)
                break
        signals.wait(WAITING_TICK if supervisor.is_waiting else TICK)
    hv.close()
    return 0


def _hold(launcher: LocalLauncher) -> bool:
    """Become the supervisor. One that was asked to end is waited for, by one alone: it starts
    nothing more."""
    import time

    if launcher.hold() is not None:
        return True
    place = launcher.hold_next()
    if place is None:
        return False
    stays = 0
    while (held := launcher.hold()) is None and stays < 2:
        stays = 0 if launcher.is_leaving() else stays + 1  # it takes its last word back and leaves
        time.sleep(WAITING_TICK)
    os.close(place)
    return held is not None


def _leave(supervisor: Supervisor, asked: str) -> bool:
    """Whether it may go: it was asked to, or nobody has submitted anything meanwhile."""
    from hypervisor.runs.processes.launcher import LocalLauncher

    hv = supervisor.hv
    assert isinstance(hv.launcher, LocalLauncher)
    supervisor.notifier.last_look()
    supervisor.learner.last_look()
    return hv.launcher.leave(lambda: supervisor.is_needed(hv.now()), at_once=bool(asked))


def start_ahead(words: list[str]) -> None:
    """`hv run` is about to need a supervisor: unless there is one, let it load beside us."""
    from hypervisor.core.errors import HypervisorError
    from hypervisor.core.places import is_supervised
    from hypervisor.runs.processes import prestart

    own = words[: words.index("--")] if "--" in words else words
    if {"--dry-run", "-h", "--help"} & {*own}:
        return
    named = [own[at + 1] for at, word in enumerate(own[:-1]) if word == "--store"]
    named += [word.partition("=")[2] for word in own if word.startswith("--store=")]
    with suppress(HypervisorError, OSError):  # whatever it is, the client tells it in time
        places = places_for(named[-1] if named else "")
        if places is not None and not is_supervised(places):
            prestart.start()


def wait_ahead() -> None:
    """Be the supervisor that was started ahead, once there is use for it."""
    from hypervisor.runs.processes import prestart

    if prestart.wait(lambda: _load(*WORKER_NEEDS, *SUPERVISOR_NEEDS)):
        supervise(detached=True)


def _load(*names: str) -> None:
    from importlib import import_module

    for name in names:
        import_module(name)


def _nursery() -> ForkServer | None:
    """Where workers come from while this supervisor lives: all that they need is loaded."""
    if sys.platform != "linux":
        return None  # nobody would adopt them there
    from hypervisor.runs.processes.fork_server import ForkServer

    _load(*WORKER_NEEDS)
    return ForkServer(work)


def work(batch: str, agent: str = "") -> None:
    """Be a worker of one batch until it has nothing more to claim. `agent`: with this agent."""
    from hypervisor.queue.claim import identity
    from hypervisor.resources.cgroup import Group
    from hypervisor.runs.processes.journal import Journal
    from hypervisor.runs.processes.launcher import LocalLauncher, group_of
    from hypervisor.runs.spec import spec_from

    hv = connect(create=False, pid=os.getpid())
    launcher = hv.launcher
    assert isinstance(launcher, LocalLauncher)
    spec = spec_from(hv.store.batch(batch).spec)
    me = identity(hv, f"worker-{os.getpid()}", os.getpid())
    given = launcher.environment(batch)
    own = given if given is not None else dict(os.environ)
    group = Group.make(group_of(me))
    journal = Journal(launcher.places.runtime, me, group.path if group else None)
    make = _agent_worker if spec.agent else _worker
    try:
        make(hv, me, batch, spec, own, group, journal, agent).run()
    except StoreGone as error:
        sys.exit(f"worker: {error}")
    hv.close()


def _worker(
    hv: Context,
    me: Identity,
    batch: str,
    spec: RunSpec,
    given: dict[str, str],
    group: Group | None,
    journal: Journal,
    agent: str,
) -> Worker:
    """A worker that runs commands or a function."""
    from hypervisor.runs.outputs.spool import Spool
    from hypervisor.runs.processes.environment import environment_for
    from hypervisor.runs.processes.launcher import mark_of
    from hypervisor.runs.processes.runner import LocalRunner
    from hypervisor.runs.spec import template_of
    from hypervisor.runs.worker import Worker

    settings = hv.settings
    env = environment_for(spec, given, batch, locks_folder(_places(hv)))
    template = template_of(spec) if spec.command else None
    runner = LocalRunner(spec, template, env, mark_of(me), group, settings.nice)
    outputs = Spool(_places(hv).data, me.id) if spec.command else hv.outputs
    return Worker(hv, me, batch, spec, runner, journal, outputs, settings, settings.capabilities)


def _agent_worker(
    hv: Context,
    me: Identity,
    batch: str,
    spec: RunSpec,
    given: dict[str, str],
    group: Group | None,
    journal: Journal,
    agent: str,
) -> Worker:
    """A worker that runs an agent on tasks it claims, or keeps one that claims by itself."""
    from hypervisor.agents.account import account_of
    from hypervisor.agents.budget import price_of
    from hypervisor.agents.prompt_files import Prompts
    from hypervisor.agents.pull_worker import PullWorker
    from hypervisor.agents.push_worker import Duty, PushWorker
    from hypervisor.agents.runner import AgentRunner
    from hypervisor.agents.worker_setup import setup_for
    from hypervisor.runs.processes.launcher import mark_of

    settings, places = hv.settings, _places(hv)
    name = agent or spec.agent
    if name not in settings.agents:
        raise InvalidInput(f"there is no agent {name!r} in config.toml any more.")
    profile = settings.agents[name]
    store = os.environ.get("HYPERVISOR_STORE") or hv.store.where
    station = setup_for(profile, spec, me, batch, given, store, places.data, locks_folder(places))
    runner = AgentRunner(spec, station, mark_of(me), group, settings.nice)
    known = {name, *spec.agents} & set(settings.agents)
    accounts = {each: account_of(settings.agents[each], given) for each in known}
    prompts = Prompts(spec, prompts_folder())
    price = price_of(profile, spec.model, settings.prices)
    duty = Duty(
        profile,
        accounts,
        station.homes,
        prompts.write,
        prompts.go_on,
        prompts.correct,
        prompts.pull,
        price,
    )
    kind = PullWorker if spec.mode == "pull" else PushWorker
    return kind(hv, me, batch, spec, runner, journal, hv.outputs, settings, duty)


def _places(hv: Context) -> Places:
    from hypervisor.runs.processes.launcher import LocalLauncher

    assert isinstance(hv.launcher, LocalLauncher)
    return hv.launcher.places


def serve_mcp() -> None:
    """Be the MCP server that all clients of the store on this host share."""
    from hypervisor.mcp import shared_server

    shared_server.run(connect)


def notify() -> None:
    """Deliver notices until none is left, unless another process here does already."""
    from hypervisor.notifications.notifier import Deliverer

    hv = connect(create=False)
    if hv.launcher.hold_notifier() is not None:
        Deliverer(hv).run()
    hv.close()


def cores() -> int:
    """How many processors we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
