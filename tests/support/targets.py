"""What an attack aims at: a user's files, sockets, processes and servers, all made for a test."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

ATTACK = Path(__file__).parent / "attack.py"
BROKEN_BWRAP = "#!/bin/sh\necho 'bwrap: no namespaces here' >&2\nexit 1\n"


class Targets:
    def __init__(self, project: Any) -> None:
        """In the project's own home, which is above its folder."""
        home = Path(project.env["HOME"])
        self.secret = home / ".ssh" / "id_ed25519"
        self.secret.parent.mkdir()
        self.secret.write_text("secret")
        self.outside = home / "outside.txt"
        self.other = project.folder / ".hypervisor" / "agents" / "000000000000" / "home" / "notes"
        self.other.parent.mkdir(parents=True)
        self.other.write_text("of another attempt")
        self._store = project.store
        self.script = project.folder / "attack.py"
        self.script.write_text(ATTACK.read_text())
        self.neighbor = subprocess.Popen(["sleep", "600"])
        # Where the Docker socket is; without permission to create one there, in the home.
        folder = Path("/run") if os.access("/run", os.W_OK) else home
        self.socket = folder / f"hv-test-{os.getpid()}.sock"
        self._unix = socket.socket(socket.AF_UNIX)
        self._unix.bind(str(self.socket))
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self._tcp.getsockname()[1]
        for listening in (self._unix, self._tcp):
            listening.listen(16)
            threading.Thread(target=_answer, args=(listening,), daemon=True).start()

    def words(self) -> list[str]:
        """The command that tries everything."""
        where = {
            "secret": str(self.secret),
            "outside": str(self.outside),
            "store": self._store,
            "other": str(self.other),
            "socket": str(self.socket),
            "pid": self.neighbor.pid,
            "port": self.port,
        }
        return ["python3", self.script.name, json.dumps(where)]

    def shell_line(self) -> str:
        return shlex.join(self.words())

    def close(self) -> None:
        self.neighbor.kill()
        self.neighbor.wait()
        for listening in (self._unix, self._tcp):
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        self.socket.unlink(missing_ok=True)


def worked(text: str) -> dict[str, bool]:
    """What the attack printed, anywhere in a text."""
    line = text.split("ATTACK ", 1)[1]
    report = json.JSONDecoder().raw_decode(line)[0]
    result: dict[str, bool] = report["worked"]
    return result


def make_repository(folder: Path) -> None:
    """Commit everything in it, so that attempts can work in clones."""
    name = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    for words in (["init", "--quiet"], ["add", "attack.py"], ["commit", "--quiet", "-m", "one"]):
        subprocess.run(["git", *name, *words], cwd=folder, check=True)


def without_bubblewrap(project: Any) -> None:
    """From now on the project finds a bubblewrap that does not work."""
    folder = Path(project.env["HOME"]) / "broken"
    folder.mkdir()
    (folder / "bwrap").write_text(BROKEN_BWRAP)
    (folder / "bwrap").chmod(0o755)
    project.env["PATH"] = f"{folder}:{project.env['PATH']}"


def _answer(listening: socket.socket) -> None:
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        with client, suppress(OSError):
            client.settimeout(5)
            client.recv(4096)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
