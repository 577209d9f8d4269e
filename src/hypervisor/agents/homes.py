"""The private folders of agents: one for each task, kept while the task is unfinished.

A home contains the program's configuration and its saved sessions, so that a later attempt can
resume them. It contains no files of the user; a login is only linked.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress

from hypervisor.core.errors import InvalidInput
from hypervisor.core.places import make_private
from hypervisor.core.records import NamedTuple
from hypervisor.queue.lease import Worker


class Home(NamedTuple):
    root: str
    home: str
    tmp: str


def worker_home(worker: Worker) -> str:
    """The name of a pull agent's home."""
    return f"{worker.pid}-{worker.pid_start}"


class AgentHomes:
    def __init__(self, data: str) -> None:
        self.root = os.path.join(data, "agents")

    def at(self, name: str) -> Home:
        if not name.replace("-", "").isalnum():  # other names could lead elsewhere
            raise InvalidInput(f"invalid name of a home: {name[:60]!r}")
        root = os.path.join(self.root, name)
        return Home(root, os.path.join(root, "home"), os.path.join(root, "tmp"))

    def exists(self, name: str) -> bool:
        return os.path.isdir(self.at(name).home)

    def prepare(self, name: str) -> Home:
        """The home of a task, created if missing. Its TMPDIR is emptied: no process of an earlier
        attempt is left."""
        home = self.at(name)
        make_private(home.root)
        shutil.rmtree(home.tmp, ignore_errors=True)
        for folder in (home.home, home.tmp):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        return home

    def remove(self, name: str) -> None:
        """Links are removed, not their targets; read-only folders are removed, too."""
        root = self.at(name).root
        if not os.path.isdir(root):
            return
        shutil.rmtree(root, ignore_errors=True)
        if os.path.isdir(root):
            for folder, _, _ in os.walk(root):
                with suppress(OSError):
                    os.chmod(folder, 0o700)
            shutil.rmtree(root, ignore_errors=True)
        with suppress(OSError):
            os.rmdir(self.root)  # only once it is empty

    def all(self) -> Iterator[str]:
        with suppress(OSError):
            yield from sorted(os.listdir(self.root))


def link_login(home: str, user_home: str, files: Iterable[str]) -> list[str]:
    """Link the user's login files into the home; returns those that exist."""
    linked = []
    for name in files:
        source, link = os.path.join(user_home, name), os.path.join(home, name)
        if not user_home or os.path.isabs(name) or ".." in name.split("/"):
            continue
        if not os.path.exists(source):
            continue
        os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
        with suppress(FileExistsError):  # from an earlier attempt, or renewed by the agent
            os.symlink(source, link)
        linked.append(name)
    return linked


def unlink_login(home: str, files: Iterable[str]) -> None:
    """Remove the links of an earlier attempt to the user's login files."""
    for name in files:
        path = os.path.join(home, name)
        if os.path.islink(path):
            os.unlink(path)
