"""Runs for the tests of `hv run`: to the end, or held until a gate is opened."""

from functools import partial

from hypervisor.resources.process_table import read_process
from tests.cli.conftest import until

NOTHING_TO_SEE = ["--quiet", "--workers", "2"]
HOLD = "echo begun $1; echo $$ > pid-$1; while [ ! -e open ]; do sleep 0.05; done; echo over $1"


def run(hv, *args, items=(), code=0):
    """Runs to the end, expects this exit code; returns what was printed."""
    given = "".join(f"{item}\n" for item in items)
    done = hv("run", *args, stdin=given)
    assert done.code == code, done
    return done.out


def held(hv, batch, items, *options):
    """A detached batch whose commands all run until the gate is opened; returns their ids."""
    run(
        hv,
        "--detach",
        "--name",
        batch,
        "--workers",
        str(len(items)),
        *options,
        "--",
        "sh",
        "-c",
        HOLD,
        "sh",
        items=items,
    )
    for item in items:
        until(partial(is_alive, hv, item), f"{item} runs")
    begun = partial(hv.json, "status", batch)
    until(lambda: len(begun()["attempts"]) >= len(items), "what they print can be read")
    return [task["id"] for task in hv.tasks(batch)]


def is_alive(hv, item):
    """Whether the command for it has begun and not ended."""
    path = hv.folder / f"pid-{item}"
    process = read_process(int(path.read_text() or 0)) if path.exists() else None
    return process is not None and process.lives
