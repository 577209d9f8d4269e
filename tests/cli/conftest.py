"""The command line as a person or a script meets it: a real process in a folder of its own.

`hv(...)` forks: a process of its own without the start of an interpreter, which would take
most of the time of hundreds of calls. `hv.start(...)` starts the program as `./hv` does.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import apsw
import pytest

import hypervisor
from hypervisor.bootstrap import connect
from hypervisor.faces.cli.main import make_parser, run
from hypervisor.faces.cli.table import COMMANDS

for command in COMMANDS.values():  # imported once here, so that no child has to
    make_parser(command)

PROGRAM = (
    sys.executable,
    "-I",
    "-c",
    'import sys; sys.argv[0] = "hv"; from hypervisor.bootstrap import main; main()',
)


class Result(NamedTuple):
    code: int
    out: str
    err: str


class Cli:
    """`hv(...)` runs a command in `folder`; `hv.ok(...)` expects it to succeed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            "PATH": os.defpath, "HOME": str(folder), "TZ": "UTC", "LC_ALL": "C.UTF-8",
            "HV_ACTOR": "tester",
        }  # fmt: skip

    def __call__(
        self,
        *args: str | bytes,
        stdin: str | bytes | None = None,
        cwd: Path | None = None,
        **env: str,
    ) -> Result:
        given = stdin.encode() if isinstance(stdin, str) else stdin or b""
        return _fork(args, given, cwd or self.folder, {**self.env, **env})

    def ok(self, *args: str | bytes, stdin: str | bytes | None = None, **env: str) -> str:
        code, out, err = self(*args, stdin=stdin, cwd=None, **env)
        assert (code, err) == (0, ""), (args, code, err)
        return out

    def json(self, *args: str | bytes, stdin: str | bytes | None = None) -> Any:
        return json.loads(self.ok(*args, "--json", stdin=stdin))

    def exec(self, *args: str | bytes, stdin: str = "", **env: str) -> Result:
        """As `hv(...)`, through a fresh interpreter."""
        done = subprocess.run(
            [*PROGRAM, *args], cwd=self.folder, env={**self.env, **env}, input=stdin.encode(),
            capture_output=True, timeout=60,
        )  # fmt: skip
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
        """Every row of the store, to see that nothing changed."""
        if not self.store.exists():
            return {}
        connection = apsw.Connection(str(self.store), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            return {
                str(name): connection.execute(f'SELECT * FROM "{name}"').fetchall()
                for (name,) in tables.fetchall()
            }
        finally:
            connection.close()


def _fork(args: Sequence[str | bytes], stdin: bytes, cwd: Path, env: dict[str, str]) -> Result:
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile()) for _ in range(3)]
        files[0].write(stdin)
        for file in files:
            file.seek(0)
        child = os.fork()
        if child == 0:
            _be_the_program([os.fsdecode(arg) for arg in args], files, cwd, env)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for file in files:
            file.seek(0)
        return Result(code, files[1].read().decode(), files[2].read().decode())


def _be_the_program(args: list[str], files: Sequence[Any], cwd: Path, env: dict[str, str]) -> None:
    code = 99
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
