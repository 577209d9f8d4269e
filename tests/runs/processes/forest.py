"""Process trees for the tests: starting them, listing them, reliably ending them.

Each tree has a folder of its own as working directory. No fork, new session or
scrubbed environment changes that, so it shows which tree a process belongs to,
independently of the code under test. Everything ends with the forest.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hypervisor.resources.process_table import Process, snapshot

SOURCE = Path(__file__).parents[3] / "src"
DEADLINE = 100.0
PATIENCE = 50.0  # seconds that killed processes may take to go here: the machine may be slow
BARE = [sys.executable, "-S", "-E"]
# The mark of an attempt: processes that have it are ended, so no other test may use it.
MARK = f"t{os.getpid()}.1"

# Starts one process of each kind named, which signs the roster once it is set up. None
# lives for more than a minute or two, whatever happens to the test.
ATTEMPT = r"""
import os, signal, sys, time

END = time.monotonic() + 60

def sign(kind):
    roster = os.open("roster", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(roster, b"%d %s\n" % (os.getpid(), kind.encode()))
    os.close(roster)

def stay(kind):
    sign(kind)
    time.sleep(120)

def grow(then, *args):
    if os.fork() == 0:
        try:
            then(*args)
        finally:
            os._exit(1)

def plain():
    stay("plain")

def session():
    os.setsid()
    stay("session")

def daemon():
    os.setsid()
    grow(stay, "daemon")
    os._exit(0)

def branch():
    grow(plain)
    os.setpgid(0, 0)
    stay("branch")

def stubborn():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    stay("stubborn")

def stopped():
    sign("stopped")
    os.kill(os.getpid(), signal.SIGSTOP)
    stay("woken")

def scrubbed():
    script = "echo $$ scrubbed >> roster; exec sleep 120"
    os.execv("/usr/bin/env", ["env", "-i", "/bin/sh", "-c", script])

def lost():
    os.setsid()
    grow(scrubbed)
    os._exit(0)

def hide():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    scrubbed()

def hider():
    os.setsid()
    grow(hide)
    stay("hider")

def scatterer():
    sign("scatterer")
    for _ in range(100):
        grow(hide)
        time.sleep(0.003)
    stay("spent")

def relay():
    def pass_on(number, frame):
        if os.fork():
            os._exit(0)
        sign("relayed")
    signal.signal(signal.SIGUSR1, pass_on)
    stay("relay")

def forker():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sign("forker")
    while time.monotonic() < END:
        grow(time.sleep, 0.3)
        time.sleep(0.004)

def runner():
    sign("runner")
    while time.monotonic() < END and os.fork() == 0:
        pass
    os._exit(0)

def fleer():
    sign("fleer")
    while time.monotonic() < END and os.fork() == 0:
        os.setsid()
    os._exit(0)

def tidy():
    def tidy_up(number, frame):
        os.execv("/bin/sh", ["sh", "-c", "sleep 0.3; echo tidy > tidied"])
    signal.signal(signal.SIGTERM, tidy_up)
    stay("tidy")

def headless():
    import ctypes, threading
    threading.Thread(target=time.sleep, args=(120,)).start()
    sign("headless")
    ctypes.CDLL(None).pthread_exit(None)

for kind in sys.argv[1:]:
    grow(globals()[kind])
stay("leader")
"""

# Runs one attempt as a worker does, then calls what it is given.
WORKER = r"""
import json, os, sys
sys.path.insert(0, sys.argv[1])
from hypervisor.resources import cgroup, host
from hypervisor.resources import process_table as processes
from hypervisor.runs.processes import kill as ending
from hypervisor.runs.processes import tree

def say(message):
    print(json.dumps(message), flush=True)

tree.become_reaper()
ending.PATIENCE = float(sys.argv.pop())
folder, mark, *attempt = sys.argv[2:]
home = os.getcwd()
leader = 0

def start():
    global leader
    os.chdir(folder)
    env = {**os.environ, "HV_ATTEMPT": mark}
    leader = os.posix_spawn(attempt[0], attempt, env, setsid=True)
    os.chdir(home)
    return [leader, host.LocalHost().process_start(leader)]

say(os.getpid())
for line in sys.stdin:
    try:
        say({"answer": eval(line)})
    except Exception as error:
        say({"error": type(error).__name__, "pids": getattr(error, "pids", None)})
"""

MIX = [
    *["plain"] * 8,
    *["session"] * 8,
    *["daemon"] * 8,
    *["branch"] * 3,
    *["stubborn"] * 6,
    *["stopped"] * 5,
    *["scrubbed"] * 3,
    *["lost"] * 4,
    "hider",
    "forker",
]
GROWN = 52  # signatures: a branch and a hider grow two, and there is the leader


class Refused(Exception):
    def __init__(self, kind: str, pids: list[int] | None) -> None:
        super().__init__(kind)
        self.kind = kind
        self.pids = pids


class Worker:
    def __init__(self, forest: Forest, folder: Path, mark: str, kinds: list[str]) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [
                *BARE,
                "-c",
                WORKER,
                str(SOURCE),
                str(folder),
                mark,
                *BARE,
                "-c",
                ATTEMPT,
                *kinds,
                str(PATIENCE),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=forest.folder,
            text=True,
            bufsize=1,
        )
        self.pid = self._process.pid
        assert self._hear() == self.pid
        self.leader: tuple[int, int] | None = None

    def grow(self, signatures: int) -> None:
        """Start the attempt and wait until that many of its processes are set up."""
        pid, start = self.call("start()")
        self.leader = (pid, start)
        wait_for(lambda: len(self.roster()) >= signatures, f"{signatures} in {self.folder}")

    def roster(self) -> list[tuple[int, str]]:
        try:
            lines = (self.folder / "roster").read_text().split("\n")
        except FileNotFoundError:
            return []
        return [(int(pid), kind) for pid, kind in (line.split() for line in lines if line)]

    def one(self, wanted: str) -> int:
        return next(pid for pid, kind in self.roster() if kind == wanted)

    def call(self, expression: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(expression + "\n")
        answer = self._hear()
        if "error" in answer:
            raise Refused(answer["error"], answer["pids"])
        return answer["answer"]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=DEADLINE)

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], DEADLINE)[0], "no answer"
        line = self._process.stdout.readline()
        assert line, "the worker has ended"
        return json.loads(line)


class Forest:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._workers: list[Worker] = []
        self._others: list[subprocess.Popen[bytes]] = []

    def worker(self, name: str, kinds: list[str], mark: str = "") -> Worker:
        folder = self.folder / name
        folder.mkdir()
        self._workers.append(Worker(self, folder, mark or name, kinds))
        return self._workers[-1]

    def other(self, *command: str, **options: Any) -> int:
        """A process outside all trees."""
        found = subprocess.Popen(command, cwd=self.folder, **options)
        self._others.append(found)
        return found.pid

    def living(self, folder: Path) -> list[int]:
        """Every process that works in the folder, whatever its parent is now."""
        return [pid for pid, place in _places() if place == str(folder)]

    def fell(self) -> None:
        wait_for(self._nothing_lives, "the end of all processes")
        for worker in self._workers:
            worker.close()
        for other in self._others:
            other.wait(DEADLINE)

    def _nothing_lives(self) -> bool:
        left = [pid for pid, place in _places() if place.startswith(str(self.folder))]
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return not left


def _places() -> list[tuple[int, str]]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                # One of the threads: the main one may have ended before the others.
                thread = os.listdir(f"/proc/{entry}/task")[-1]
                found.append((int(entry), os.readlink(f"/proc/{entry}/task/{thread}/cwd")))
            except (OSError, IndexError):
                continue
    return found


def wait_for(condition: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.002)


def look(pid: int) -> Process:
    found = snapshot().get(pid)
    assert found is not None
    return found


def identity(pids: Iterable[int]) -> set[tuple[int, int]]:
    """Their identities, to tell a live process from one that reuses its pid."""
    all = snapshot()
    return {(pid, all[pid].start) for pid in pids if pid in all and all[pid].lives}
