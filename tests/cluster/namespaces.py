"""Hosts in namespaces of their own on this machine: network, processes, name and home.

Each has an address on a bridge that only they and this machine know. A host can be cut off, paused,
killed and started again. Needs root.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

SUBNET = "10.213.77"
REAPER = """
import os, signal, time
signal.signal(signal.SIGCHLD, lambda *_: None)
while True:
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        time.sleep(0.2)
"""


def unavailable() -> str:
    """Why it cannot be done here, "" if it can."""
    if os.geteuid() != 0:
        return "hosts in network namespaces need root"
    missing = [name for name in ("ip", "unshare", "nsenter") if not shutil.which(name)]
    if missing:
        return f"command not found: {', '.join(missing)}"
    probe = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--uts", "true"]
    if subprocess.run(probe, capture_output=True).returncode:
        return "this system does not allow new namespaces"
    return ""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Network:
    def __init__(self) -> None:
        self.bridge = f"hvb{secrets.token_hex(3)}"
        self.address = f"{SUBNET}.1"
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.address}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")

    def remove(self) -> None:
        with suppress(subprocess.CalledProcessError):
            ip("link", "del", self.bridge)


class NamespaceHost:
    def __init__(self, network: Network, number: int) -> None:
        self.network, self.number = network, number
        self.name = f"host{number}"
        self.address = f"{SUBNET}.{10 + number}"
        self.home = Path(tempfile.mkdtemp(prefix=f"hvn{number}", dir="/tmp"))
        self._link = ""
        self._init: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Boot it: a first process, and a cable to the bridge."""
        namespaces = [
            "unshare",
            "--net",
            "--pid",
            "--fork",
            "--mount-proc",
            "--uts",
            "--kill-child",
        ]
        self._init = subprocess.Popen([*namespaces, sys.executable, "-I", "-c", REAPER])
        inner = self._inner()
        self._link = f"hvh{secrets.token_hex(3)}"
        ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", str(inner))
        ip("link", "set", self._link, "master", self.network.bridge, "up")
        for command in (
            ("hostname", self.name),
            ("ip", "link", "set", "lo", "up"),
            ("ip", "addr", "add", f"{self.address}/24", "dev", "eth0"),
            ("ip", "link", "set", "eth0", "up"),
        ):
            subprocess.run(self._entered(*command), check=True)

    def run(self, *words, env, given="", timeout=120.0):
        return subprocess.run(
            self._entered(*words),
            env=env,
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def cut_off(self) -> None:
        ip("link", "set", self._link, "down")

    def reconnect(self) -> None:
        ip("link", "set", self._link, "up")

    def pause(self) -> None:
        """Stop all its processes, until none was missed."""
        stopped: set[int] = set()
        while new := set(self.processes()) - stopped:
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= new

    def wake(self) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Without its first process, the kernel kills all others."""
        if self._init is not None:
            with suppress(ProcessLookupError, FileNotFoundError, StopIteration):
                os.kill(self._inner(), signal.SIGKILL)
            self._init.kill()
            self._init.wait()
            self._init = None
            with suppress(subprocess.CalledProcessError):
                ip("link", "del", self._link)

    def processes(self) -> list[int]:
        """As numbered on this machine, without the first one."""
        if self._init is None:
            return []
        inner = self._inner()
        mine = os.readlink(f"/proc/{inner}/ns/pid")
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(folder / "ns" / "pid") == mine and int(folder.name) != inner:
                    found.append(int(folder.name))
        return found

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def _inner(self) -> int:
        """The first process of the namespace, as numbered on this machine."""
        assert self._init is not None
        path = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children")
        while not (children := path.read_text().split()):
            assert self._init.poll() is None, "the namespace ended"
        return int(children[0])

    def _entered(self, *words: str) -> list[str]:
        namespaces = ("--net", "--pid", "--mount", "--uts")
        return ["nsenter", "--target", str(self._inner()), *namespaces, "--", *words]


class SocketProxy:
    """Makes a server on a Unix socket available on the bridge."""

    def __init__(self, path: str, address: str) -> None:
        self._path = path
        self._listening = socket.create_server((address, 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._path)
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_copy, args=pair, daemon=True).start()

    def close(self) -> None:
        self._listening.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
