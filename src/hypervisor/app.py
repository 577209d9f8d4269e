"""Finds the store, wires the rooms, starts the faces. The only module that knows all of them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from hypervisor.core.errors import InvalidInput, NotFound, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypervisor.core.places import Places
    from hypervisor.ports import AgentAdapter
    from hypervisor.queue.context import Context, Equipment
    from hypervisor.store.database import Database

FOLDER = ".hypervisor"
FILE = "store.db"
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
    hv = Context(opened, LocalHost(), _actor(), pid, lambda: _equipment(where, opened))
    hv.serve = lambda each_tick: _supervise(where or None, each_tick)
    return hv


def main() -> None:
    """Entry point of the command line."""
    if sys.platform != "linux":
        print(f"hv: {NEEDS_LINUX}", file=sys.stderr)
        sys.exit(CANNOT_RUN)
    try:
        if sys.argv[1:2] == ["run"]:
            from hypervisor import background

            background.start_ahead(sys.argv[2:])
        from hypervisor.cli.main import run

        code = run(sys.argv[1:], connect)
    except KeyboardInterrupt:  # before the command line could catch it
        code = 130
    sys.exit(code)


def serve() -> None:
    """Entry point of the processes that are started in the background."""
    from hypervisor import background

    role, *words = sys.argv[1:]
    if role == "supervisor-to-be":
        background.wait_ahead()
    elif role == "supervise":
        background.supervise(detached=True)
    elif role == "notify":
        background.notify()
    elif role == "work":
        background.work(*words)


def _supervise(store: str | None, each_tick: Callable[[str], None]) -> int:
    from hypervisor import background

    return background.supervise(False, store, each_tick)


def _equipment(given: str, store: Database) -> Equipment:
    from hypervisor.agents.homes import AgentHomes
    from hypervisor.batches.files import BatchFiles
    from hypervisor.core.places import places_of
    from hypervisor.inputs.task_files.files import TaskFiles
    from hypervisor.notifications.delivery import Courier
    from hypervisor.queue.context import Equipment
    from hypervisor.resources.host import LocalHost
    from hypervisor.runs.config import settings_from
    from hypervisor.runs.outputs.files import Outputs
    from hypervisor.runs.processes.launcher import LocalLauncher

    is_url, where = "://" in given, store.where
    folder = None if is_url else os.path.dirname(where)
    places = places_of(where, folder, _identity(store), LocalHost().boot())
    settings = settings_from(_config(places.data))
    launcher = LocalLauncher(given if is_url else where, places)
    return Equipment(
        launcher,
        Outputs(places.data),
        settings,
        BatchFiles(places.data),
        TaskFiles(locks_folder(places)),
        courier=Courier(places.data),
        agents=lambda: _agents(places),
        secret=lambda name: _secret(places.data, name),
        homes=AgentHomes(places.data),
    )


def _identity(store: Database) -> str:
    from hypervisor.queue.context import NoStore
    from hypervisor.store.settings import identity

    return store.where if isinstance(store, NoStore) else identity(store)


def places_for(store: str) -> Places | None:
    """Where the last supervisor of the store that is meant had its places. None for one whose
    name is known only once it is open."""
    from hypervisor.core.places import known_places
    from hypervisor.resources.host import LocalHost

    given = store or os.environ.get("HYPERVISOR_STORE") or ""
    if "://" in given:
        return None
    path = _path(given, create=True)
    return known_places(path, LocalHost().boot())


def _secret(folder: str, name: str) -> tuple[str, str]:
    from hypervisor.core.secret_files import kept_secret

    return kept_secret(folder, name)


def _agents(places: Places) -> AgentAdapter:
    from hypervisor.agents.programs import LocalAgents

    return LocalAgents(places.data, prompts_folder())


def prompts_folder() -> str:
    """Where the built-in frames of prompts are."""
    package = os.path.dirname(os.path.abspath(__file__))
    return os.path.join(package, "agents", "prompts")


def locks_folder(places: Places) -> str:
    """Where all who change the same task files queue up."""
    return os.path.join(places.runtime, "files")


def _open_or_not(where: str, create: bool, relaxed: bool | None) -> Database:
    from hypervisor.queue.context import NoStore

    try:
        return _open(where, create, relaxed)
    except NotFound:
        return cast("Database", NoStore(_path(where, create=True)))


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
    from hypervisor.store.sqlite import SqliteDatabase

    path = _path(where, create)
    folder = os.path.dirname(path)
    if not os.path.exists(path):
        if not create:
            raise NotFound(f"there is no store at {path}. `hv add` makes one.")
        _make_folder(folder)
        _make_private(path)
    return SqliteDatabase(path, _relaxed(folder) if relaxed is None else relaxed)


def _path(where: str, create: bool) -> str:
    """Under its own name: SQLite names its log after that, and whoever comes by a link must find
    the same lock, supervisor and outputs as everybody else."""
    try:
        where.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the store's path is not UTF-8: name another with --store.") from None
    path = _named(where, create)
    return os.path.realpath(path) if os.path.islink(path) else path


def _named(where: str, create: bool) -> str:
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
            from hypervisor.core import gitignore

            os.chmod(folder, 0o700)  # git may have made it, for the skills in it
            with suppress(FileExistsError), open(os.path.join(folder, gitignore.FILE), "x") as file:
                file.write(gitignore.SKILLS_ONLY)
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
