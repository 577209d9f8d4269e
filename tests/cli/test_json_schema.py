"""What `--json` prints is what docs/json-schema.json says, with one meaning for each key."""

import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from jsonschema import Draft202012Validator

from hypervisor.cli.commands_table import COMMANDS
from hypervisor.cli.json_form import plain
from hypervisor.queue.task import Batch
from tests.cli.conftest import until
from tests.cli.running import run

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
TESTS = (
    "test_json_schema.py",
    "test_git_commands.py",
    "test_land.py",
    "test_resolve.py",
    "../selftest/test_selftest.py",
    "../cluster/test_ray.py",
    "../cluster/test_three_hosts.py",
)
SCHEMA = json.loads((ROOT / "docs/json-schema.json").read_text())


@pytest.fixture
def hv(project):
    return project


def problems(command, answer):
    validator = Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/hv {command}"})
    return [error.message for error in validator.iter_errors(answer)]


def test_a_run_and_what_is_told_about_it(hv):
    command = ("--name", "b", "--retries", "1", "--retry-delay", "30m", "--json", "--detach")
    finished = json.loads(run(hv, "--name", "a", "--json", "--", "true", items="xy"))
    assert problems("run", finished) == []
    run(hv, *command, "--in", "2h", "--", "true", items="x")
    for verb in ("status", "summary", "results", "report"):
        for batch in "ab":
            answer = hv.json(verb, batch)
            assert problems(verb, answer) == [], (verb, batch)
    assert problems("top", hv.json("top")) == []
    assert problems("stats", hv.json("stats")) == []
    assert problems("agents", hv.json("agents")) == []


def test_a_batch_has_its_name_and_its_id(hv):
    run(hv, "--name", "a", "--", "true", items="x")
    batch_id = hv.json("status", "a")["batch"]["id"]
    (task,) = hv.json("ls")
    events = [json.loads(line) for line in hv.ok("events", "--json").splitlines()]
    shown = hv.json("show", task["id"])
    of_batch = [event for event in events if event["batch_id"]]
    named = [task, shown["detail"]["task"], hv.json("summary", "a"), *of_batch]
    assert of_batch and {(each["batch"], each["batch_id"]) for each in named} == {("a", batch_id)}
    assert problems("ls", [task]) == problems("show", shown) == []
    assert [problem for event in events for problem in problems("events", event)] == []
    (attempt,) = shown["detail"]["attempts"]
    assert attempt["cpu_seconds"] >= 0
    assert "cpu_ms" not in attempt and "peak_kb" not in attempt


def test_claims(hv):
    hv.ok("add", "x", "--batch", "a")
    hv.add("y")
    leases = hv.json("claim", "--batch", "a") + hv.json("claim")
    assert problems("claim", leases) == []
    assert [lease["task"]["batch"] for lease in leases] == ["a", ""]


def test_the_queue_and_its_receipts(hv):
    def check(name, *args):
        answer = hv.json(*args)
        assert problems(name, answer) == [], (name, answer)
        return answer

    (task,) = check("add", "add", "x", "--batch", "b")["ids"]
    token = check("claim", "claim", "--batch", "b")[0]["token"]
    check("heartbeat", "heartbeat", token)
    check("receipt add", "receipt", "add", token, "did it")
    check("done", "done", token)
    check("receipt ls", "receipt", "ls", "b")
    check("receipt verify", "receipt", "verify")
    check("retry", "retry", task)
    hv.ok("block", hv.claim("--batch", "b"), "no port", "--unblock", "Which port?")
    check("status", "status", "b")
    check("answer", "answer", task, "use port 8080")
    check("tell", "tell", task, "not 8081")
    check("show", "show", task)
    check("cancel", "cancel", task)
    check("update", "update", task, "--title", "y")
    for verb in ("pause", "resume", "kill"):
        check(verb, verb, "b")
    check("scale", "scale", "2", "b")
    check("batches", "batches")
    for verb in ("archive", "unarchive"):
        check(f"batches {verb}", "batches", verb, "b")
    check("batches delete", "batches", "delete", "b", "--yes")


def test_outputs(hv):
    run(hv, "-q", "--name", "b", "--", "echo", items="xy")
    for target in ("b", hv.json("ls")[0]["id"]):
        lines = hv.ok("logs", target, "--json").splitlines()
        assert lines and [problems("logs", json.loads(line)) for line in lines] == [[]] * len(lines)


def test_setting_up(hv):
    """Clients, completion, the supervisor and the MCP server, which prints where it listens."""
    dry = ("--dry-run", "--json")
    for verb in ("install", "uninstall"):
        assert problems(verb, json.loads(hv.ok(verb, "claude", *dry))) == []
    assert problems("completion", hv.json("completion", "bash")) == []
    installed = json.loads(hv.ok("completion", "bash", "--install", *dry))
    assert problems("completion --install", installed) == []
    hv.ok("add", "x", "--in", "1h")
    assert problems("supervise --detach", hv.json("supervise", "--detach")) == []


def test_what_runs_until_it_is_stopped(hv):
    """Servers print where they listen; the supervisor prints its decisions."""
    anywhere = ("--port", "0")
    for name, *options in (("serve", *anywhere), ("dashboard", *anywhere), ("supervise",)):
        process = hv.start(name, *options, "--json", stdout=subprocess.PIPE, text=True)
        try:
            if name == "supervise":
                until(lambda: hv.json("status")["supervisor"], "it runs")
                hv.ok("pause", "--all")
            assert problems(name, json.loads(process.stdout.readline())) == []
        finally:
            process.terminate()
            process.wait(180)


def test_settling(hv):
    def claimed():
        hv.add("x")
        return hv.claim()

    for verb, *more in (("block", "why"), ("fail", "why"), ("release",)):
        assert problems(verb, hv.json(verb, claimed(), *more)) == []
    hv.add("y")
    assert problems("done --next", hv.json("done", claimed(), "--next", "me")) == []


def test_plans(hv):
    (hv.folder / "a.md").write_text("---\ntitle: a\n---\n")
    assert (
        problems("preflight", json.loads(hv.ok("preflight", "--item", "a", "--json", "--", "true")))
        == []
    )
    run(hv, "-q", "--name", "p", "--", "true", items="a")
    assert problems("apply", hv.json("apply", "p", "--yes")) == []
    rule = json.loads(hv.ok("notify", "add", "bell", "--json", "--on", "failed", "--run", "true"))
    assert problems("notify add", rule) == []


def test_reviews_rules_memory_and_the_rest(hv):
    def check(name, *args):
        answer = hv.json(*args)
        assert problems(name, answer) == [], (name, answer)
        return answer

    gated = ("--gate", "each", "--chunk-size", "1")
    run(hv, "-q", "--name", "r", *gated, "--", "echo", items="ab", code=10)
    batch_id = hv.json("status", "r")["batch"]["id"]
    (chunk, _) = check("review --list", "review", "r", "--list")
    assert (chunk["batch"], chunk["batch_id"]) == ("r", batch_id)
    assert check("review", "review", "r")["chunk"]["batch"] == "r"
    (waiting,) = check("review", "review")
    assert (waiting["batch"], waiting["batch_id"], waiting["task"]) == ("r", batch_id, None)
    check("review --approve", "review", "r", "--approve")
    check("plan", "plan", "r")
    check("undo", "undo", "r", "--dry-run")
    hv.ok("notify", "add", "bell", "--on", "failed", "--batch", "r", "--run", "true")
    (rule,) = check("notify ls", "notify", "ls")
    assert (rule["batch"], rule["rule"]["batch_id"]) == ("r", batch_id)
    for verb in ("send", "failed"):
        check(f"notify {verb}", "notify", verb)
    check("notify rm", "notify", "rm", "bell")
    for verb in ("doctor", "gc", "version", "config", "learn", "skills"):
        check(verb, verb)
    check("skills show", "skills", "show", "triage")
    check("branch", "branch", "m")
    check("remember", "remember", "a fact", "--branch", "m")
    check("recall", "recall", "fact")
    check("hive", "hive", "m")


def test_every_command_that_prints_a_value_is_described():
    described = {name.split()[1] for name in SCHEMA["$defs"] if name.startswith("hv ")}
    # One speaks MCP on its standard output, the other needs a terminal there.
    assert set(COMMANDS) - described == {"mcp", "attach"}


def test_durations_and_money_of_a_spec():
    stored = {"cwd": "/", "command": ["true"], "time": 90_000, "retry_delay": 500, "memory": 1024}
    spec = plain(Batch("1", "b", 0, {**stored, "silence": 0, "task_budget": 250_000}))["spec"]
    printed = {"time": 90, "retry_delay": 0.5, "silence": 0, "task_budget": 0.25}
    assert spec == {**stored, **printed}


def test_a_backup(hv, tmp_path):
    hv.ok("add", "a task")
    path = str(tmp_path / "backup.tar")
    assert problems("backup", hv.json("backup", path)) == []
    assert "already exists" in hv.refused(5, "backup", path)
    assert "never replaces a store" in hv.refused(5, "backup", path, "--restore")


def test_a_manifest(hv):
    assert problems("cluster manifest", hv.json("cluster", "manifest", "slurm")) == []


def test_an_answer_of_every_command_was_checked():
    """A command that is only described may print something else."""
    tests = "".join((HERE / name).read_text() for name in TESTS)
    names = [name.removeprefix("hv ") for name in SCHEMA["$defs"] if name.startswith("hv ")]
    checked = set(re.findall(r'"([a-z -]+)"', tests))
    parts = {"batches archive": "archive", "batches unarchive": "unarchive"}
    parts |= {"notify send": "send", "notify failed": "failed"}
    assert [name for name in names if parts.get(name, name) not in checked] == []


class Measured(NamedTuple):
    median_ms: int | None
    milliseconds: int
    peak_kb: int | None
    cost_micros: int | None


def test_every_kind_of_value_has_one_unit():
    assert plain([Measured(1_500, 2_000, 3, 250_000)]) == [
        {
            "median_seconds": 1.5,
            "seconds": 2,
            "peak_bytes": 3_072,
            "cost": 0.25,
        }
    ]
    assert plain(Measured(None, 0, None, None))["cost"] is None
