"""Prepares sandboxed attempts: the words in front of the command, its environment, its evidence."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput, SandboxUnavailable
from hypervisor.core.places import make_private
from hypervisor.queue.attempt import Ended
from hypervisor.resources.host import LocalHost
from hypervisor.runs.processes.commands import not_runnable
from hypervisor.runs.sandbox import landlock, paths
from hypervisor.runs.sandbox.attempt import Attempt, Prepared
from hypervisor.runs.sandbox.bubblewrap import bubblewrap
from hypervisor.runs.sandbox.container import Container
from hypervisor.runs.sandbox.host import walls_for
from hypervisor.runs.sandbox.plan import SOCKET_FOLDER, Mounts, Plan, Reach, Server
from hypervisor.runs.sandbox.words import INSIDE, LAUNCH, RELAY

if TYPE_CHECKING:
    from hypervisor.core.places import Places
    from hypervisor.runs.sandbox.host import Walls
    from hypervisor.runs.sandbox.level import Level, SandboxSettings

# They lead to programs that act for the user, or to hidden folders.
NOT_INSIDE = frozenset(
    {
        *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS"),
        *("DBUS_SYSTEM_BUS_ADDRESS", "DOCKER_HOST", "CONTAINER_HOST", "DISPLAY", "XAUTHORITY"),
        *("WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"),
        *("XDG_DATA_HOME", "XDG_STATE_HOME", "HYPERVISOR_STORE", "HV_LOCKS", "TMP", "TEMP"),
        *("PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY"),
    }
)
PROXIES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
LOOPBACK = ("127.0.0.1", "localhost")
MAX_DENIALS = 20  # that become receipts
REMOVAL_TIME = 60


class Sandbox:
    """The sandboxes of one worker, one at a time."""

    def __init__(
        self,
        level: Level,
        settings: SandboxSettings,
        places: Places,
        *,
        worker: str,
        user_env: Mapping[str, str],
    ) -> None:
        """Never raises: `problem` says why no attempt may start."""
        self.level, self._settings, self._places = level, settings, places
        self.problem, self._walls = "", None  # type: str, Walls | None
        try:
            self._walls = walls_for(level, settings)
        except SandboxUnavailable as error:
            self.problem = str(error)
        self._homes = paths.user_homes(user_env)
        self._state = os.path.join(places.runtime, "sandbox", worker)
        self._private = os.path.join(places.data, "sandbox", worker)
        self._container: Container | None = None
        self._upstream = _upstream(user_env)
        _sweep(os.path.dirname(self._private))

    @property
    def walls(self) -> Walls:
        if self._walls is None:
            raise SandboxUnavailable(self.problem)
        return self._walls

    def refusal(self, attempt: Attempt) -> Ended | None:
        """Why it cannot be started at all: there is no sandbox, or no such program."""
        if self.problem:
            return Ended(None, None, 0.0, 0, error=self.problem)
        search = attempt.env.get("PATH", os.defpath)
        if self.walls.wall == "container" or shutil.which(attempt.argv[0], path=search):
            return None
        return not_runnable(attempt.argv[0], attempt.env)

    def mcp_words(self, address_file: str) -> tuple[str, ...]:
        """The command by which an agent inside reaches its MCP server."""
        wall = self.walls.wall
        python = ("python3", "-I", "-S", RELAY[-1]) if wall == "container" else RELAY
        return (*python, address_file)

    def prepare(self, attempt: Attempt) -> Prepared:
        """InvalidInput, SandboxUnavailable: it cannot be confined, and must not run."""
        walls = self.walls
        self._clear()
        for folder in (self._state, self._sockets, self._private):
            make_private(folder)
        if not attempt.home:
            attempt = attempt._replace(home=self._folder("home"), tmp=self._folder("tmp"))
        mounts = self._mounts(attempt)
        env = self._environment(attempt)
        network = self.level == "network"
        argv = attempt.argv
        plan: Plan = {}
        if attempt.server is not None:
            plan["mcp"] = self._mcp(attempt.server, attempt.address_file)
        if network:
            reach = self._reach(attempt.reach)
            argv = (*INSIDE, "{socket}", ",".join(map(str, (0, *reach.ports))), *argv)
            plan |= {"reach": reach, "denials": self._denials}
        if walls.wall == "landlock":
            plan["landlock"] = self._landlock(mounts)
        elif walls.wall == "container":
            argv = (*self._contained(attempt, mounts, env, argv[1:]),)
        else:
            sockets = self._sockets if attempt.server is not None else ""
            prefix = bubblewrap(
                walls.program, mounts, attempt.cwd, network=network, sockets=sockets
            )
            argv = (*prefix, *argv)
        return Prepared(self._launched(argv, plan), env)

    def finish(self) -> tuple[str, ...]:
        """The evidence of the last attempt; its private folders are removed."""
        lines = [f"sandbox: {self.level}, built with {self.walls.wall}"]
        denied = Counter(self._denied())
        for (host, port), times in denied.most_common(MAX_DENIALS):
            again = f" ({times} times)" if times > 1 else ""
            lines.append(f"sandbox: refused a connection to {host}:{port}{again}")
        if len(denied) > MAX_DENIALS:
            lines.append(f"sandbox: refused {len(denied) - MAX_DENIALS} more addresses")
        self._clear()
        return tuple(lines)

    def _launched(self, argv: tuple[str, ...], plan: Plan) -> tuple[str, ...]:
        """Without anything to serve outside, no launcher is needed."""
        if not plan:
            return argv
        path = os.path.join(self._state, "plan.json")
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump({**plan, "argv": argv}, file)
        return (*LAUNCH, path)

    def _mounts(self, attempt: Attempt) -> Mounts:
        data = os.path.realpath(self._places.data)
        hidden = paths.hidden_paths(self._homes, data)
        root = os.path.realpath(attempt.root) if attempt.root else ""
        guarded: tuple[str, ...] = ()
        if not root:
            root = paths.project_root(attempt.cwd, self._homes)
            guarded = paths.guarded_in(root)
        search = attempt.env.get("PATH", os.defpath)
        program = shutil.which(attempt.argv[0], path=search) or ""
        read = paths.needed_to_run([program, *attempt.programs], search, hidden)
        chosen = (os.path.realpath(os.path.expanduser(path)) for path in self._settings.read)
        read += tuple(path for path in chosen if os.path.exists(path))
        read += paths.borrowed_objects(root, data)
        folders = (os.path.realpath(attempt.home), os.path.realpath(attempt.tmp))
        write = (root, *folders) if attempt.may_write else folders
        read += guarded if attempt.may_write else (root,)
        files = tuple(os.path.realpath(path) for path in attempt.writable)
        return Mounts(hidden, read, (*write, *files), folders[1])

    def _reach(self, own: Reach) -> Reach:
        """Ports of this host are passed on as they are; everything else goes through the proxy."""
        hosts, ports = list(own.hosts), list(own.ports)
        for host in self._settings.allow:
            name, _, port = host.partition(":")
            if name in LOOPBACK and port.isdecimal():
                ports.append(int(port))
            else:
                hosts.append(host)
        return Reach(tuple(dict.fromkeys(hosts)), tuple(dict.fromkeys(ports)), self._upstream)

    def _environment(self, attempt: Attempt) -> dict[str, str]:
        dropped = NOT_INSIDE | (set(PROXIES) if self.level == "network" else set())
        env = {name: value for name, value in attempt.env.items() if name not in dropped}
        env |= {"HOME": attempt.home, "TMPDIR": attempt.tmp, "HV_SANDBOX": self.level}
        if self.level == "network":
            env |= {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
            env["NODE_USE_ENV_PROXY"] = "1"
        return env

    def _mcp(self, server: Server, address_file: str) -> Plan:
        """The address is in a file, because programs pass few variables on to MCP servers."""
        secret = ""
        path = os.path.join(self._sockets, "mcp.sock")
        inside = f"{SOCKET_FOLDER}/mcp.sock" if self.walls.wall == "bubblewrap" else path
        if self.walls.wall == "landlock":  # sockets that are files cannot be used
            path, secret = "", secrets.token_urlsafe(24)
        return {
            "path": path,
            "inside": inside,
            "secret": secret,
            "address_file": address_file,
            "server": server._asdict(),
        }

    def _landlock(self, mounts: Mounts) -> Plan:
        if nested := mounts.nested_in_write():
            raise InvalidInput(
                f"without bubblewrap, a sandbox cannot protect {nested[0]} inside a folder that "
                "may be changed: use --workspace clone, or install bubblewrap"
            )
        read = [*landlock.readable_rules(mounts.hidden), *mounts.read]
        return {"read": read, "write": mounts.write}

    def _contained(
        self, attempt: Attempt, mounts: Mounts, env: dict[str, str], arguments: tuple[str, ...]
    ) -> list[str]:
        name = f"hv-{attempt.name.lower().replace('.', '-')}-{secrets.token_hex(3)}"
        self._container = Container(self.walls.program, self._settings.image, name)
        mounts = mounts._replace(read=tuple(p for p in mounts.read if p not in mounts.hidden))
        sockets = (self._sockets, os.path.dirname(RELAY[-1])) if attempt.server is not None else ()
        prefix = self._container.prefix(mounts, attempt.cwd, env, sockets)
        return [*prefix, os.path.basename(attempt.argv[0]), *arguments]

    def _denied(self) -> list[tuple[str, int]]:
        with suppress(OSError, ValueError), open(self._denials, encoding="utf-8") as file:
            entries = [json.loads(line) for line in file]
            return [(entry["host"], entry["port"]) for entry in entries]
        return []

    @property
    def _sockets(self) -> str:
        return os.path.join(self._state, "sockets")

    @property
    def _denials(self) -> str:
        return os.path.join(self._state, "denials.jsonl")

    def _folder(self, name: str) -> str:
        return make_private(os.path.join(self._private, name))

    def _clear(self) -> None:
        """No process of an earlier attempt is left. A container may be: its engine runs it."""
        if self._container is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(self._container.removal(), capture_output=True, timeout=REMOVAL_TIME)
            self._container = None
        for folder in (self._state, self._private):
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                os.rmdir(os.path.dirname(folder))  # only once it is empty


def worker_folder(pid: int, start: int) -> str:
    """The name of a worker's folders."""
    return f"{pid}-{start}"


def _sweep(folder: str) -> None:
    """Remove what workers that were killed have left."""
    with suppress(OSError):
        for name in os.listdir(folder):
            pid, _, start = name.partition("-")
            if pid.isdecimal() and str(LocalHost().process_start(int(pid))) != start:
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def _upstream(user_env: Mapping[str, str]) -> str:
    """The proxy by which this host reaches others, if it needs one."""
    names = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
    return next((user_env[name] for name in names if user_env.get(name)), "")
