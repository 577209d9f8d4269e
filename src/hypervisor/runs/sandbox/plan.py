"""The plan of one sandboxed attempt: which paths it can read and write, and whom it can reach."""

from collections.abc import Iterable
from typing import Any

from hypervisor.core.records import NamedTuple

SOCKET_FOLDER = "/run/hypervisor"  # inside, with bubblewrap
HIDDEN_SYSTEM = ("/run", "/tmp", "/var/tmp", "/dev/shm", "/home", "/root")


class Mounts(NamedTuple):
    """Absolute paths without links. The innermost path that contains a file decides about it;
    everything else is read-only."""

    hidden: tuple[str, ...]
    read: tuple[str, ...]
    write: tuple[str, ...]
    tmp: str  # the folder that is /tmp inside

    def in_order(self) -> list[tuple[str, str]]:
        """Every path with what is done about it, outer paths first."""
        deeds = dict.fromkeys(self.hidden, "hide")
        deeds |= dict.fromkeys(self.read, "read")
        deeds |= dict.fromkeys(self.write, "write")
        return sorted(deeds.items(), key=lambda pair: (pair[0].count("/"), pair[0]))

    def nested_in_write(self) -> list[str]:
        """Paths inside of a writable one that must not be writable: Landlock cannot do that."""
        held = (*self.hidden, *self.read)
        return [path for path in held if any(is_below(path, outer) for outer in self.write)]


class Reach(NamedTuple):
    """Whom an attempt with its own network reaches. `ports` are of this host."""

    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    upstream: str = ""  # the proxy of the user, as a URL


class Server(NamedTuple):
    """The MCP server that runs outside, for each connection from inside."""

    argv: tuple[str, ...]
    env: dict[str, str]


def is_below(path: str, outer: str) -> bool:
    return path != outer and path.startswith(outer.rstrip("/") + "/")


def without_nested(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths, without those that are inside of another one."""
    unique = sorted(set(paths))
    return tuple(p for p in unique if not any(is_below(p, other) for other in unique))


def allows(hosts: Iterable[str], name: str, port: int) -> bool:
    """Whether a host is on the list, as `name`, `*.name` (what is below) or `name:port`."""
    name = name.rstrip(".").lower()
    for rule in hosts:
        host, _, wanted = rule.lower().partition(":")
        if wanted and wanted != str(port):
            continue
        if host == name or (host.startswith("*.") and name.endswith(host[1:])):
            return True
    return False


def refusal(name: str, port: int) -> str:
    """What the attempt is told about a refused connection."""
    return (
        f"Hypervisor's sandbox does not allow connections to {name}:{port}. Do not try to get "
        f"around this. If the task needs it, say so in your report: the user can add "
        f'"{name}" to `allow` in [sandbox] of config.toml.\n'
    )


Plan = dict[str, Any]  # as the launcher reads it from its file
