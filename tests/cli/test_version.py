"""hv version, and the other ways to start the program."""

import json
import platform
import subprocess
import sys

import pytest

import hypervisor


@pytest.mark.parametrize("words", [["version"], ["--version"], ["-V"]])
def test_the_version(bare, words):
    assert bare.ok(*words) == f"hv {hypervisor.__version__}\n"
    assert bare.json(*words) == {
        "name": "hypervisor-queue",
        "version": hypervisor.__version__,
        "python": platform.python_version(),
        "json": 1,
    }


def test_json_may_come_first(bare):
    assert json.loads(bare.ok("--json", "--version")) == bare.json("version")


def test_the_version_takes_no_words(bare):
    assert "unrecognized arguments: 2" in bare.refused(2, "version", "2")


def test_python_m_is_the_same_program(bare):
    """Not even a module of the current folder changes that."""
    for name in ("json.py", "argparse.py", "queue.py"):
        (bare.folder / name).write_text("raise SystemExit('imported from the current folder')\n")

    def python_m(*words):
        return subprocess.run(
            [sys.executable, "-m", "hypervisor", *words],
            cwd=bare.folder,
            env=bare.env,
            capture_output=True,
            text=True,
            timeout=180,
        )

    for words in (["version", "--json"], ["--help"], ["ls"], ["no-such-command"]):
        done = python_m(*words)
        assert (done.returncode, done.stdout, done.stderr) == tuple(bare.exec(*words))
