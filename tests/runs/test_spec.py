"""Run specs as they are stored: reading one returns what was declared."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.template import Item
from hypervisor.resources.limits import Limits
from hypervisor.runs.spec import (
    GATES,
    MERGE_MODES,
    MERGE_STRATEGIES,
    MODES,
    PERMISSIONS,
    RESULT_FORMATS,
    STDINS,
    STRATEGIES,
    WORKSPACES,
    WRITE_BACKS,
    AgentSpec,
    CommandSpec,
    FunctionSpec,
    GitSpec,
    RunSpec,
    WorkSpec,
    agent_of,
    spec_data,
    spec_from,
    template_of,
)

COUNT = st.none() | st.integers(0, 1 << 60)
WORDS = st.lists(st.text()).map(tuple)
COMMANDS = st.builds(
    CommandSpec,
    argv=WORDS,
    shell=st.booleans(),
    stdin=st.sampled_from(STDINS),
    clean_env=st.booleans(),
    result=st.sampled_from(RESULT_FORMATS),
)
FUNCTIONS = st.builds(
    FunctionSpec,
    name=st.text(min_size=1),
    python=st.none() | st.text(),
    clean_env=st.booleans(),
    result=st.sampled_from(RESULT_FORMATS),
)
AGENTS = st.builds(
    AgentSpec,
    name=st.text(min_size=1),
    agents=WORDS,
    fallback=st.text(),
    prompt=st.text(),
    mode=st.sampled_from(MODES),
    pull=st.integers(1, 1_000),
    permissions=st.sampled_from(PERMISSIONS),
    allow=WORDS,
    model=st.text(),
    turns=COUNT,
    task_budget=COUNT,
    budget=COUNT,
    task_tokens=COUNT,
    tokens=COUNT,
    schema=st.text(),
)
SPECS = st.builds(
    RunSpec,
    cwd=st.text(min_size=1),
    work=COMMANDS | FUNCTIONS | AGENTS,
    workers=COUNT,
    claim=COUNT,
    fail_fast=st.booleans(),
    strategy=st.sampled_from(STRATEGIES),
    limits=st.builds(Limits, COUNT, COUNT, COUNT, COUNT),
    gate=st.sampled_from(GATES),
    write_back=st.sampled_from(WRITE_BACKS),
    workspace=st.sampled_from(WORKSPACES),
    git=st.builds(
        GitSpec,
        base=st.text(),
        sparse=WORDS,
        merge=st.sampled_from(MERGE_MODES),
        strategy=st.sampled_from(MERGE_STRATEGIES),
        verify=WORDS,
    ),
    propose=st.booleans(),
    skill=st.text(),
)
# As earlier versions kept them: every field, none with its default.
COMMON = {
    "cwd": "/x",
    "workers": 2,
    "claim": 3,
    "fail_fast": True,
    "strategy": "parallel",
    "time": 1_000,
    "memory": 2_000,
    "silence": 3_000,
    "output": 4_000,
    "gate": "each",
    "write_back": "status",
    "propose": True,
    "skill": "triage",
}
STORED = {
    "command": {
        "command": ["echo {}"],
        "shell": True,
        "stdin": "item",
        "clean_env": True,
        "result": "json",
    },
    "function": {
        "function": "m:f",
        "python": "/usr/bin/python3",
        "clean_env": True,
        "result": "json",
    },
    "agent": {
        "agent": "claude",
        "agents": ["claude", "codex"],
        "fallback": "codex",
        "prompt": "do {item}",
        "mode": "pull",
        "pull": 4,
        "permissions": "full",
        "allow": ["Bash"],
        "model": "opus",
        "turns": 5,
        "task_budget": 6,
        "budget": 7,
        "task_tokens": 8,
        "tokens": 9,
        "schema": "{}",
    },
}
READ: dict[str, WorkSpec] = {
    "command": CommandSpec(("echo {}",), True, "item", True, "json"),
    "function": FunctionSpec("m:f", "/usr/bin/python3", True, "json"),
    "agent": AgentSpec(
        "claude",
        agents=("claude", "codex"),
        fallback="codex",
        prompt="do {item}",
        mode="pull",
        pull=4,
        permissions="full",
        allow=("Bash",),
        model="opus",
        turns=5,
        task_budget=6,
        budget=7,
        task_tokens=8,
        tokens=9,
        schema="{}",
    ),
}


@given(SPECS)
def test_a_spec_survives_being_kept(spec):
    kept = json.loads(json.dumps(spec_data(spec)))
    assert kept == spec_data(spec), "so that a declaration can be compared with what is kept"
    assert spec_from(kept) == spec
    assert json.dumps(spec_data(spec_from(kept))) == json.dumps(kept), "declared again, the same"


@pytest.mark.parametrize("kind", STORED)
def test_the_store_keeps_one_flat_object_that_other_versions_read(kind):
    stored = COMMON | STORED[kind]
    spec = RunSpec(
        "/x",
        READ[kind],
        workers=2,
        claim=3,
        fail_fast=True,
        strategy="parallel",
        limits=Limits(1_000, 2_000, 3_000, 4_000),
        gate="each",
        write_back="status",
        propose=True,
        skill="triage",
    )
    assert spec_from(stored) == spec
    assert spec_data(spec) == stored


def test_a_spec_says_which_kind_of_work_it_has():
    for kind, work in READ.items():
        spec = RunSpec("/x", work)
        parts = {"command": spec.command, "function": spec.function, "agent": spec.agent}
        assert {name: part for name, part in parts.items() if part is not None} == {kind: work}
    assert agent_of(RunSpec("/x", READ["agent"])) == READ["agent"]
    with pytest.raises(InvalidInput, match="this batch has no agent"):
        agent_of(RunSpec("/x", READ["command"]))


def test_only_what_differs_from_the_defaults_is_kept():
    assert spec_data(RunSpec("/x", CommandSpec(("a",)), workers=2)) == {
        "cwd": "/x",
        "command": ["a"],
        "workers": 2,
    }


def test_options_that_mean_nothing_for_the_kind_of_work_are_ignored():
    """Earlier versions kept them, as in `hv run --python python3 -- true`."""
    stored = {"cwd": "/", "command": ["true"], "python": "python3", "pull": 4}
    assert spec_from(stored) == RunSpec("/", CommandSpec(("true",)))


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "text",
        5,
        {"cwd": "/", "teleport": True},
        {},
        {"command": ["true"]},
        {"cwd": "/", "argv": ["true"]},
        {"cwd": "/", "limits": {}},
        {"cwd": "/", "command": ["true"], "function": "m:f"},
        {"cwd": "/", "command": ["true"], "agent": "claude"},
        {"cwd": "/", "function": "m:f", "agent": "claude"},
    ],
)
def test_what_another_version_declared_is_refused_not_guessed(data):
    with pytest.raises(
        InvalidInput, match="created by another version of Hypervisor; create it again"
    ):
        spec_from(data)


def test_an_item_on_standard_input_is_not_an_argument():
    item = Item("x y", 1)
    assert template_of(CommandSpec(("cat",))).render(item) == ["cat", "x y"]
    assert template_of(CommandSpec(("cat",), stdin="item")).render(item) == ["cat"]
    assert template_of(CommandSpec(("cat", "{}"), stdin="item")).render(item) == ["cat", "x y"]
