"""The list of tools: small, fully annotated, documented, and complete."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from mcp.client import Client

from hypervisor.mcp.claims import ClaimRegistry
from hypervisor.mcp.profiles import PROFILES
from hypervisor.mcp.server import build, offers_of
from hypervisor.queue import queries
from hypervisor.verbs import VERBS

MAX_COUNT = {"worker": 2_000, "supervisor": 6_000, "all": 6_000}
DOCS = Path(__file__).resolve().parents[2] / "docs" / "mcp.md"

# Every verb has a tool, or a reason why it has none.
TOOLS = {
    "add": "create_task",
    "list_tasks": "list_tasks",
    "show": "get_task",
    "claim": "claim_next_task",
    "heartbeat": "heartbeat",
    "complete": "complete_task",
    "complete_and_claim": "complete_task",
    "block": "block_task",
    "fail": "fail_task",
    "release": "release_task",
    "retry": "update_task",
    "answer": "update_task",
    "tell": "update_task",
    "cancel": "cancel_task",
    "accept": "update_task",
    "take_back": "update_task",
    "update": "update_task",
    "receipt": "append_receipt",
    "receipts": "get_task",
    "stats": "get_index_stats",
    "batches": "get_index_stats",
    "events": "wait_for_events",
    "preflight": "preflight",
    "submit": "spawn_parallel_tasks",
    "supervise": "spawn_parallel_tasks",
    "status": "get_task_stats",
    "attempts": "get_task_stats",
    "summary": "get_summary",
    "output": "read_output",
    "pause": "steer_batch",
    "resume": "steer_batch",
    "scale": "steer_batch",
    "stop_batch": "steer_batch",
    "kill": "cancel_task",
    "chunks": "list_checkpoints",
    "awaiting": "list_checkpoints",
    "review": "list_checkpoints",
    "decide": "decide_checkpoint",
    "retry_chunk": "decide_checkpoint",
    "wait_for_events": "wait_for_events",
    "spawn_parallel_tasks": "spawn_parallel_tasks",
    "learn_parallelization": "learn_parallelization",
    "propose": "propose_action",
    "remember": "remember",
    "recall": "recall",
    "joined": "recall",
    "hive_report": "hive_report",
    "branches": "hive_report",
    "approve": "update_task",
    "reject": "update_task",
    "merge_queue": "get_merges",
    "diff": "get_merges",
}
NO_TOOL = {
    "verify": "an auditor's check, by a person who does not ask the audited",
    "write_receipts": "repairs task files, by hand after trouble",
    "report": "a page for people",
    "amend": "a person's correction of what an agent said",
    "review_items": "for people: an agent lists tasks by batch and state",
    "plan": "a person looks at it before they approve",
    "apply": "only a person approves what was proposed",
    "undo": "only a person takes back what was approved",
    **dict.fromkeys(
        ("archive_batch", "unarchive_batch", "delete_batch"), "a person decides what is kept"
    ),
    **dict.fromkeys(
        ("snapshots", "restore"), "for people: an agent sees with get_merges what a task changed"
    ),
    "land": "a person looks at the work before it goes into their branches",
    "resolve_conflict": "a person resolves what agents could not",
    "gc": "deletes outputs: the supervisor does it by itself, else a person",
    "backup": "copies the whole store, with all that agents may not read",
    **dict.fromkeys(
        ("cluster_up", "cluster_down", "cluster_join", "cluster_status", "cluster_manifest"),
        "a person decides which hosts work",
    ),
    "sweep": "every claim and the supervisor do it",
    "doctor": "about the installation",
    **dict.fromkeys(
        (
            "add_rule",
            "rules",
            "remove_rule",
            "try_rule",
            "send_notices",
            "dead_letters",
            "retry_notices",
            "drop_notices",
        ),
        "a rule may run a command: a person says who is told, and how",
    ),
    **dict.fromkeys(
        ("agents", "check_agent", "cooldowns", "end_cooldown", "sessions", "spent"),
        "about the agents of this host: get_task_stats and spawn_parallel_tasks tell what matters",
    ),
    "results": "get_summary lists each task with its result",
    **dict.fromkeys(("skills", "skill"), "the resource hypervisor://skills lists them"),
    **dict.fromkeys(("run", "map"), "they return a handle, which stays in its process"),
    **dict.fromkeys(
        ("run_pattern", "pattern"), "spawn_parallel_tasks has `after` and `reduce`, on one core"
    ),
    "new_skill": "a person says what is worth keeping, and reads it before it runs again",
    "forget": "a person takes out what agents found, never an agent",
    **dict.fromkeys(
        ("unreviewed_findings", "approve_findings"),
        "a person decides which findings reach other branches",
    ),
    "learnings": "spawn_parallel_tasks and preflight tell what matters of them",
    "branch": "a person says whose findings are seen where; a branch that is used exists",
    **dict.fromkeys(
        ("install", "uninstall", "clients"), "changes the configuration of clients, by a person"
    ),
}


def listed(profile, hv):
    async def ask():
        async with Client(build(profile, ClaimRegistry(hv))) as client:
            return (await client.list_tools()).tools

    return [tool.model_dump(by_alias=True, exclude_none=True) for tool in anyio.run(ask)]


@pytest.fixture
def hv(place):
    with place.open() as opened:
        yield opened


def test_what_fails_unexpectedly_tells_nothing_of_the_inside(hv, monkeypatch):
    def broken(*_):
        raise RuntimeError("at /home/ann/private.py")

    async def ask():
        async with Client(build("all", ClaimRegistry(hv))) as client:
            return await client.call_tool("get_index_stats", {})

    monkeypatch.setattr(queries, "stats", broken)
    answer = anyio.run(ask)
    assert answer.is_error and "failed unexpectedly" in answer.content[0].text
    assert "private" not in answer.model_dump_json()


@pytest.mark.parametrize("profile", PROFILES)
def test_the_list_is_small(hv, profile, capsys):
    text = json.dumps(listed(profile, hv), separators=(",", ":"), ensure_ascii=False)
    tokens = len(text) / 4
    with capsys.disabled():
        print(f"\n{profile}: {len(listed(profile, hv))} tools, about {tokens:,.0f} tokens", end=" ")
    assert tokens < MAX_COUNT[profile]


def test_every_tool_is_annotated_and_has_schemas(hv):
    for tool in listed("all", hv):
        hints = tool["annotations"]
        assert {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} <= set(hints)
        assert not (hints["readOnlyHint"] and hints["destructiveHint"])
        assert tool["outputSchema"]["type"] == tool["inputSchema"]["type"] == "object"
        assert tool["outputSchema"]["properties"], tool["name"]
        assert tool["description"].endswith("."), tool["name"]
        text = json.dumps(tool)
        assert "$ref" not in text and '"title": "' not in json.dumps(tool["inputSchema"])


def test_reading_tools_change_nothing_and_say_so(hv):
    reading = {tool["name"] for tool in listed("all", hv) if tool["annotations"]["readOnlyHint"]}
    assert reading == {
        "get_task",
        "list_tasks",
        "get_task_stats",
        "get_index_stats",
        "get_summary",
        "read_output",
        "preflight",
        "list_checkpoints",
        "get_merges",
        "recall",
        "hive_report",
    }


def test_profiles_add_up(hv):
    names = {
        p: [offer.function.__name__ for offer in offers_of(p, ClaimRegistry(hv))] for p in PROFILES
    }
    assert len(set(names["all"])) == len(names["all"])
    assert set(names["worker"]) | set(names["supervisor"]) == set(names["all"])
    assert "claim_next_task" not in names["supervisor"]


def test_the_founding_names_are_there(hv):
    names = {tool["name"] for tool in listed("all", hv)}
    assert names >= {
        "list_tasks",
        "get_task",
        "create_task",
        "update_task",
        "claim_next_task",
        "complete_task",
        "get_index_stats",
        "spawn_parallel_tasks",
        "get_task_stats",
        "learn_parallelization",
    }


def test_every_verb_has_a_tool_or_a_reason(hv):
    names = {tool["name"] for tool in listed("all", hv)}
    assert set(TOOLS.values()) <= names
    assert not set(TOOLS) & set(NO_TOOL)
    assert set(VERBS) - set(TOOLS) - set(NO_TOOL) == set()
    assert set(TOOLS) <= set(VERBS)


def test_every_parameter_is_described(hv):
    bare = [
        f"{tool['name']}.{name}"
        for tool in listed("all", hv)
        for name, schema in tool["inputSchema"].get("properties", {}).items()
        if not schema.get("description")
    ]
    assert bare == []


@pytest.mark.parametrize("profile", PROFILES)
def test_the_reference_tells_every_tool_and_its_arguments(hv, profile):
    page = DOCS.read_text(encoding="utf-8")
    for tool in listed(profile, hv):
        assert f"\n### {tool['name']}\n" in page, tool["name"]
        section = page.split(f"\n### {tool['name']}\n")[1].split("\n#")[0]
        assert tool["description"] in section, tool["name"]
        for argument in tool["inputSchema"].get("properties", {}):
            assert f"`{argument}`" in section, (tool["name"], argument)


def test_the_reference_tells_no_tool_that_is_not_there(hv):
    names = {tool["name"] for tool in listed("all", hv)}
    page = DOCS.read_text(encoding="utf-8").split("\n## Tools\n")[1].split("\n## ")[0]
    assert {line[4:] for line in page.splitlines() if line.startswith("### ")} == names
