"""The exchange: where hosts that share a store hand each other commits of a repository.

It is a bare repository that all of them reach, or object storage with bundles (bundles.py). What is
in it has a name: `bases/COMMIT` is where batches start, `work/TASK/ATTEMPT` has the refs of an
attempt. Each repository has a space of its own in it. Whatever is put there twice is the same.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from hypervisor.core.errors import GitFailed
from hypervisor.git.command import Git
from hypervisor.git.hub import Hub, base_ref

if TYPE_CHECKING:
    from hypervisor.runs.spec import GitSpec

OURS = "refs/hv/"
TIMEOUT = 300.0  # seconds
MAX_REMOVED = 500  # refs at a time
KINDS = ("snapshots", "kept", "tasks", "ended")  # of refs about an attempt
OBJECT_STORES = ("s3://", "gs://", "az://", "file://")


class Exchange(Protocol):
    """Every call raises OSError if the exchange cannot be reached."""

    def put(self, hub: Hub, name: str, refs: Sequence[str], after: str = "") -> None:
        """Hand over refs of a hub. `after`: a base that other hosts have, or can get."""
        ...

    def get(self, hub: Hub, name: str) -> bool:
        """Copy what has a name into a hub, as the same refs. False: there is nothing."""
        ...

    def remove(self, names: Collection[str]) -> None:
        """Remove everything that has one of these names, or a name that starts with one."""
        ...


def exchange_of(git: GitSpec) -> Exchange:
    return open_exchange(git.exchange, space_of(git.host, git.hub))


def open_exchange(url: str, space: str) -> Exchange:
    if url.startswith(OBJECT_STORES):
        from hypervisor.git.bundles import BundleExchange

        return BundleExchange(url, space)
    return GitExchange(url, space)


def space_of(host: str, hub: str) -> str:
    """The space of a repository, from the host that has it and the path of its hub there."""
    from hypervisor.core.places import digest

    return digest(host, hub)


def base_name(commit: str) -> str:
    return f"bases/{commit}"


def work_name(task: str, attempt: int) -> str:
    return f"work/{task}/{attempt}"


def refs_of_work(hub: Hub, task: str, attempt: int) -> list[str]:
    """Everything that is known of an attempt: snapshots, other commits, and its finished work."""
    last = f"{task}/{attempt}"
    return list(hub.refs(*(f"{OURS}{kind}/{last}" for kind in KINDS)))


def ended_ref(task: str, attempt: int) -> str:
    """Set once an attempt has ended and its last snapshot was taken."""
    return f"{OURS}ended/{task}/{attempt}"


def may_have(name: str, ref: str) -> bool:
    """Whether a ref may come with a name. Other refs of a hub are not for other hosts to change."""
    kind, _, rest = name.partition("/")
    if kind == "bases":
        return ref == base_ref(rest)
    return any(f"{ref}/".startswith(f"{OURS}{each}/{rest}/") for each in KINDS)


def fetch_refs(git: Git, source: str, refs: Mapping[str, str]) -> None:
    """Copy refs of a repository or a bundle, under other names."""
    words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
    lines = "".join(f"+{theirs}:{ours}\n" for theirs, ours in refs.items())
    git.run(*words, "--stdin", "--", source, stdin=lines.encode())


def fetch_commit(exchange: Exchange, hub: Hub, commit: str) -> bool:
    """Get a commit that a batch or an attempt starts from, unless the hub has it."""
    if hub.git.commit_of(commit) is not None:
        return True
    return exchange.get(hub, base_name(commit)) and hub.git.commit_of(commit) is not None


def put_commit(exchange: Exchange, hub: Hub, commit: str, after: str = "") -> None:
    hub.keep_base(commit)
    exchange.put(hub, base_name(commit), [base_ref(commit)], after)


class GitExchange:
    """A bare repository at a URL or in a folder. A folder that does not exist is created."""

    def __init__(self, url: str, space: str) -> None:
        self.url, self._space = url, space

    def put(self, hub: Hub, name: str, refs: Sequence[str], after: str = "") -> None:
        self._make()
        place = self._place(name)
        pairs = [f"+{ref}:{place}/{ref.removeprefix(OURS)}" for ref in refs]
        self._push(hub.path, pairs)

    def get(self, hub: Hub, name: str) -> bool:
        place = f"{self._place(name)}/"
        refs = {ref: OURS + ref.removeprefix(place) for ref in self._refs(hub.path, place)}
        wanted = {theirs: ours for theirs, ours in refs.items() if may_have(name, ours)}
        if wanted:
            try:
                fetch_refs(self._git(hub.path), self.url, wanted)
            except GitFailed as error:
                raise unreachable(self.url, error.message) from error
        return bool(wanted)

    def remove(self, names: Collection[str]) -> None:
        if not names or (os.path.isabs(self.url) and not os.path.exists(self.url)):
            return
        places = tuple(f"{self._place(name)}/" for name in names)
        with tempfile.TemporaryDirectory() as folder:
            Git(folder).run("init", "--quiet", "--bare", "--template=", "--", ".")
            present = self._refs(folder, self._place(""))
            refs = [ref for ref in present if ref.startswith(places)]
            for first in range(0, len(refs), MAX_REMOVED):
                self._push(folder, [f":{ref}" for ref in refs[first : first + MAX_REMOVED]])

    def _place(self, name: str) -> str:
        return f"{OURS}{self._space}/{name}"

    def _make(self) -> None:
        if os.path.isabs(self.url) and not os.path.exists(os.path.join(self.url, "HEAD")):
            os.makedirs(self.url, exist_ok=True)
            Git(self.url).run("init", "--quiet", "--bare", "--template=", "--", ".")

    def _refs(self, folder: str, place: str) -> list[str]:
        lines = self._run(folder, "ls-remote", "--quiet", "--", self.url, f"{place}*")
        return [line.partition("\t")[2] for line in lines.splitlines()]

    def _push(self, folder: str, pairs: Sequence[str]) -> None:
        words = ("push", "--quiet", "--no-verify", "--no-follow-tags", "--recurse-submodules=no")
        self._run(folder, *words, "--", self.url, *pairs)

    def _run(self, folder: str, *words: str) -> str:
        try:
            return self._git(folder).text(*words)
        except GitFailed as error:
            raise unreachable(self.url, error.message) from error

    def _git(self, folder: str) -> Git:
        return Git(folder, env={"GIT_DIR": folder}, network=True, timeout=TIMEOUT)


def unreachable(url: str, reason: object) -> OSError:
    lines = str(reason).strip().splitlines()
    return OSError(f"cannot use the exchange {url}: {lines[-1] if lines else type(reason)}")
