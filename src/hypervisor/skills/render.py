"""Writing a SKILL.md: from how a batch was run, as far as that says it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from hypervisor.agents.routing import AUTO
from hypervisor.inputs.task_files.yaml_text import to_yaml
from hypervisor.runs.spec import RunSpec
from hypervisor.skills.skill import ANY

Fields = dict[str, Any]
PROMPT, SCHEMA = "prompt.md", "schema.json"
COSTS = ("budget", "task-budget", "tokens", "task-tokens")
SIZES = (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))
SPANS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def skill_text(fields: Mapping[str, Any], body: str) -> str:
    """The whole file: a line for each field, or for each part of one that has parts."""
    lines = ["---"]
    for name, value in fields.items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {key}: {to_yaml(each)}" for key, each in value.items()]
        else:
            lines.append(f"{name}: {to_yaml(value)}")
    return "\n".join([*lines, "---", "", body.strip(), ""])


def fields_of(spec: RunSpec) -> Fields:
    """The fields that say how a batch was run; what is as it would be anyway is left out."""
    found: Fields = {"run": run_of(spec)}
    program = {
        "shell": spec.shell,
        "python": spec.python,
        "clean-env": spec.clean_env,
        "batch": spec.claim,
        "stdin": spec.stdin if spec.stdin != "closed" else None,
        "result": spec.result if spec.result != "none" else None,
    }
    found |= _agent(spec) if spec.agent else _given(program)
    found |= _given(
        {
            "workers": spec.workers,
            "strategy": spec.strategy if spec.strategy != "auto" else None,
            "fail-fast": spec.fail_fast,
            "gate": spec.gate if spec.gate != "none" else None,
            "propose": spec.propose,
        }
    )
    if limits := limits_of(spec):
        found["limits"] = limits
    return found


def run_of(spec: RunSpec) -> Fields:
    """What runs: the one of the three that it is."""
    if spec.agent:
        return {"agent": ANY if spec.agent == AUTO else spec.agent}
    return {"command": list(spec.command)} if spec.command else {"function": spec.function}


def permissions_of(spec: RunSpec, usual: str = "edit") -> Fields:
    """What an agent may do, on the items or in a reduce."""
    return _given(
        {
            "permissions": spec.permissions if spec.permissions != usual else None,
            "allow": list(spec.allow),
            "model": spec.model,
            "turns": spec.turns,
            "fallback": spec.fallback,
        }
    )


def costs_of(spec: RunSpec) -> Fields:
    """What an agent may cost: those of the limits that are about nothing else."""
    return {name: value for name, value in limits_of(spec).items() if name in COSTS}


def _agent(spec: RunSpec) -> Fields:
    return (
        {"prompt": PROMPT}
        | permissions_of(spec)
        | _given(
            {
                "workspace": spec.workspace if spec.workspace != "project" else None,
                "pull": spec.pull if spec.mode == "pull" else None,
                "schema": SCHEMA if spec.schema else None,
            }
        )
    )


def limits_of(spec: RunSpec) -> Fields:
    return {
        name: value
        for name, value in {
            "timeout": _in_units(spec.time, SPANS),
            "memory": _in_units(spec.memory, SIZES),
            "silence": _in_units(spec.silence, SPANS),
            "max-output": _in_units(spec.output, SIZES),
            "budget": _money(spec.budget),
            "task-budget": _money(spec.task_budget),
            "tokens": spec.tokens,
            "task-tokens": spec.task_tokens,
        }.items()
        if value is not None
    }


def _given(values: Fields) -> Fields:
    return {name: value for name, value in values.items() if value}


def _in_units(amount: int | None, units: tuple[tuple[str, int], ...]) -> str | int | None:
    """In the largest unit that leaves no rest."""
    if not amount:
        return amount
    for name, unit in units:
        if amount % unit == 0:
            return f"{amount // unit}{name}"
    return amount


def _money(micros: int | None) -> str | None:
    return None if micros is None else f"{(Decimal(micros) / 1_000_000).normalize():f}"
