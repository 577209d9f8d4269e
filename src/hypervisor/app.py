"""Finds the store, wires the rooms, starts the processes. The only module that knows all rooms."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from hypervisor.core.errors import InvalidInput, NotFound, StoreGone, StoreUnavailable
from hypervisor.core.store_path import store_path

if TYPE_CHECKING:
    from hypervisor.agents.homes import AgentHomes
    from hypervisor.agents.programs import LocalAgents
    from hypervisor.agents.session import AgentSession
    from hypervisor.batches.files import BatchFiles
    from hypervisor.batches.plans.files import ActionFiles
    from hypervisor.core.places import Places
    from hypervisor.inputs.task_files.files import TaskFiles
    from hypervisor.notifications.delivery import Courier
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Worker as Identity
    from hypervisor.resources.governor import Governor
    from hypervisor.runs.config import Settings
    from hypervisor.runs.outputs.files import Outputs
    from hypervisor.runs.processes.launcher import LocalLauncher
    from hypervisor.runs.supervisor import Supervisor
    from hypervisor.store.database import Database

IDLE_MS = 3_000  # a supervisor in the background ends after so long with nothing to do
WORKER_CODE = (
    "hypervisor.runs.make_worker",
    "hypervisor.batches.reduce_input",
    "hypervisor.runs.processes.runner",
    "hypervisor.runs.processes.environment",
    "hypervisor.resources.host",
    "hypervisor.runs.processes.launcher",
    "hypervisor.runs.outputs.spool",
    "hypervisor.queue.claim",
    "hypervisor.queue.settle",
    "hypervisor.store.sqlite",
)
SUPERVISOR_CODE = (
    "hypervisor.resources.load",
    "hypervisor.resources.governor",
    "hypervisor.runs.supervisor",
    "hypervisor.runs.staffing",
    "hypervisor.agents.pools",
    "hypervisor.learning.learner",
    "hypervisor.notifications.notifier",
    "hypervisor.batches.chunk_reporter",
    "hypervisor.batches.pipeline",
)
CANNOT_RUN = 69  # EX_UNAVAILABLE, as scripts/venv.sh
NEEDS_LINUX = "Hypervisor needs Linux (pidfd, fdatasync, /proc); use a container, a VM or WSL 2"


def connect(
    store: str | None = None,
    create: bool = True,
    relaxed: bool | None = None,
    pid: int = 0,
    bare: bool = False,
) -> Context:
    """Open the store that is meant: named, set by HYPERVISOR_STORE, or found upwards.

    `bare`: where there is none, this host can still be asked."""
    from hypervisor.queue.context import Context
    from hypervisor.resources.host import LocalHost

    if sys.platform != "linux":
        raise StoreUnavailable(NEEDS_LINUX)
    if store is not None and not store.strip():
        raise InvalidInput("--store is empty: name a path or a postgresql:// URL.")
    where = store or os.environ.get("HYPERVISOR_STORE") or ""
    opened = _open_or_not(where, create, relaxed) if bare else _open(where, create, relaxed)
    hv = Context(opened, LocalHost(), _actor(), pid, Parts(where, opened))
    hv.make_supervisor = lambda idle_ms: make_supervisor(hv, idle_ms)
    return hv


class Parts:
    """What the rooms above the queue work with, each part made when it is first used."""

    def __init__(self, given: str, store: Database) -> None:
        self._given, self._store = given, store

    @cached_property
    def places(self) -> Places:
        from hypervisor.core.places import places_of
        from hypervisor.resources.host import LocalHost

        where = self._store.where
        folder = None if "://" in self._given else os.path.dirname(where)
        return places_of(where, folder, _identity(self._store), LocalHost().boot())

    @cached_property
    def settings(self) -> Settings:
        from hypervisor.runs.config import settings_from

        return settings_from(_config(self.places.data))

    @cached_property
    def outputs(self) -> Outputs:
        from hypervisor.runs.outputs.files import Outputs

        return Outputs(self.places.data)

    @cached_property
    def launcher(self) -> LocalLauncher:
        from hypervisor.runs.processes.launcher import LocalLauncher

        where = self._given if "://" in self._given else self._store.where
        return LocalLauncher(where, self.places)

    @cached_property
    def task_files(self) -> TaskFiles:
        from hypervisor.inputs.task_files.files import TaskFiles

        return TaskFiles(self.places.locks)

    @cached_property
    def batch_files(self) -> BatchFiles:
        from hypervisor.batches.files import BatchFiles

        return BatchFiles(self.places.data)

    def action_files(self, root: str, folder: str) -> ActionFiles:
        from hypervisor.batches.plans.files import ActionFiles

        return ActionFiles(root, folder)

    @cached_property
    def homes(self) -> AgentHomes:
        from hypervisor.agents.homes import AgentHomes

        return AgentHomes(self.places.data)

    def clean_up_agent(self, worker: Identity, session: AgentSession) -> None:
        from hypervisor.agents.dead_agent import clean_up_home

        if profile := self.settings.agents.get(session.agent):
            clean_up_home(self.homes, self.launcher, worker, session, profile)

    @cached_property
    def agent_programs(self) -> LocalAgents:
        from hypervisor.agents.programs import LocalAgents
        from hypervisor.agents.prompts import FOLDER

        return LocalAgents(self.places.data, FOLDER)

    @cached_property
    def courier(self) -> Courier:
        from hypervisor.notifications.delivery import Courier

        return Courier(self.places.data)

    def secret(self, name: str) -> tuple[str, str]:
        from hypervisor.core.secret_files import load_or_create_secret

        return load_or_create_secret(self.places.data, name)


def _identity(store: Database) -> str:
    from hypervisor.queue.context import NoStore
    from hypervisor.store.settings import identity

    return store.where if isinstance(store, NoStore) else identity(store)


def _open_or_not(where: str, create: bool, relaxed: bool | None) -> Database:
    from hypervisor.queue.context import NoStore

    try:
        return _open(where, create, relaxed)
    except NotFound:
        return cast("Database", NoStore(store_path(where, create=True)))


def _open(where: str, create: bool, relaxed: bool | None) -> Database:
    if where.startswith(("postgresql://", "postgres://")):
        try:
            from hypervisor.store.postgres import PostgresDatabase
        except ImportError:
            raise StoreUnavailable(
                "a PostgreSQL store needs psycopg: pip install 'psycopg[binary]' "
                "(in a checkout: sh scripts/venv.sh cluster)"
            ) from None
        return PostgresDatabase(where, bool(relaxed))
    if "://" in where:
        kind = where.partition("://")[0]
        raise InvalidInput(f"no store of the kind {kind!r}: name a path or a postgresql:// URL.")
    from hypervisor.store.new_store import make_empty_store, make_store_folder
    from hypervisor.store.sqlite import SqliteDatabase

    path = store_path(where, create)
    folder = os.path.dirname(path)
    if not os.path.exists(path):
        if not create:
            raise NotFound(f"there is no store at {path}. `hv add` makes one.")
        make_store_folder(folder)
        make_empty_store(path)
    return SqliteDatabase(path, _relaxed(folder) if relaxed is None else relaxed)


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
    except RecursionError:
        raise InvalidInput(f"{path} cannot be read: it is nested too deeply.") from None


def _relaxed(folder: str) -> bool:
    """What config.toml says about durability; most commands need no more of it."""
    config = _config(folder)
    if not config:
        return False
    from hypervisor.runs.config import settings_from

    try:
        return settings_from(config).relaxed
    except InvalidInput as error:
        raise InvalidInput(f"{os.path.join(folder, 'config.toml')}: {error}") from None


def _actor() -> str:
    """Who acts: HV_ACTOR, or the login name."""
    name = os.environ.get("HV_ACTOR") or os.environ.get("LOGNAME") or os.environ.get("USER")
    name = "".join((name or f"uid{os.getuid()}").split())
    return name.encode("utf-8", "replace").decode()[:200] or "somebody"


# Processes


def main() -> None:
    """Entry point of the command line."""
    if sys.platform != "linux":
        sys.stderr.write(f"hv: {NEEDS_LINUX}\n")
        sys.exit(CANNOT_RUN)
    try:
        if sys.argv[1:2] == ["run"]:
            prestart_supervisor(sys.argv[2:])
        from hypervisor.cli.main import run

        code = run(sys.argv[1:], connect)
    except KeyboardInterrupt:  # before the command line could catch it
        code = 130
    sys.exit(code)


def serve() -> None:
    """Entry point of the processes in the background."""
    from hypervisor.runs.processes import log_file, prestart

    role, *words = sys.argv[1:]
    if role == prestart.ROLE:
        role = "supervise" if prestart.wait(lambda: _load(*WORKER_CODE, *SUPERVISOR_CODE)) else ""
    log_file.configure()
    if role == "supervise":
        supervise()
    elif role == "notify":
        notify()
    elif role == "work":
        work(*words)


def prestart_supervisor(words: list[str]) -> None:
    """`hv run` is about to need a supervisor: unless there is one, let it load beside us."""
    from hypervisor.core.errors import HypervisorError
    from hypervisor.core.places import is_supervised, known_places
    from hypervisor.resources.host import LocalHost
    from hypervisor.runs.processes import prestart

    own = words[: words.index("--")] if "--" in words else words
    if {"--dry-run", "-h", "--help"} & {*own}:
        return
    named = [own[at + 1] for at, word in enumerate(own[:-1]) if word == "--store"]
    named += [word.partition("=")[2] for word in own if word.startswith("--store=")]
    where = (named[-1] if named else "") or os.environ.get("HYPERVISOR_STORE") or ""
    if "://" in where:  # its places are known only once it is open
        return
    with suppress(HypervisorError, OSError):  # whatever it is, the client reports it in time
        path = store_path(where, create=True)
        if not is_supervised(known_places(path, LocalHost().boot())):
            prestart.start()


def supervise() -> None:
    """Be the supervisor of the store on this host until there is nothing left to do."""
    from hypervisor.runs.processes.fork_server import ForkServer

    _load(*WORKER_CODE)
    fork_server = ForkServer(work)  # before the store is opened
    hv = connect(create=False)  # whoever starts one has the store
    make_supervisor(hv, IDLE_MS).run(fork_server)
    hv.close()


def make_supervisor(
    hv: Context, idle_ms: int | None, governor: Governor | None = None, cores: int = 0
) -> Supervisor:
    """A supervisor, with what each room has to do in it."""
    from hypervisor.agents.pools import AgentPools
    from hypervisor.batches.chunk_reporter import ChunkReporter
    from hypervisor.learning.learner import Learner
    from hypervisor.learning.pools import AdaptivePools
    from hypervisor.notifications.notifier import Notifier
    from hypervisor.runs.current_specs import CurrentSpecs
    from hypervisor.runs.staffing import Staffing
    from hypervisor.runs.supervisor import Supervisor

    cores = cores or len(os.sched_getaffinity(0))
    governor = governor or _governor(hv.settings)
    specs, learner = CurrentSpecs(hv), Learner(hv, cores)
    agents, adaptive = AgentPools(hv, specs.spec), AdaptivePools(hv, learner)
    staffing = Staffing(hv, governor, cores, specs=specs, agents=agents, adaptive=adaptive)
    parts = (Notifier(hv), learner, ChunkReporter(hv, lambda: staffing.batches))
    return Supervisor(hv, staffing, parts, idle_ms=idle_ms, after_sweep=_release_reduces)


def _governor(settings: Settings) -> Governor:
    from hypervisor.resources.governor import Governor
    from hypervisor.resources.load import HostLoad

    load = HostLoad(memory_limit=settings.memory_limit)
    return Governor(load, settings.thresholds, settings.strategy)


def _release_reduces(hv: Context) -> None:
    from hypervisor.batches.pipeline import release_reduces  # not before it has the lock

    release_reduces(hv)


def work(batch: str, agent: str = "") -> None:
    """Be a worker of one batch until it has nothing more to claim. `agent`: with this agent."""
    import logging

    from hypervisor.batches.reduce_input import item_for
    from hypervisor.queue.claim import identity
    from hypervisor.queue.sql import queries
    from hypervisor.runs.make_worker import make_worker, start_of
    from hypervisor.runs.processes import log_file
    from hypervisor.runs.spec import spec_from

    log_file.bind(batch=batch)
    hv = connect(create=False, pid=os.getpid())
    spec = spec_from(hv.store.read(queries.batch, batch).spec)
    me = identity(hv, f"worker-{os.getpid()}", os.getpid())
    try:
        start = start_of(hv, me, batch, spec)
        if spec.agent:
            from hypervisor.agents.make_worker import make_agent_worker

            make_agent_worker(start, agent or spec.agent, _parts_of).run()
        else:
            make_worker(start, item_for, _parts_of).run()
    except StoreGone as error:
        logging.getLogger("hypervisor.runs").error("%s", error)
        sys.exit(1)
    hv.close()


def _parts_of(hv: Context, batch: str) -> tuple[str, ...]:
    """Loaded when a batch fails fast: most workers never need it."""
    from hypervisor.batches.pipeline import parts_of

    return parts_of(hv, batch)


def notify() -> None:
    """Deliver notices until none is left, unless another process here does already."""
    from hypervisor.notifications.notifier import Deliverer

    hv = connect(create=False)
    if hv.launcher.acquire_notifier_lock() is not None:
        Deliverer(hv).run()
    hv.close()


def _load(*names: str) -> None:
    from importlib import import_module

    for name in names:
        import_module(name)
