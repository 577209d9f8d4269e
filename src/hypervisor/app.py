"""Finds the store and connects the rooms. Only this module and `api.py` know all rooms."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from hypervisor.core.errors import HypervisorError, InvalidInput, NotFound, StoreUnavailable
from hypervisor.core.store_path import named_store, store_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import NoReturn

    from hypervisor.agents.agent_settings import AgentSettings
    from hypervisor.agents.homes import AgentHomes
    from hypervisor.agents.programs import LocalAgents
    from hypervisor.batches.files import BatchFiles
    from hypervisor.core.places import Places
    from hypervisor.inputs.task_files.files import TaskFiles
    from hypervisor.mcp.pipe import Pipe
    from hypervisor.notifications.delivery import NoticeSender
    from hypervisor.queue.agent_session import AgentSession
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Worker as Identity
    from hypervisor.queue.task import NewTask
    from hypervisor.resources.governor import Governor
    from hypervisor.runs.config import Settings
    from hypervisor.runs.host_keeper import HostFacts
    from hypervisor.runs.outputs.files import Outputs
    from hypervisor.runs.outputs.shared import SharedOutputs
    from hypervisor.runs.processes.launcher import LocalLauncher
    from hypervisor.runs.spec import RunSpec
    from hypervisor.runs.staffing import Staffing
    from hypervisor.runs.supervisor import Part, Supervisor
    from hypervisor.runs.worker import WorkerContext
    from hypervisor.runs.workspaces import Workspaces
    from hypervisor.store.database import Database

CANNOT_RUN = 69  # EX_UNAVAILABLE, as scripts/venv.sh
COLLECT_AFTER = 20_000  # objects: fewer collections while modules load
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
    """Open the store: the named one, that of HYPERVISOR_STORE, or the one found upwards.

    `bare`: a missing store is not an error; questions about this host still work. `environment`:
    that of the client, if it is another process."""
    from hypervisor.queue.context import Context
    from hypervisor.resources.host import LocalHost

    if sys.platform != "linux":
        raise StoreUnavailable(NEEDS_LINUX)
    env = os.environ if environment is None else environment
    where = named_store(store, env)
    opened = _open_if_exists(where, create, relaxed) if bare else _open(where, create, relaxed)
    hv = Context(opened, LocalHost(), _actor(env), pid, Parts(where, opened, env))
    hv.make_supervisor = lambda idle_ms: make_supervisor(hv, idle_ms)
    return hv


class Parts:
    """The parts of the rooms above the queue, each made when it is first used."""

    def __init__(self, named: str, store: Database, environment: Mapping[str, str]) -> None:
        self._named, self._store, self._environment = named, store, environment

    @cached_property
    def places(self) -> Places:
        from hypervisor.core.places import places_of
        from hypervisor.resources.host import LocalHost

        where = self._store.where
        folder = None if "://" in self._named else os.path.dirname(where)
        return places_of(where, folder, _identity(self._store), LocalHost().boot())

    @cached_property
    def settings(self) -> Settings:
        """With the capabilities that the name and the labels of this host give it."""
        from hypervisor.queue.host import labels_of
        from hypervisor.resources.host import LocalHost

        settings = _settings(self._config)
        own = labels_of(LocalHost().host(), settings.labels)
        return settings._replace(capabilities=(*settings.capabilities, *own))

    @cached_property
    def agent_settings(self) -> AgentSettings:
        if not self._config:
            from hypervisor.agents.agent_settings import AgentSettings

            return AgentSettings()
        from hypervisor.agents.config import agent_settings_from

        return agent_settings_from(self._config)

    @cached_property
    def _config(self) -> dict[str, Any]:
        from hypervisor.core.config_file import read_config

        return read_config(self.places.data)

    @cached_property
    def outputs(self) -> Outputs:
        from hypervisor.runs.outputs.files import Outputs

        return Outputs(self.places.data, self._shared_outputs())

    def _shared_outputs(self) -> SharedOutputs | None:
        if "://" not in self._named:  # no other host can use this store
            return None
        from hypervisor.resources.host import LocalHost
        from hypervisor.runs.outputs.shared import SharedOutputs

        url, keep_each = self.settings.output_store, self.settings.keep_each
        return SharedOutputs(self._store, LocalHost().host(), url, keep_each)

    @cached_property
    def launcher(self) -> LocalLauncher:
        from hypervisor.runs.processes.launcher import LocalLauncher

        where = self._named if "://" in self._named else self._store.where
        return LocalLauncher(where, self.places, self._environment)

    @cached_property
    def task_files(self) -> TaskFiles:
        from hypervisor.inputs.task_files.files import TaskFiles

        return TaskFiles(self.places.locks)

    @cached_property
    def write_back(self) -> Callable[..., int]:
        from hypervisor.batches.write_back import write_back

        return write_back

    @cached_property
    def batch_files(self) -> BatchFiles:
        from hypervisor.batches.files import BatchFiles

        return BatchFiles(self.places.data)

    @cached_property
    def homes(self) -> AgentHomes:
        from hypervisor.agents.homes import AgentHomes

        return AgentHomes(self.places.data)

    @cached_property
    def assign_agents(self) -> Callable[..., tuple[RunSpec, Iterable[NewTask]]]:
        from hypervisor.agents.agents import assign_agents

        return assign_agents

    def clean_up_agent(self, worker: Identity, session: AgentSession) -> None:
        from hypervisor.agents.dead_agent import clean_up_home

        if profile := self.agent_settings.profiles.get(session.agent):
            clean_up_home(self.homes, self.launcher, worker, session, profile)

    @cached_property
    def agent_programs(self) -> LocalAgents:
        from hypervisor.agents.programs import LocalAgents
        from hypervisor.agents.prompts import FOLDER

        return LocalAgents(self.places.data, FOLDER, self._environment)

    @property
    def open_store(self) -> Callable[..., Context]:
        return connect

    @cached_property
    def courier(self) -> NoticeSender:
        from hypervisor.notifications.delivery import NoticeSender

        return NoticeSender(self.places.data)

    def prepare_workspaces(self, spec: RunSpec, items: Iterable[str]) -> RunSpec:
        if spec.workspace != "clone":
            return spec
        from hypervisor.git.base import with_base
        from hypervisor.git.item_files import ItemFiles

        if spec.git.merge and not spec.git.verify:
            spec = spec._replace(git=spec.git._replace(verify=self.settings.merge_verify))
        files = ItemFiles(spec, lambda: self.settings.workspace)
        for item in items:
            files.add(item)
        spec = with_base(self.places.data, spec, files)
        if not self._store.is_shared or not self.settings.workspace.exchange:
            return spec
        from hypervisor.git.elsewhere import with_exchange
        from hypervisor.resources.host import LocalHost

        return with_exchange(
            self.places.data, spec, self.settings.workspace.exchange, LocalHost().host()
        )

    @cached_property
    def repository_problem(self) -> Callable[[RunSpec], str | None]:
        from hypervisor.git.fetching import RepositoryFetcher
        from hypervisor.resources.host import LocalHost

        return RepositoryFetcher(self.places.data, LocalHost().host()).problem

    def make_workspaces(self, ctx: WorkerContext) -> Workspaces:
        if ctx.spec.workspace == "scratch":
            from hypervisor.runs.scratch import ScratchCopies

            return ScratchCopies(ctx)
        from hypervisor.git.attempt_workspaces import AttemptWorkspaces

        return AttemptWorkspaces(ctx)

    def secret(self, name: str) -> tuple[str, str]:
        from hypervisor.core.secret_files import load_or_create_secret

        return load_or_create_secret(self.places.data, name)


def _identity(store: Database) -> str:
    from hypervisor.queue.context import NoStore
    from hypervisor.store.settings import identity

    return store.where if isinstance(store, NoStore) else identity(store)


def _open_if_exists(where: str, create: bool, relaxed: bool | None) -> Database:
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
            from hypervisor.core.extras import install_command

            raise StoreUnavailable(
                f"a PostgreSQL store needs psycopg: {install_command('postgres')}"
            ) from None
        return PostgresDatabase(where, bool(relaxed))
    if "://" in where:
        kind = where.partition("://")[0]
        raise InvalidInput(f"unknown kind of store {kind!r}: use a path or a postgresql:// URL.")
    from hypervisor.store.sqlite import SqliteDatabase

    path = store_path(where, create)
    folder = os.path.dirname(path)
    if not os.path.exists(path):
        if not create:
            raise NotFound(f"no store at {path}. Create one with `hv add` or `hv run`.")
        from hypervisor.store.new_store import make_empty_store, make_store_folder

        make_store_folder(folder)
        make_empty_store(path)
    return SqliteDatabase(path, _relaxed(folder) if relaxed is None else relaxed)


def _settings(config: dict[str, Any]) -> Settings:
    """The settings. Errors in the tables about agents are reported at once, too."""
    from hypervisor.runs.config import AGENT_TABLES, settings_from

    settings = settings_from(config)
    if any(name in config for name in AGENT_TABLES):
        from hypervisor.agents.config import agent_settings_from

        agent_settings_from(config)
    return settings


def _relaxed(folder: str) -> bool:
    """The durability set in config.toml; most commands need nothing else from it."""
    from hypervisor.core.config_file import FILE, read_config

    config = read_config(folder)
    if not config:
        return False
    try:
        return _settings(config).relaxed
    except InvalidInput as error:
        raise InvalidInput(f"{os.path.join(folder, FILE)}: {error}") from None


def _actor(environment: Mapping[str, str]) -> str:
    """The actor: HV_ACTOR, or the login name."""
    name = next(filter(None, map(environment.get, ("HV_ACTOR", "LOGNAME", "USER"))), "")
    name = "".join((name or _account()).split())
    return name.encode("utf-8", "replace").decode()[:200] or "unknown"


def _account() -> str:
    """The name of our user account; in a container it may have none."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid{os.getuid()}"


# Processes


def main() -> None:
    """Entry point of the command line."""
    if sys.platform != "linux":
        sys.stderr.write(f"hv: {NEEDS_LINUX}\n")
        sys.exit(CANNOT_RUN)
    gc.set_threshold(COLLECT_AFTER)
    try:
        if sys.argv[1:2] == ["run"]:
            prestart_supervisor(sys.argv[2:])
        pipe = _plain_pipe(sys.argv[2:]) if sys.argv[1:2] == ["mcp"] else None
        if pipe is not None:
            sys.exit(pipe.run())
        from hypervisor.cli.main import run

        code = run(sys.argv[1:], connect)
    except KeyboardInterrupt:  # before the command line can catch it
        code = 130
    _exit(code)


def _exit(code: int) -> NoReturn:
    """Exit without taking the interpreter apart: that can take longer than the command did."""
    threading = sys.modules.get("threading")
    if threading is None or threading.active_count() == 1:
        atexit._run_exitfuncs()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def prestart_supervisor(words: list[str]) -> None:
    """For `hv run`: unless a supervisor is running, start to load one in parallel."""
    from hypervisor.core.places import is_supervised, known_places
    from hypervisor.resources.host import LocalHost
    from hypervisor.runs.processes import prestart

    own = words[: words.index("--")] if "--" in words else words
    if {"--dry-run", "-h", "--help"} & {*own}:
        return
    named = [own[at + 1] for at, word in enumerate(own[:-1]) if word == "--store"]
    named += [word.partition("=")[2] for word in own if word.startswith("--store=")]
    where = (named[-1] if named else "") or os.environ.get("HYPERVISOR_STORE") or ""
    if "://" in where:  # its places are only known once it is open
        return
    with suppress(HypervisorError, OSError):  # the client reports the error later
        path = store_path(where, create=True)
        if not is_supervised(known_places(path, LocalHost().boot())):
            prestart.start()


def make_supervisor(
    hv: Context, idle_ms: int | None, governor: Governor | None = None, cores: int = 0
) -> Supervisor:
    """A supervisor with the parts of all rooms."""
    from hypervisor.agents.gateway.keeper import GatewayKeeper
    from hypervisor.agents.pools import AgentPools
    from hypervisor.batches.chunk_reporter import ChunkReporter
    from hypervisor.git.upkeep import Upkeep
    from hypervisor.learning.learner import Learner
    from hypervisor.monitoring.metrics import MetricsRecorder
    from hypervisor.monitoring.telemetry.starter import TelemetryStarter
    from hypervisor.notifications.notifier import Notifier
    from hypervisor.queue.counts import CountKeeper
    from hypervisor.resources.load import has_cpu_quota
    from hypervisor.runs.adaptive_pools import AdaptivePools
    from hypervisor.runs.current_specs import CurrentSpecs
    from hypervisor.runs.host_keeper import HostKeeper
    from hypervisor.runs.staffing import Staffing
    from hypervisor.runs.supervisor import Supervisor

    cores = cores or len(os.sched_getaffinity(0))
    governor = governor or _governor(hv.settings)
    specs, learner = CurrentSpecs(hv), Learner(hv, cores)
    agents, adaptive = AgentPools(hv, specs.spec), AdaptivePools(hv, learner)
    cpus = 0 if has_cpu_quota() else os.cpu_count() or 0
    staffing = Staffing(
        hv, governor, cores, specs=specs, agents=agents, adaptive=adaptive, cpus=cpus
    )
    parts: tuple[Part, ...] = (
        Notifier(hv),
        learner,
        ChunkReporter(hv, lambda: staffing.batches),
        Upkeep(hv),
        CountKeeper(hv),
        MetricsRecorder(hv),
        TelemetryStarter(hv, os.environ),
        GatewayKeeper(hv, specs.spec),
        HostKeeper(hv, _host_facts),
        *_parts_for_many_hosts(hv, staffing),
    )
    return Supervisor(hv, staffing, parts, idle_ms=idle_ms, after_sweep=_release_reduces)


def _governor(settings: Settings) -> Governor:
    from hypervisor.resources.governor import Governor
    from hypervisor.resources.load import HostLoad

    load = HostLoad(memory_limit=settings.memory_limit)
    return Governor(load, settings.thresholds, settings.strategy)


def _host_facts(hv: Context) -> HostFacts:
    """Other hosts must know which agents there are; on a single host, nobody asks."""
    from hypervisor.runs.host_keeper import host_facts

    facts = host_facts(hv)
    if hv.store.is_shared:
        from hypervisor.agents.host_facts import with_agents
        from hypervisor.cluster.ray_commands import ray_version

        facts = with_agents(hv, facts)
        ray = ray_version()
        return facts._replace(versions={**facts.versions, **({"ray": ray} if ray else {})})
    return facts


def _parts_for_many_hosts(hv: Context, staffing: Staffing) -> tuple[Part, ...]:
    if not hv.store.is_shared:
        return ()
    from hypervisor.runs.drain_request import DrainRequest
    from hypervisor.runs.outputs.live import LiveOutputs

    outputs = LiveOutputs(hv, staffing.workers.running_here, hv.settings.keep_each)
    return DrainRequest(hv), outputs


def _release_reduces(hv: Context) -> None:
    from hypervisor.batches.sql import pipelines

    if hv.store.read(pipelines.pending):
        from hypervisor.batches.reduce import release_reduces

        release_reduces(hv)


def _plain_pipe(words: list[str]) -> Pipe | None:
    """`hv mcp` without the command line parser, which would be half of its cost. None for arguments
    that need the parser."""
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
