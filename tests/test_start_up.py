"""Hot commands load nothing they do not need; outside Linux, nothing starts."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench.modules import FLOWS, Environment

import hypervisor
from hypervisor import app

HEAVY = {
    "jinja2",
    "rich",
    "pydantic",
    "mcp",
    "click",
    "asyncio",
    "psycopg",
    "dataclasses",
    "inspect",
    "subprocess",
    "concurrent.futures",
    "logging",
    "socket",
    "ssl",
    "typing_extensions",
    "hypervisor.api",
    "hypervisor.ports",
    "hypervisor.store.postgres",
}
PROGRAM = """
import sys
from hypervisor.cli.main import run
from hypervisor.app import connect
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
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, set(done.stderr.splitlines()[-1].split())

    return run


def test_the_hot_commands_stay_light(hv):
    out, modules = hv("claim", "--worker", "w")
    token = out.split()[0]
    assert not modules & HEAVY
    assert not {name for name in modules if name.startswith("hypervisor.cli.commands.")} - {
        "hypervisor.cli.commands.claim"
    }
    for args in (["heartbeat", token], ["done", token]):
        _, modules = hv(*args)
        assert not modules & HEAVY, args


def test_with_json_they_load_little_more(hv):
    out, modules = hv("claim", "--worker", "w", "--json")
    assert json.loads(out)[0]["task"]["title"] == "a"
    assert not modules & HEAVY


def test_rich_is_loaded_on_a_terminal_only(hv):
    for args in (["status"], ["top"], ["status", "--json"], ["run", "--item", "x", "--", "true"]):
        _, modules = hv(*args)
        assert "rich" not in modules, args


# Modules of ours that all processes of a flow load. Lower one when a flow loads fewer; before
# raising it, import what the flow does not use where it is used.
CEILINGS = {
    "add → claim → done": 61,
    "hv run": 187,
    "hv run --agent": 255,
    "spawn over MCP": 176,
}


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_loads_few_modules(flow, tmp_path):
    environment = Environment(Path(__file__).parent.parent, tmp_path)
    try:
        FLOWS[flow](environment)
    finally:
        environment.end((signal.SIGTERM, signal.SIGKILL))
    modules = environment.modules()
    assert len(modules) <= CEILINGS[flow], sorted(modules)


def test_a_worker_loads_nothing_after_the_fork(tmp_path):
    environment = Environment(Path(__file__).parent.parent, tmp_path)
    try:
        FLOWS["hv run"](environment)
    finally:
        environment.end((signal.SIGTERM, signal.SIGKILL))
    client, supervisor, *workers = environment.imports().values()
    assert {"cli/main.py", "runs/supervisor.py"} <= client | supervisor
    assert workers == []


def test_importing_the_package_loads_next_to_nothing():
    program = "import sys; before = set(sys.modules); import hypervisor; "
    program += "print(' '.join(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60
    )
    loaded = {name for name in done.stdout.split() if name.startswith("hypervisor")}
    assert loaded == {"hypervisor"}
    assert set(hypervisor.__all__) == {
        name for name in hypervisor.__all__ if getattr(hypervisor, name)
    }


def test_another_platform_is_refused_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == app.CANNOT_RUN
    assert capsys.readouterr().err == f"hv: {app.NEEDS_LINUX}\n"


def test_python_is_told_the_same(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(hypervisor.StoreUnavailable, match="needs Linux"):
        hypervisor.open(tmp_path / "x.db")
    assert list(tmp_path.iterdir()) == []
