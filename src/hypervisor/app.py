"""Finds the store, wires the rooms, starts the processes. The only module that knows all rooms."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from hypervisor.core.errors import HypervisorError, InvalidInput, NotFound, StoreUnavailable
from hypervisor.core.store_path import meant, store_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypervisor.agents.homes import AgentHomes
    from hypervisor.agents.programs import LocalAgents
    from hypervisor.agents.session import AgentSession
    from hypervisor.batches.files import BatchFiles
    from hypervisor.core.places import Places
    from hypervisor.inputs.task_files.files import TaskFiles
    from hypervisor.mcp.pipe import Pipe
    from hypervisor.notifications.delivery import Courier
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Worker as Identity
    from hypervisor.resources.governor import Governor
    from hypervisor.runs.config import Settings
    from hypervisor.runs.outputs.files import Outputs
    from hypervisor.runs.processes.launcher import LocalLauncher
    from hypervisor.runs.supervisor import Supervisor
    from hypervisor.store.database import Database

CANNOT_RUN = 69  # EX_UNAVAILABLE, as scripts/venv.sh
NEEDS_LINUX = "Hypervisor needs Linux (pidfd, fdatasync, /proc); use a container, a VM or WSL 2"


def connect(
    store: str | None = None,
    create: bool = True,
    relaxed: bool | None = None,
    *,
    pid: int = 0,
    bare: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Context:
    """Open the store that is meant: named, set by HYPERVISOR_STORE, or found upwards.

    `bare`: where there is none, this host can still be asked. `environment`: of the client that
    is served, if it is not this process."""
    from hypervisor.queue.context import Context
    from hypervisor.resources.host import LocalHost

    if sys.platform != "linux":
        raise StoreUnavailable(NEEDS_LINUX)
    env = os.environ if environment is None else environment
    where = meant(store, env)
    opened = _open_or_not(where, create, relaxed) if bare else _open(where, create, relaxed)
    hv = Context(opened, LocalHost(), _actor(env), pid, Parts(where, opened, env))
    hv.make_supervisor = lambda idle_ms: make_supervisor(hv, idle_ms)
    return hv


class Parts:
    """What the rooms above the queue work with, each part made when it is first used."""

    def __init__(self, given: str, store: Database, environment: Mapping[str, str]) -> None:
        self._given, self._store, self._environment = given, store, environment

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
        return LocalLauncher(where, self.places, self._environment)

    @cached_property
    def task_files(self) -> TaskFiles:
        from hypervisor.inputs.task_files.files import TaskFiles

        return TaskFiles(self.places.locks)

    @cached_property
    def batch_files(self) -> BatchFiles:
        from hypervisor.batches.files import BatchFiles

        return BatchFiles(self.places.data)

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

        return LocalAgents(self.places.data, FOLDER, self._environment)

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


def _actor(environment: Mapping[str, str]) -> str:
    """Who acts: HV_ACTOR, or the login name."""
    name = next(filter(None, map(environment.get, ("HV_ACTOR", "LOGNAME", "USER"))), "")
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
            from hypervisor.entry_points import prestart_supervisor

            prestart_supervisor(sys.argv[2:])
        pipe = _plain_pipe(sys.argv[2:]) if sys.argv[1:2] == ["mcp"] else None
        if pipe is not None:
            sys.exit(pipe.run())
        from hypervisor.cli.main import run

        code = run(sys.argv[1:], connect)
    except KeyboardInterrupt:  # before the command line could catch it
        code = 130
    sys.exit(code)


def make_supervisor(
    hv: Context, idle_ms: int | None, governor: Governor | None = None, cores: int = 0
) -> Supervisor:
    """A supervisor, with what each room has to do in it."""
    from hypervisor.agents.pools import AgentPools
    from hypervisor.batches.chunk_reporter import ChunkReporter
    from hypervisor.learning.learner import Learner
    from hypervisor.notifications.notifier import Notifier
    from hypervisor.runs.adaptive_pools import AdaptivePools
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
    from hypervisor.batches.reduce import release_reduces  # not before it has the lock

    release_reduces(hv)


def _plain_pipe(words: list[str]) -> Pipe | None:
    """`hv mcp` without the parser of the command line, which would be half of its cost. None for
    words that need it, or whose error it has to report."""
    from hypervisor.mcp.pipe import pipe_to
    from hypervisor.mcp.profiles import ALL, PROFILES

    options = dict(zip(words[::2], words[1::2], strict=False))
    profile = options.get("--tools", ALL)
    if len(words) % 2 or options.keys() - {"--tools", "--store"} or profile not in PROFILES:
        return None
    if None in (sys.stdin, sys.stdout, sys.stderr):
        return None
    try:
        return pipe_to(profile, options.get("--store"))
    except HypervisorError:
        return None
