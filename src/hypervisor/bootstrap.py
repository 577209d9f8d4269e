"""The only module that knows all parts: finds the store, wires it, starts the faces."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from hypervisor.domain.errors import InvalidInput, NotFound, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypervisor.adapters.cgroup import Group
    from hypervisor.adapters.journal import Journal
    from hypervisor.adapters.nursery import Nursery
    from hypervisor.adapters.places import Places
    from hypervisor.domain.lease import Worker as Identity
    from hypervisor.domain.run import RunSpec
    from hypervisor.operations.context import Context, Equipment
    from hypervisor.ports import ActionFiles, AgentAdapter, Store
    from hypervisor.services.worker import Worker

IDLE_MS = 3_000
TICK = 0.25
WAITING_TICK = 0.05
STORE_PATIENCE = 300.0
FOLDER = ".hypervisor"
FILE = "store.db"
WORKER_NEEDS = (
    "services.worker", "adapters.runner", "adapters.environment", "adapters.host",
    "adapters.launch", "adapters.outputs", "adapters.batchfiles", "adapters.taskfiles",
    "adapters.notifying", "adapters.agents.homes", "operations.claim", "store.ledger",
    "store.sqlite",
)  # fmt: skip


def connect(
    store: str | None = None, create: bool = True, relaxed: bool | None = None, pid: int = 0,
    bare: bool = False,
) -> Context:  # fmt: skip
    """Open the store that is meant: named, set by HYPERVISOR_STORE, or found upwards.

    `bare`: where there is none, this host can still be asked."""
    from hypervisor.adapters.host import LocalHost
    from hypervisor.operations.context import Context

    if store is not None and not store.strip():
        raise InvalidInput("--store is empty: name a path or a postgresql:// URL.")
    where = store or os.environ.get("HYPERVISOR_STORE") or ""
    opened = _open_or_not(where, create, relaxed) if bare else _open(where, create, relaxed)
    hv = Context(opened, LocalHost(), _actor(), pid, lambda: _equipment(where, opened.where))
    hv.serve = lambda each_tick: supervise(False, where or None, each_tick)
    return hv


def main() -> None:
    """Entry point of the command line."""
    try:
        from hypervisor.faces.cli.main import run

        code = run(sys.argv[1:], connect)
    except KeyboardInterrupt:  # before the command line could catch it
        code = 130
    sys.exit(code)


def serve() -> None:
    """Entry point of the processes that are started in the background."""
    role, *words = sys.argv[1:]
    if role == "supervise":
        supervise(detached=True)
    elif role == "notify":
        notify()
    elif role == "work":
        work(*words)


def supervise(
    detached: bool, store: str | None = None, each_tick: Callable[[str], None] | None = None
) -> int:
    """Be the supervisor of the store on this host until there is nothing left to do.

    `each_tick` is told what signals have asked for so far: "", "drain" or "stop".
    """
    import time

    nursery = _nursery() if detached else None  # before the store is opened
    from hypervisor.adapters.launch import LocalLauncher
    from hypervisor.adapters.load import HostLoad
    from hypervisor.adapters.signals import Signals
    from hypervisor.services.governor import Governor
    from hypervisor.services.supervisor import Supervisor

    hv = connect(store)
    launcher = hv.launcher
    assert isinstance(launcher, LocalLauncher)
    if launcher.hold() is None:
        return 0  # there is one
    signals = Signals()
    signals.wake_for_children()
    launcher.adopt(nursery)
    governor = Governor(
        HostLoad(memory_limit=hv.settings.memory_limit), hv.settings.thresholds,
        hv.settings.strategy,
    )  # fmt: skip
    supervisor = Supervisor(hv, governor, cores(), IDLE_MS if detached else None)
    patience = time.monotonic() + STORE_PATIENCE
    while True:
        try:
            if not supervisor.tick(hv.now(), signals.asked):
                break
            if each_tick is not None:
                each_tick(signals.asked)
            patience = time.monotonic() + STORE_PATIENCE
        except StoreError as error:  # workers go on meanwhile, so do we once it is back
            print(f"{error}", file=sys.stderr, flush=True)
            if signals.asked or time.monotonic() > patience:
                break
        signals.wait(WAITING_TICK if supervisor.is_waiting else TICK)
    supervisor.notifier.last_look()
    supervisor.learner.last_look()
    launcher.tidy()
    hv.close()
    return 0


def _nursery() -> Nursery | None:
    """Where workers come from while this supervisor lives: all that they need is loaded."""
    if sys.platform != "linux":
        return None  # nobody would adopt them there
    from importlib import import_module

    from hypervisor.adapters.nursery import Nursery

    for name in WORKER_NEEDS:
        import_module(f"hypervisor.{name}")
    return Nursery(work)


def work(batch: str, agent: str = "") -> None:
    """Be a worker of one batch until it has nothing more to claim. `agent`: with this agent."""
    from hypervisor.adapters.cgroup import Group
    from hypervisor.adapters.journal import Journal
    from hypervisor.adapters.launch import WORKER_GROUP, LocalLauncher
    from hypervisor.domain.run import spec_from
    from hypervisor.operations.claim import identity

    hv = connect(pid=os.getpid())
    launcher = hv.launcher
    assert isinstance(launcher, LocalLauncher)
    spec = spec_from(hv.store.batch(batch).spec)
    me = identity(hv, f"worker-{os.getpid()}", os.getpid())
    given = launcher.environment(batch)
    own = given if given is not None else dict(os.environ)
    group = Group.make(f"{WORKER_GROUP}{os.getpid()}")
    journal = Journal(launcher.places.runtime, me, group.path if group else None)
    make = _agent_worker if spec.agent else _worker
    make(hv, me, batch, spec, own, group, journal, agent).run()
    hv.close()


def _worker(
    hv: Context, me: Identity, batch: str, spec: RunSpec, given: dict[str, str],
    group: Group | None, journal: Journal, agent: str,
) -> Worker:  # fmt: skip
    """A worker that runs commands or a function."""
    from hypervisor.adapters.environment import environment_for
    from hypervisor.adapters.launch import mark_of
    from hypervisor.adapters.runner import LocalRunner
    from hypervisor.domain.run import template_of
    from hypervisor.services.worker import Worker

    settings = hv.settings
    env = environment_for(spec, given, batch, _locks(_places(hv)))
    template = template_of(spec) if spec.command else None
    runner = LocalRunner(spec, template, env, mark_of(me), group, settings.nice)
    return Worker(hv, me, batch, spec, runner, journal, hv.outputs, settings, settings.capabilities)


def _agent_worker(
    hv: Context, me: Identity, batch: str, spec: RunSpec, given: dict[str, str],
    group: Group | None, journal: Journal, agent: str,
) -> Worker:  # fmt: skip
    """A worker that runs an agent on tasks it claims, or keeps one that claims by itself."""
    from hypervisor.adapters.agents.prompts import Prompts
    from hypervisor.adapters.agents.runner import AgentRunner
    from hypervisor.adapters.agents.station import station_for
    from hypervisor.adapters.launch import mark_of
    from hypervisor.domain.agents.account import account_of
    from hypervisor.domain.agents.budgeting import price_of
    from hypervisor.services.agent_keeper import Keeper
    from hypervisor.services.agent_worker import AgentWorker, Duty

    settings, places = hv.settings, _places(hv)
    name = agent or spec.agent
    if name not in settings.agents:
        raise InvalidInput(f"there is no agent {name!r} in config.toml any more.")
    profile = settings.agents[name]
    store = os.environ.get("HYPERVISOR_STORE") or hv.store.where
    station = station_for(profile, spec, me, batch, given, store, places.data, _locks(places))
    runner = AgentRunner(spec, station, mark_of(me), group, settings.nice)
    known = {name, *spec.agents} & set(settings.agents)
    accounts = {each: account_of(settings.agents[each], given) for each in known}
    prompts = Prompts(spec, _prompts())
    price = price_of(profile, spec.model, settings.prices)
    duty = Duty(profile, accounts, station.homes, prompts.write, prompts.go_on, prompts.pull, price)
    kind = Keeper if spec.mode == "pull" else AgentWorker
    return kind(hv, me, batch, spec, runner, journal, hv.outputs, settings, duty)


def _places(hv: Context) -> Places:
    from hypervisor.adapters.launch import LocalLauncher

    assert isinstance(hv.launcher, LocalLauncher)
    return hv.launcher.places


def notify() -> None:
    """Deliver notices until none is left, unless another process here does already."""
    from hypervisor.services.notifier import Deliverer

    hv = connect()
    if hv.launcher.hold_notifier() is not None:
        Deliverer(hv).run()
    hv.close()


def cores() -> int:
    """How many processors we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _equipment(given: str, where: str) -> Equipment:
    from hypervisor.adapters.agents.homes import AgentHomes
    from hypervisor.adapters.batchfiles import BatchFiles
    from hypervisor.adapters.launch import LocalLauncher
    from hypervisor.adapters.notifying import Courier
    from hypervisor.adapters.outputs import Outputs
    from hypervisor.adapters.places import places_of
    from hypervisor.adapters.taskfiles import TaskFiles
    from hypervisor.domain.settings import settings_from
    from hypervisor.operations.context import Equipment

    is_url = "://" in given
    places = places_of(where, None if is_url else os.path.dirname(where))
    settings = settings_from(_config(places.data))
    launcher = LocalLauncher(given if is_url else where, places)
    return Equipment(
        launcher, Outputs(places.data), settings, BatchFiles(places.data),
        TaskFiles(_locks(places)), _action_files, courier=Courier(places.data),
        agents=lambda: _agents(places), secret=lambda name: _secret(places.data, name),
        homes=AgentHomes(places.data),
    )  # fmt: skip


def _secret(folder: str, name: str) -> tuple[str, str]:
    from hypervisor.adapters.kept_secrets import kept_secret

    return kept_secret(folder, name)


def _agents(places: Places) -> AgentAdapter:
    from hypervisor.adapters.agents.local import LocalAgents

    return LocalAgents(places.data, _prompts())


def _prompts() -> str:
    """Where the built-in frames of prompts are."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "skills", "prompts")


def _locks(places: Places) -> str:
    """Where all who change the same task files queue up."""
    return os.path.join(places.runtime, "files")


def _action_files(root: str, folder: str) -> ActionFiles:
    from hypervisor.adapters.actions import ActionFiles

    return ActionFiles(root, folder)


def _open_or_not(where: str, create: bool, relaxed: bool | None) -> Store:
    from hypervisor.operations.context import NoStore

    try:
        return _open(where, create, relaxed)
    except NotFound:
        return cast("Store", NoStore(_path(where, create=True)))


def _open(where: str, create: bool, relaxed: bool | None) -> Store:
    from hypervisor.store.ledger import Ledger

    if where.startswith(("postgresql://", "postgres://")):
        try:
            from hypervisor.store.postgres import PostgresDatabase
        except ImportError:
            raise StoreUnavailable(
                "a PostgreSQL store needs psycopg: pip install 'hypervisor[cluster]', "
                "in a checkout: sh scripts/venv.sh cluster."
            ) from None
        return Ledger(PostgresDatabase(where, bool(relaxed)))
    if "://" in where:
        kind = where.partition("://")[0]
        raise InvalidInput(f"no store of the kind {kind!r}: name a path or a postgresql:// URL.")
    from hypervisor.store.sqlite import SqliteDatabase

    path = _path(where, create)
    folder = os.path.dirname(path)
    if not os.path.exists(path):
        if not create:
            raise NotFound(f"there is no store at {path}. `hv add` makes one.")
        _make_folder(folder)
        _make_private(path)
    return Ledger(SqliteDatabase(path, _relaxed(folder) if relaxed is None else relaxed))


def _path(where: str, create: bool) -> str:
    if where:
        path = os.path.abspath(os.path.expanduser(where))
        return path if path.endswith(".db") or os.path.isfile(path) else os.path.join(path, FILE)
    try:
        here = os.getcwd()
    except OSError:
        raise NotFound("the current folder is gone. `cd` elsewhere or use --store.") from None
    found = _upwards(here, FOLDER)
    if found is not None and os.stat(found).st_uid not in (os.getuid(), 0):
        raise StoreUnavailable(
            f"{found} belongs to another user, who could read and change all you do. "
            "Nothing was changed; if that is what you want, name it with --store."
        )
    if found is None and not create:
        raise NotFound(f"there is no {FOLDER} folder here or above. `hv add` makes one.")
    return os.path.join(found or os.path.join(_project(here), FOLDER), FILE)


def _upwards(start: str, name: str) -> str | None:
    folder = start
    while not os.path.exists(os.path.join(folder, name)):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return os.path.join(folder, name)


def _project(here: str) -> str:
    """A new store goes to the top of the git checkout, or where we are."""
    git = _upwards(here, ".git")
    return os.path.dirname(git) if git else here


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _sync_folder(os.path.dirname(folder))
        if os.path.basename(folder) == FOLDER:
            from hypervisor.operations import git_view

            os.chmod(folder, 0o700)  # git may have made it, for the skills in it
            with suppress(FileExistsError), open(os.path.join(folder, git_view.FILE), "x") as file:
                file.write(git_view.SKILLS_ONLY)
    except OSError as error:
        raise StoreUnavailable(
            f"{folder} cannot be made ({error.strerror}). Nothing was changed; "
            "choose another place with --store."
        ) from None


def _sync_folder(folder: str) -> None:
    """A power cut must not take the new folder back."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _make_private(path: str) -> None:
    """An empty file is a store to be; SQLite gives the files beside it the same mode."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _config(folder: str) -> dict[str, Any]:
    """What config.toml beside the store says."""
    path = os.path.join(folder, "config.toml")
    if not os.path.exists(path):
        return {}
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}.") from None


def _relaxed(folder: str) -> bool:
    """What config.toml says about durability; most commands need no more of it."""
    config = _config(folder)
    if not config:
        return False
    from hypervisor.domain.settings import settings_from

    try:
        return settings_from(config).relaxed
    except InvalidInput as error:
        raise InvalidInput(f"{os.path.join(folder, 'config.toml')}: {error}") from None


def _actor() -> str:
    """Who acts: HV_ACTOR, or the login name."""
    name = os.environ.get("HV_ACTOR") or os.environ.get("LOGNAME") or os.environ.get("USER")
    name = "".join((name or f"uid{os.getuid()}").split())
    return name.encode("utf-8", "replace").decode()[:200] or "somebody"
