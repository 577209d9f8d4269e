"""The command line of podman or docker for an attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypervisor.runs.sandbox.plan import Mounts

ENGINES = ("podman", "docker")
# Variables about this host, not about the file system of an image.
NOT_PASSED = frozenset({"PATH", "SHELL", "PWD", "OLDPWD", "TERM", "USER", "LOGNAME"})


class Container:
    """A container for one attempt; `name` is how it is found and removed."""

    def __init__(self, engine: str, image: str, name: str) -> None:
        self._engine, self._image, self._name = engine, image, name

    def prefix(
        self, mounts: Mounts, cwd: str, env: Mapping[str, str], sockets: Iterable[str] = ()
    ) -> list[str]:
        """The words in front of the attempt's command. Values of variables are not among them:
        the engine takes those from its own environment."""
        words = [self._engine, "run", "--rm", "--interactive", "--init", "--name", self._name]
        words += ["--security-opt", "no-new-privileges", "--cap-drop", "ALL"]
        for path in mounts.write:
            words += ["--volume", f"{path}:{path}"]
        for path in (*mounts.read, *sockets):
            words += ["--volume", f"{path}:{path}:ro"]
        words += ["--volume", f"{mounts.tmp}:/tmp", "--workdir", cwd]
        for name in sorted(set(env) - NOT_PASSED):
            words += ["--env", name]
        return [*words, self._image]

    def removal(self) -> list[str]:
        """The command that ends the container if it outlives the engine's client."""
        return [self._engine, "rm", "--force", self._name]
