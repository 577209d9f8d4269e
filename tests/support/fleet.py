"""Hosts of a fleet on one machine: each has its own pid namespace, so its processes, boot and
runtime folder differ from those of the others, and its own way to PostgreSQL, which can be cut."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from hypervisor.core.places import digest
from hypervisor.store.postgres_errors import without_secrets

UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
PATIENCE = 60
FORWARD, HOLD, REFUSE = "forward", "hold", "refuse"

# Writes a line every 20 ms while it runs: the attempt and the time, by a clock
# that all hosts here share.
WITNESS = """
import os, sys, time
until = time.monotonic() + float(sys.argv[2])
with open(sys.argv[1], "a", buffering=1) as file:
    while time.monotonic() < until:
        file.write(f"{os.environ['HV_ATTEMPT']} {time.monotonic_ns()}\\n")
        time.sleep(0.02)
"""


def can_unshare():
    with suppress(OSError):
        return subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0
    return False


class Proxy:
    """TCP in front of PostgreSQL. `hold` keeps connections open and passes nothing on, as a network
    that drops packets does; `refuse` closes them."""

    def __init__(self, url):
        parts = conninfo_to_dict(url)
        self._server = (str(parts.get("host") or "127.0.0.1"), int(parts.get("port") or 5432))
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        self.url = (
            f"postgresql://{parts.get('user', 'postgres')}@127.0.0.1:{port}/{parts['dbname']}"
        )
        self.mode, self._open = FORWARD, []  # type: str, list[socket.socket]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self, mode=HOLD):
        self.mode = mode
        if mode == REFUSE:
            for end in self._open:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def heal(self):
        self.mode = FORWARD

    def close(self):
        self.cut(REFUSE)
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.mode == REFUSE:
                    client.close()
                    continue
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _connect(self):
        host, port = self._server
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        return socket.create_connection((host, port))

    def _pass_on(self, client):
        with suppress(OSError), client, self._connect() as server:
            self._open += [client, server]
            selector = selectors.DefaultSelector()
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while True:
                if self.mode == HOLD:
                    time.sleep(0.01)
                    continue
                for key, _ in selector.select(0.05):
                    source: Any = key.fileobj
                    data = source.recv(1 << 16)
                    if not data or self.mode == REFUSE:
                        return
                    key.data.sendall(data)


class FleetHost:
    """`hv supervise` in a pid namespace of its own."""

    def __init__(self, name, url, folder, lease="3s", workers=2, env=None):
        self.proxy = Proxy(url)
        self.folder = Path(folder) / name
        data = self.folder / "hypervisor" / digest(without_secrets(self.proxy.url))
        data.mkdir(parents=True)
        (data / "config.toml").write_text(
            f'[hosts]\nlease = "{lease}"\n[run]\nworkers = {workers}\ngrace = "0.2s"\n'
            "[governor]\ncpu_warning = 1.0\ncpu_danger = 1.0\n"
            "ram_warning = 0.99\nram_danger = 0.99\nram_emergency = 1.0\n"
        )
        self.log = data / "supervisor.log"
        self._env = {**os.environ, "XDG_DATA_HOME": str(self.folder)}
        self._env |= {"HYPERVISOR_STORE": self.proxy.url, "HV_LAUNCHER": name, **(env or {})}
        self._output = (self.folder / "printed").open("w")
        self.process = self._start()

    def _start(self):
        command = [*UNSHARE, sys.executable, "-m", "hypervisor", "supervise"]
        return subprocess.Popen(
            command, env=self._env, stdout=self._output, stderr=self._output, cwd="/"
        )

    def pids(self):
        """All its processes, the namespace's first one first."""
        below, known = [self.process.pid], []
        while below:
            pid = below.pop()
            known.append(pid)
            with suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                below += map(int, children)
        return known[1:]

    def pids_of_ours(self):
        """The supervisor and its workers, without what they run."""
        named = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.pids()}
        return [pid for pid, words in named.items() if b"hypervisor" in words]

    def signal(self, number, pids=None):
        for pid in self.pids() if pids is None else pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self):
        self.signal(signal.SIGCONT)
        self.process.kill()  # the namespace ends with it
        self.process.wait()
        self.proxy.close()
        self._output.close()


def overlaps(witness):
    """Pairs of attempts of the same task that ran at the same time."""
    spans: dict[str, tuple[int, int]] = {}
    for line in Path(witness).read_text().splitlines():
        with suppress(ValueError):
            attempt, at = line.split()
            first, _ = spans.get(attempt, (int(at), 0))
            spans[attempt] = (first, int(at))
    by_task: dict[str, list[Any]] = {}
    for attempt, span in spans.items():
        by_task.setdefault(attempt.partition(".")[0], []).append((*span, attempt))
    found: list[Any] = []
    for attempts in by_task.values():
        attempts.sort()
        found += [(a, b) for a, b in pairwise(attempts) if b[0] <= a[1]]
    return found


def rows(url, sql):
    with psycopg.connect(make_conninfo(url), autocommit=True) as connection:
        return connection.execute(sql).fetchall()


class Submitter:
    """Adds tasks of so many seconds each; no supervisor is started for them."""

    def __init__(self, hv, witness, folder):
        self._hv, self._witness, self._folder = hv, witness, folder
        self._script = Path(folder) / "witness.py"
        self._script.write_text(WITNESS)

    def __call__(self, tasks, seconds, **spec):
        words = (str(self._script), str(self._witness), str(seconds), "{}")
        return self.command((sys.executable, "-S", *words), tasks, **spec)

    def command(self, command, tasks, **spec):
        from hypervisor.queue.task import NewTask
        from hypervisor.runs import sql
        from hypervisor.runs.spec import CommandSpec, RunSpec, spec_data

        hv = self._hv
        declared = spec_data(RunSpec(str(self._folder), CommandSpec(command), claim=1, **spec))
        hv.store.write(sql.declare, "b", declared, "t", hv.now())
        new = [NewTask(f"t{n}", data={"item": f"t{n}"}) for n in range(tasks)]
        return hv.add(new, batch="b").ids


def until(condition, what, patience=PATIENCE):
    deadline = time.monotonic() + patience
    while not (answer := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return answer


def states(url):
    return dict(rows(url, "SELECT state, count(*) FROM hypervisor.tasks GROUP BY state"))


def running_on(url, name):
    """Attempts that a host is running now."""
    return rows(
        url,
        "SELECT a.task, a.number FROM hypervisor.tasks t JOIN hypervisor.attempts a "
        "ON a.task = t.id AND a.number = t.attempt JOIN hypervisor.workers w ON w.id = a.worker "
        f"JOIN hypervisor.hosts h ON h.id = w.leased_by WHERE t.state = 'in_progress' "
        f"AND h.launcher = '{name}'",
    )


def seen(witness, attempts):
    text = Path(witness).read_text()
    return all(f"{task}.{number} " in text for task, number in attempts)


def check_end(url, witness, tasks):
    until(lambda: states(url) == {"done": tasks}, f"not done: {states(url)}")
    assert overlaps(witness) == []
    done = rows(
        url,
        "SELECT task, count(*) FROM hypervisor.events WHERE kind = 'complete' "
        "GROUP BY task HAVING count(*) <> 1",
    )
    assert done == []
