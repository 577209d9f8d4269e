"""Programs and runs for the tests of `hv run --then … --reduce …`."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import apsw

# Records that it began and ended; in between, it waits for a file `go-NAME` if there is one
# called `hold-NAME`; then prints its name and the words that follow.
STEP = """#!/bin/sh
name=$1; shift
echo $$ > "pid-$name"
echo "begin $name" >> log
while [ -e "hold-$name" ] && [ ! -e "go-$name" ]; do sleep 0.02; done
[ ! -e "bad-$name" ] || { echo "broken $name"; exit 3; }
echo "end $name" >> log
echo "$name${1:+ of }$*"
"""
MERGE = """#!/bin/sh
echo $$ > pid-reduce
echo begin reduce >> log
while [ -e hold-reduce ] && [ ! -e go-reduce ]; do sleep 0.02; done
[ ! -e bad-reduce ] || exit 4
sed 's/.*"title": "\\([^"]*\\)".*"state": "\\([^"]*\\)".*/\\1 \\2/' "$1" > rows
cp "$1" given
echo end reduce >> log
echo "put together $(grep -c '"done"' "$1") of $(grep -c . "$1")"
"""
ONE, TWO, MERGED = "./step one-{}", "./step two-{} {result}", "./merge {}"


def prepared(project):
    """A project with the two programs."""
    for name, text in (("step", STEP), ("merge", MERGE)):
        path = project.folder / name
        path.write_text(text)
        path.chmod(0o755)
    return project


def words(*options, name="b", then=(TWO,), reduce: str | None = MERGED, command=ONE):
    stages = [word for line in then for word in ("--then", line)]
    last = ["--reduce", reduce] if reduce else []
    return [
        "run",
        "--name",
        name,
        "--workers",
        "2",
        *stages,
        *last,
        *options,
        "--",
        *command.split(),
    ]


def run(hv, *options, items="ab", code=0, **more):
    given = "".join(f"{item}\n" for item in items)
    done = hv(*words("--quiet", *options, **more), stdin=given)
    assert done.code == code, done
    return done


def lines(hv, begin=""):
    path = hv.folder / "log"
    found = path.read_text().splitlines() if path.exists() else []
    return [line for line in found if line.startswith(begin)]


def rows(hv):
    return sorted((hv.folder / "rows").read_text().splitlines())


def stages(hv, batch="b"):
    """The states of each stage, and of the reduce."""
    found = hv.json("summary", batch)
    reduce = found["reduce"] and found["reduce"]["state"]
    return [stage["states"] for stage in found["stages"]], reduce


def started(hv, *options, items="ab", **more):
    """The run as a separate process, which can be killed."""
    (hv.folder / "items").write_text("".join(f"{item}\n" for item in items))
    return hv.start(*words("--items", "items", *options, **more))


def kill_everything(hv, client):
    """The client, the supervisor, all workers and what they run, each by its id."""
    found = hv.json("status")["supervisor"]
    connection = apsw.Connection(str(hv.store), flags=apsw.SQLITE_OPEN_READONLY)
    query = "SELECT pid FROM workers WHERE batch IS NOT NULL AND ended_at IS NULL"
    workers = [pid for (pid,) in connection.execute(query).fetchall()]
    connection.close()
    steps = [int(path.read_text()) for path in hv.folder.glob("pid-*")]
    for pid in (client.pid, found, *workers, *steps):
        with suppress(ProcessLookupError, TypeError):
            os.kill(pid, signal.SIGKILL)
    client.wait()
    client.stdout.close()
    client.stderr.close()
