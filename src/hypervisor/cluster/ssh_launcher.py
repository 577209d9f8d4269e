"""The launcher for hosts that are reached by ssh: starts a supervisor on each, once.

Nothing stays behind to start it again; `hv cluster up` does that, and is safe to repeat. The
store's URL travels on stdin: in an argument, other users of the host could read it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence

from hypervisor.cluster.launcher import Launched
from hypervisor.core.errors import InvalidInput
from hypervisor.runs.host_keeper import LAUNCHER

LIMIT = 60.0  # seconds for one host
OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-T")
# A login shell, for a PATH that has `hv`. The session of its own survives the connection.
SCRIPT = (
    "IFS= read -r HYPERVISOR_STORE && export HYPERVISOR_STORE {launcher}={name} && "
    "{{ [ ! -r ~/.profile ] || . ~/.profile; }} >/dev/null 2>&1; "
    "exec hv supervise --detach --stay --json"
)


class SshLauncher:
    def __init__(self, store: str, hosts: Sequence[str]) -> None:
        """`hosts` are destinations of ssh, such as `ada@build1`."""
        for host in hosts:
            if not host or host.startswith("-") or any(c.isspace() for c in host):
                raise InvalidInput(f"invalid host {host!r} (try: user@host)")
        self._store, self._hosts = store, tuple(hosts)
        self._known: dict[str, Launched] = {}

    def hosts(self) -> tuple[str, ...]:
        return self._hosts

    def start(self, host: str) -> None:
        script = SCRIPT.format(launcher=LAUNCHER, name=shlex.quote(f"ssh:{host}"))
        try:
            done = subprocess.run(
                ["ssh", *OPTIONS, "--", host, f"sh -c {shlex.quote(script)}"],
                input=f"{self._store}\n",
                capture_output=True,
                text=True,
                timeout=LIMIT,
            )
        except FileNotFoundError:
            raise InvalidInput("command not found: ssh") from None
        except subprocess.TimeoutExpired:
            self._known[host] = Launched(host, host, None, f"no answer within {LIMIT:.0f} seconds")
            return
        pid = _supervisor(done.stdout)
        lines = (done.stderr or done.stdout).strip().splitlines()
        trouble = "" if pid else (lines[-1] if lines else f"ssh exited with {done.returncode}")
        self._known[host] = Launched(host, host, pid, trouble)

    def look(self, host: str) -> Launched | None:
        return self._known.get(host)

    def release(self, host: str) -> None:
        """Nobody starts it again."""
        self._known.pop(host, None)


def _supervisor(printed: str) -> int | None:
    """From the last line: a login may print something before."""
    lines = printed.strip().splitlines()
    try:
        return int(json.loads(lines[-1])["supervisor"]) or None
    except (IndexError, KeyError, TypeError, ValueError):
        return None
