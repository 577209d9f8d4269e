"""Writing a SKILL.md from the spec of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from hypervisor.inputs.task_files.yaml_text import to_yaml
from hypervisor.runs.spec import (
    AUTO,
    AgentSpec,
    CommandSpec,
    FunctionSpec,
    Permissions,
    RunSpec,
    WorkSpec,
)
from hypervisor.skills.fields import ANY

Fields = dict[str, Any]
PROMPT, SCHEMA = "prompt.md", "schema.json"
SIZES = (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))
SPANS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def skill_text(fields: Mapping[str, Any], body: str) -> str:
    """The whole file, with a line for each field, and for each entry of a nested field."""
    lines = ["---"]
    for name, value in fields.items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {key}: {to_yaml(entry)}" for key, entry in value.items()]
        else:
            lines.append(f"{name}: {to_yaml(value)}")
    return "\n".join([*lines, "---", "", body.strip(), ""])


def fields_of(spec: RunSpec) -> Fields:
    """The fields for how a batch was run, without defaults."""
    fields: Fields = {"run": run_of(spec.work)}
    fields |= _work(spec)
    fields |= _given(
        {
            "workers": spec.workers,
            "strategy": spec.strategy if spec.strategy != "auto" else None,
            "fail-fast": spec.fail_fast,
            "gate": spec.gate if spec.gate != "none" else None,
            "propose": spec.propose,
            "sandbox": spec.sandbox,
            "merge": spec.git.merge,
            "verify": list(spec.git.verify),
        }
    )
    if limits := limits_of(spec):
        fields["limits"] = limits
    return fields


def run_of(work: WorkSpec) -> Fields:
    """The command, function or agent."""
    match work:
        case AgentSpec(name):
            return {"agent": ANY if name == AUTO else name}
        case CommandSpec(argv):
            return {"command": list(argv)}
        case FunctionSpec(name):
            return {"function": name}


def _work(spec: RunSpec) -> Fields:
    work, own = spec.work, dict[str, Any]()
    match work:
        case AgentSpec():
            in_copies = {"workspace": "scratch"} if spec.workspace == "scratch" else {}
            return _agent(work) | in_copies
        case CommandSpec():
            own = {"shell": work.shell, "stdin": work.stdin if work.stdin != "closed" else None}
        case FunctionSpec():
            own = {"python": work.python}
    own |= {"clean-env": work.clean_env, "claim": spec.claim}
    return _given({**own, "result": work.result if work.result != "none" else None})


def permissions_of(spec: AgentSpec, usual: Permissions = "edit") -> Fields:
    """The permissions of an agent, for the items or the reduce."""
    return _given(
        {
            "permissions": spec.permissions if spec.permissions != usual else None,
            "allow": list(spec.allow),
            "model": spec.model,
            "turns": spec.turns,
            "fallback": spec.fallback,
        }
    )


def costs_of(spec: AgentSpec) -> Fields:
    """The budgets of an agent."""
    costs = {
        "budget": _money(spec.budget),
        "task-budget": _money(spec.task_budget),
        "tokens": spec.tokens,
        "task-tokens": spec.task_tokens,
    }
    return {name: value for name, value in costs.items() if value is not None}


def _agent(spec: AgentSpec) -> Fields:
    return (
        {"prompt": PROMPT}
        | permissions_of(spec)
        | _given(
            {
                "pull": spec.pull if spec.mode == "pull" else None,
                "schema": SCHEMA if spec.schema else None,
            }
        )
    )


def limits_of(spec: RunSpec) -> Fields:
    return {
        name: value
        for name, value in {
            "timeout": _in_units(spec.limits.time, SPANS),
            "memory": _in_units(spec.limits.memory, SIZES),
            "silence": _in_units(spec.limits.silence, SPANS),
            "max-output": _in_units(spec.limits.output, SIZES),
            **(costs_of(spec.agent) if spec.agent else {}),
        }.items()
        if value is not None
    }


def _given(values: Fields) -> Fields:
    return {name: value for name, value in values.items() if value}


def _in_units(amount: int | None, units: tuple[tuple[str, int], ...]) -> str | int | None:
    """The amount in the largest unit without a remainder."""
    if not amount:
        return amount
    for name, unit in units:
        if amount % unit == 0:
            return f"{amount // unit}{name}"
    return amount


def _money(micros: int | None) -> str | None:
    return None if micros is None else f"{(Decimal(micros) / 1_000_000).normalize():f}"
