"""The private folders of agents: one for each task, kept while the task is unfinished.

A home holds the program's configuration and the sessions it wrote down, so that a later attempt
can go on with them. Nothing in it is the user's: of a login there are only links.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from hypervisor.core.errors import InvalidInput
from hypervisor.core.places import make_private
from hypervisor.queue.lease import Worker


class Home(NamedTuple):
    root: str
    home: str
    tmp: str

    @property
    def scratch(self) -> str:
        """The copy of the project, where the batch asks for one."""
        return os.path.join(self.root, "scratch")


def worker_home(worker: Worker) -> str:
    """The name of the home of an agent that claims by itself."""
    return f"{worker.pid}-{worker.pid_start}"


class AgentHomes:
    def __init__(self, data: str) -> None:
        self.root = os.path.join(data, "agents")

    def at(self, name: str) -> Home:
        if not name.replace("-", "").isalnum():  # other names could lead elsewhere
            raise InvalidInput(f"{name[:60]!r} is no name of a home.")
        root = os.path.join(self.root, name)
        return Home(root, os.path.join(root, "home"), os.path.join(root, "tmp"))

    def exists(self, name: str) -> bool:
        return os.path.isdir(self.at(name).home)

    def prepare(self, name: str) -> Home:
        """The home of a task, made if it is not there. What is in its TMPDIR goes: no process
        of an earlier attempt is left that could want it."""
        home = self.at(name)
        make_private(home.root)
        shutil.rmtree(home.tmp, ignore_errors=True)
        for folder in (home.home, home.tmp):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        return home

    def remove(self, name: str) -> None:
        """Links are removed, not what they lead to. Folders that were made read-only too."""
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
    """Let the program find the user's login where it looks for it; returns what was there."""
    found = []
    for name in files:
        source, link = os.path.join(user_home, name), os.path.join(home, name)
        if not user_home or os.path.isabs(name) or ".." in name.split("/"):
            continue
        if not os.path.exists(source):
            continue
        os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
        with suppress(FileExistsError):  # it is from an earlier attempt, or has been renewed
            os.symlink(source, link)
        found.append(name)
    return found
