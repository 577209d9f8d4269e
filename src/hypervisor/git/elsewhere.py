"""A repository that is on another host: the host from which its batch was submitted.

This host has a mirror of it, a bare repository with the commits that batches start from, which it
gets through the exchange. Clones of the mirror are made as those of any repository, and what was
done in them goes back through the exchange. Only the host that has the repository merges.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypervisor.core.errors import WorkspaceError
from hypervisor.core.private_folders import make_private_folders
from hypervisor.git.command import Git
from hypervisor.git.exchange import (
    base_name,
    ended_ref,
    exchange_of,
    fetch_commit,
    open_exchange,
    put_commit,
    refs_of_work,
    space_of,
    work_name,
)
from hypervisor.git.files import locked, write_file
from hypervisor.git.hub import Hub, hub_path
from hypervisor.git.repository import Repository, discover, filters_at, submodules_at
from hypervisor.runs.spec import GIT

EXCHANGES = "hv-exchanges"

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypervisor.queue.task import Json
    from hypervisor.runs.spec import GitSpec, RunSpec


def is_elsewhere(spec: RunSpec, host: str) -> bool:
    """Whether the repository of a batch is on another host, and reached through an exchange."""
    return bool(spec.git.exchange) and spec.git.host != host


# On the host that has the repository


def with_exchange(data: str, spec: RunSpec, url: str, host: str) -> RunSpec:
    """The spec of a batch for hosts that lack its repository: they get its base from the exchange.
    WorkspaceError: it could not be put there. The spec is unchanged if that is impossible."""
    repository = discover(spec.cwd)
    if repository is None or why_not_sent(repository, spec.git.base):
        return spec
    hub = Hub(hub_path(data, repository))
    git = spec.git._replace(host=host, root=repository.root, hub=hub.path, exchange=url)
    try:
        _publish(hub, git)
    except OSError as error:
        raise WorkspaceError(
            f"{error}. Other hosts get the repository from there; fix it, or change `exchange` "
            "under [workspace] in config.toml. Nothing was started."
        ) from None
    return spec._replace(git=git)


def why_not_sent(repository: Repository, base: str) -> str:
    """Why hosts that lack a repository cannot get it, or ""."""
    git = repository.git()
    commit = git.commit_of(base or "HEAD")
    if repository.shallow:
        return "it is a shallow clone"
    if commit and "lfs" in filters_at(git, commit):
        return "it uses Git LFS"
    if commit and submodules_at(git, commit):
        return "it has submodules"
    return ""


class PutCommits:
    """What this host has put into an exchange: a folder of the hub with the URL, and refs."""

    def __init__(self, hub: Hub, url: str) -> None:
        self._hub, self._url = hub, url
        self._name = space_of(url, "")
        self._refs = f"refs/hv/exchange/{self._name}"

    def has(self, commit: str) -> bool:
        return bool(self._hub.refs(f"{self._refs}/{commit}"))

    def first(self) -> str:
        """The one that was put there with everything it leads to; others only have the rest."""
        return next(iter(self._hub.refs(f"{self._refs}/first").values()), "")

    def add(self, commit: str, *, is_first: bool) -> None:
        folder = os.path.join(self._hub.path, EXCHANGES)
        make_private_folders(folder)
        write_file(os.path.join(folder, self._name), self._url)
        self._hub.update_ref(f"{self._refs}/{commit}", commit)
        if is_first:
            self._hub.update_ref(f"{self._refs}/first", commit)

    def remove(self, commits: Iterable[str]) -> None:
        self._hub.delete_refs([f"{self._refs}/{commit}" for commit in commits])


def remove_from_exchanges(hub: Hub, host: str, tasks: Iterable[str], bases: Iterable[str]) -> None:
    """Remove the work of tasks, and commits that no batch starts from any more. What later commits
    were put on top of stays. OSError: that is not possible now."""
    folder = os.path.join(hub.path, EXCHANGES)
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            url = file.read()
        exchange, known = open_exchange(url, space_of(host, hub.path)), PutCommits(hub, url)
        unused = [base for base in bases if known.has(base) and base != known.first()]
        exchange.remove([f"work/{task}" for task in tasks] + [base_name(base) for base in unused])
        known.remove(unused)


def _publish(hub: Hub, git: GitSpec) -> None:
    """Once per commit and exchange. Later ones only have what the first did not."""
    known = PutCommits(hub, git.exchange)
    if known.has(git.base):
        return
    first = known.first()
    put_commit(exchange_of(git), hub, git.base, first)
    known.add(git.base, is_first=not first)


def publish_tip(hub: Hub, git: GitSpec, commit: str) -> None:
    """A commit that the next attempt of a task starts from, wherever that runs."""
    if git.exchange:
        _publish(hub, git._replace(base=commit))


def import_work(hub: Hub, git: GitSpec, task: str, attempt: int) -> bool:
    """Copy what another host did into the hub. False: nothing of it has been sent yet."""
    return bool(git.exchange) and exchange_of(git).get(hub, work_name(task, attempt))


# On another host


def mirror_of(data: str, spec: RunSpec) -> Repository:
    """The mirror of a repository; it may lack the base until that was fetched."""
    path = _mirror_path(data, spec.git.host, spec.git.hub)
    if not os.path.isdir(path):
        make_private_folders(os.path.dirname(path))
        with locked(f"{path}.lock"):
            if not os.path.isdir(path):
                _make(path, sha256=len(spec.git.base) == 64)
    return _mirror(path)


def _mirror_path(data: str, host: str, hub: str) -> str:
    name = os.path.basename(hub).removesuffix(".git")
    return os.path.join(data, "git", "mirrors", f"{name}-{space_of(host, hub)[:8]}")


def _make(path: str, *, sha256: bool) -> None:
    new = f"{path}.new"
    os.makedirs(new, exist_ok=True)
    kind = ("--object-format=sha256",) if sha256 else ()
    Git(new).run("init", "--quiet", "--bare", "--template=", *kind, "--", ".")
    os.rename(new, path)


def hubs_of_mirrors(data: str, host: str, specs: Iterable[Json]) -> set[str]:
    """The hubs here of repositories that are on other hosts, by the stored specs of batches."""
    paths = set()
    for spec in specs:
        if isinstance(spec, dict) and spec.get(GIT["exchange"]) and spec[GIT["host"]] != host:
            mirror = _mirror_path(data, spec[GIT["host"]], spec[GIT["hub"]])
            paths.add(hub_path(data, _mirror(mirror)))
    return paths


def _mirror(path: str) -> Repository:
    return Repository(path, path, path, bare=True)


def fetch_base(data: str, spec: RunSpec, commit: str = "") -> None:
    """Get a commit into the mirror. OSError: that is not possible now."""
    mirror = Hub(mirror_of(data, spec).common_dir)
    wanted = commit or spec.git.base
    with locked(f"{mirror.path}.lock"):
        if not fetch_commit(exchange_of(spec.git), mirror, wanted):
            raise OSError(f"{spec.git.exchange} does not have commit {wanted[:12]}")


def send_work(hub: Hub, git: GitSpec, task: str, attempt: int) -> None:
    """Send what is known of an attempt. OSError: that is not possible now."""
    refs = refs_of_work(hub, task, attempt)
    if refs:
        exchange_of(git).put(hub, work_name(task, attempt), refs, git.base)


def mark_ended(hub: Hub, task: str, attempt: int, commit: str) -> None:
    hub.update_ref(ended_ref(task, attempt), commit)
