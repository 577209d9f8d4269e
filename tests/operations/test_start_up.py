"""The commands that agents call thousands of times load nothing they do not need."""

import json
import subprocess
import sys

import pytest

import hypervisor

HEAVY = {
    "rich", "pydantic", "mcp", "click", "asyncio", "psycopg", "psutil", "dataclasses", "inspect",
    "subprocess", "concurrent.futures", "logging", "socket", "ssl", "typing_extensions",
    "hypervisor.api", "hypervisor.store.postgres",
}  # fmt: skip
PROGRAM = """
import sys
from hypervisor.faces.cli.main import run
from hypervisor.bootstrap import connect
code = run(sys.argv[1:], connect)
print("\\n" + " ".join(sys.modules), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def hv(tmp_path):
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as opened:
        opened.add([hypervisor.NewTask("a"), hypervisor.NewTask("b")])

    def run(*args):
        done = subprocess.run(
            [sys.executable, "-I", "-c", PROGRAM, *args, "--store", str(tmp_path / "x.db")],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout, set(done.stderr.splitlines()[-1].split())

    return run


def test_the_hot_commands_stay_light(hv):
    out, modules = hv("claim", "--worker", "w")
    token = out.split()[0]
    assert not modules & HEAVY
    assert not {name for name in modules if name.startswith("hypervisor.faces.cli.commands.")} - {
        "hypervisor.faces.cli.commands.claim"
    }
    for args in (["heartbeat", token], ["done", token]):
        _, modules = hv(*args)
        assert not modules & HEAVY, args


def test_with_json_they_load_little_more(hv):
    out, modules = hv("claim", "--worker", "w", "--json")
    assert json.loads(out)[0]["task"]["title"] == "a"
    assert not modules & HEAVY


def test_importing_the_package_loads_next_to_nothing():
    program = "import sys; before = set(sys.modules); import hypervisor; "
    program += "print(' '.join(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60
    )
    loaded = {name for name in done.stdout.split() if name.startswith("hypervisor")}
    assert loaded == {"hypervisor", "hypervisor.domain", "hypervisor.domain.version"}
    assert set(hypervisor.__all__) == {
        name for name in hypervisor.__all__ if getattr(hypervisor, name)
    }
