"""The command line as a person or a script uses it: a real process in its own folder.

`hv(...)` forks: a real process without starting an interpreter, which would take most of
the time of hundreds of calls. `hv.start(...)` starts the program as `./hv` does.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import apsw
import pytest

import hypervisor
from hypervisor.app import connect
from hypervisor.cli.commands_table import COMMANDS
from hypervisor.cli.main import make_parser, run
from hypervisor.resources.process_table import environment, snapshot
from tests.cli.terminal import Terminal
from tests.support import standin
from tests.support.ungoverned import UNGOVERNED

for command in COMMANDS.values():  # imported once here, so that no child has to
    make_parser(command)

DEADLINE = 120.0
PATIENCE = 120  # seconds: of one command
CONFIG = f"""
[store]
durability = "relaxed"
[run]
grace = 1
{UNGOVERNED}
"""
PROGRAM = (
    sys.executable,
    "-I",
    "-c",
    'import sys; sys.argv[0] = "hv"; from hypervisor.app import main; main()',
)


class Result(NamedTuple):
    code: int
    out: str
    err: str


class Cli:
    """`hv(...)` runs a command in `folder`; `hv.ok(...)` expects it to succeed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uid: int | None = None  # to be another user; needs root
        self.env = {
            "PATH": os.defpath,
            "HOME": str(folder),
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            "HV_ACTOR": "tester",
        }

    def __call__(
        self,
        *args: str | bytes,
        stdin: str | bytes | None = None,
        cwd: Path | None = None,
        **env: str,
    ) -> Result:
        given = stdin.encode() if isinstance(stdin, str) else stdin or b""
        return _fork(args, given, cwd or self.folder, {**self.env, **env}, uid=self.uid)

    def ok(self, *args: str | bytes, stdin: str | bytes | None = None, **env: str) -> str:
        code, out, err = self(*args, stdin=stdin, cwd=None, **env)
        assert (code, err) == (0, ""), (args, code, err)
        return out

    def json(self, *args: str | bytes, stdin: str | bytes | None = None) -> Any:
        return json.loads(self.ok(*args, "--json", stdin=stdin))

    def exec(self, *args: str | bytes, stdin: str = "", **env: str) -> Result:
        """As `hv(...)`, through a fresh interpreter."""
        done = subprocess.run(
            [*PROGRAM, *args],
            cwd=self.folder,
            env={**self.env, **env},
            input=stdin.encode(),
            capture_output=True,
            timeout=PATIENCE,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *args: str, **more: Any) -> subprocess.Popen[Any]:
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
        return subprocess.Popen([*PROGRAM, *args], cwd=self.folder, env=self.env, **more)

    @property
    def store(self) -> Path:
        return self.folder / ".hypervisor" / "store.db"

    def add(self, title: str = "a task", *options: str) -> str:
        return self.ok("add", *options, "--", title).strip()

    def claim(self, *options: str) -> str:
        return self.ok("claim", *options).split()[0]

    def task(self, task: str) -> Any:
        return self.json("show", task)["detail"]["task"]

    def refused(self, code: int, *args: str | bytes, stdin: str | bytes | None = None) -> str:
        """Expects one clear line, this exit code, and nothing changed; returns the line."""
        before = self.content()
        result = self(*args, stdin=stdin)
        assert result.code == code, result
        assert result.out == "", result
        assert_one_clear_line(result.err)
        assert self.content() == before
        return result.err

    def content(self) -> dict[str, list[Any]]:
        """Every row of the store, to check that nothing changed; except for what happens
        after the last task of a run (its workers exit, its supervisor learns), for the row
        with which a supervisor renews its host's lease, and for the store's clock."""
        if not self.store.exists():
            return {}
        connection = apsw.Connection(str(self.store), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            found = {
                str(name): connection.execute(f'SELECT * FROM "{name}"').fetchall()
                for (name,) in tables.fetchall()
            }
            for table in ("learned_records", "learner_cursors", "clocks", "hosts"):
                found.pop(table, None)
            found["workers"] = [row[:1] for row in found["workers"]]
            return found
        finally:
            connection.close()


def _fork(
    args: Sequence[str | bytes], stdin: bytes, cwd: Path, env: dict[str, str], *, uid: int | None
) -> Result:
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile()) for _ in range(3)]
        files[0].write(stdin)
        for file in files:
            file.seek(0)
        child = os.fork()
        if child == 0:
            _become(uid)
            _be_the_program([os.fsdecode(arg) for arg in args], files, cwd, env)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for file in files:
            file.seek(0)
        return Result(code, files[1].read().decode(), files[2].read().decode())


def _become(uid: int | None) -> None:
    if uid is not None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)


def _be_the_program(args: list[str], files: Sequence[Any], cwd: Path, env: dict[str, str]) -> None:
    code = 99
    signal.alarm(PATIENCE)  # a command that hangs is one failed test, not a suite that never ends
    try:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r")), "utf-8")
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), "utf-8")
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), "utf-8", "backslashreplace")
        os.environ.clear()
        os.environ.update(env)
        time.tzset()
        os.chdir(cwd)
        code = run(args, connect)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def assert_one_clear_line(err: str) -> None:
    assert err.endswith("\n"), err
    line = err[:-1]
    assert line.startswith("hv: "), err
    assert line.isprintable(), err
    assert len(line) < 1000, line[:2000]
    assert "Traceback" not in line and "hv: unexpected" not in line, err


class Project(Cli):
    """A command line that really runs work, with its own supervisors and workers."""

    @property
    def runtime(self) -> Path:
        return Path(self.env["XDG_RUNTIME_DIR"])

    def supervisor(self) -> int | None:
        found = self.json("status")["supervisor"]
        return None if found is None else int(found)

    def terminal(self, *args: str, columns: int = 80, rows: int = 24, **env: str) -> Terminal:
        """The command on a terminal of its own; `stdin` is that terminal, too."""
        made = Terminal([*PROGRAM, *args], self.folder, {**self.env, **env}, columns, rows)
        self.terminals.append(made)
        return made

    def state(self, task: str) -> str:
        return str(self.task(task)["state"])

    def tasks(self, batch: str) -> list[Any]:
        """The tasks of a batch by title, from its summary."""
        found: list[Any] = self.json("summary", batch)["tasks"]
        return sorted(found, key=lambda task: str(task["title"]))

    def __init__(self, folder: Path, runtime: Path) -> None:
        super().__init__(folder)
        self.env["XDG_RUNTIME_DIR"] = str(runtime)
        self.terminals: list[Terminal] = []

    def equip(self, key: str = "sk-planted") -> None:
        """Configure the stand-ins for agents, and set the key that they need."""
        config = self.folder / ".hypervisor" / "config.toml"
        config.write_text(config.read_text() + standin.config(self.folder / "agents"))
        self.env["STANDIN_KEY"] = key

    def end(self) -> None:
        """Stop all processes that a test has left running, by pid."""
        for terminal in self.terminals:
            terminal.close()
        deadline = time.monotonic() + DEADLINE
        asked: Counter[int] = Counter()
        while found := self._supervisors():
            assert time.monotonic() < deadline, "a supervisor does not end"
            for pid in found:
                asked[pid] += 1
                if asked[pid] <= 2:  # once drains, twice stops
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
            time.sleep(0.05)

    def _supervisors(self) -> list[int]:
        """Recognized by a variable that is set only here, whatever store they serve."""
        mark = f"XDG_RUNTIME_DIR={self.runtime}".encode()
        return [
            process.pid
            for process in snapshot().values()
            if process.lives
            and mark in environment(process.pid)
            and b"\0supervise\0" in _command_line(process.pid)
        ]


def _command_line(pid: int) -> bytes:
    """Empty for a process that has just ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def until(condition: Callable[[], Any], what: str = "") -> Any:
    """Wait for a condition; returns its value."""
    deadline = time.monotonic() + DEADLINE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"did not happen in time: {what}"
        time.sleep(0.02)
    return found


@pytest.fixture
def project(tmp_path):
    """A folder with a store in which work is really run, whatever else runs on this host."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    made = Project(tmp_path / "project", runtime)
    folder = made.folder / ".hypervisor"
    hypervisor.open(folder, relaxed=True).close()
    folder.joinpath("config.toml").write_text(CONFIG)
    yield made
    made.end()


@pytest.fixture
def bare(tmp_path):
    """A command line in an empty folder."""
    return Cli(tmp_path)


@pytest.fixture
def hv(bare):
    """A command line beside an empty store, which does not wait for the disk."""
    folder = bare.folder / ".hypervisor"
    hypervisor.open(folder, relaxed=True).close()
    folder.joinpath("config.toml").write_text('[store]\ndurability = "relaxed"\n')
    return bare


@pytest.fixture
def postgres_url(project, postgres_url):
    """The supervisor ends before its database does: without one, it would try again for a while."""
    yield postgres_url
    project.end()
