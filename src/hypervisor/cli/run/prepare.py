"""Checking a run before there is a store: the command, the items and later stages."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import TYPE_CHECKING

from hypervisor.cli.run import agents as run_agents
from hypervisor.cli.run.agents import AgentChoice
from hypervisor.cli.run.items import RunItems
from hypervisor.cli.run.pipeline import Stages, stages_of
from hypervisor.cli.run.request import RunRequest
from hypervisor.cli.run.spec import name_for, spec_of
from hypervisor.cli.run.workspaces import checked_clones, item_files, notes_on
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.template import Template
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.spec import RunSpec, template_of

if TYPE_CHECKING:
    from hypervisor.batches.preflight import Survey


class PreparedRun(NamedTuple):
    """A checked request, with everything that is known before tasks are added."""

    request: RunRequest
    spec: RunSpec
    stages: Stages
    batch_name: str
    agents: AgentChoice | None
    items: RunItems
    template: Template | None
    notes: tuple[str, ...] = ()  # on the workspaces


def prepare_run(request: RunRequest) -> PreparedRun:
    run_agents.check(request)
    if bool(request.fn) == bool(request.command) and not request.agents.agent:
        if request.fn:
            raise InvalidInput("give either a command after --, or a function with --fn, not both.")
        raise InvalidInput(
            "nothing to run: give a command after --, a function with --fn or an agent with "
            "--agent, as in `hv run --items FILE -- gzip {}`."
        )
    spec = check_spec(spec_of(request))
    if request.fn:
        from hypervisor.skills.builtin.rule_files import check_rules

        check_rules(request.fn, spec.cwd)  # a mistake would fail once for every item
    template = template_of(spec.command) if spec.command else None
    spec = checked_clones(spec)
    stages = stages_of(request, spec)
    _check_programs(request, spec, stages)
    spec, agents = run_agents.choose(request, spec)
    name = name_for(spec, request) if request.name is None else request.name
    name = validate.label("--name", name)
    survey = partial(_survey, request, spec, name, agents)
    then = [template_of(stage.command) for stage in stages.then if stage.command]
    files = item_files(request, spec)
    items = RunItems(request, survey, agents, template, then, files=files)
    notes = notes_on(spec, files)
    return PreparedRun(request, spec, stages, name, agents, items, template, notes)


def _survey(request: RunRequest, spec: RunSpec, name: str, agents: AgentChoice | None) -> Survey:
    """The preflight of task files and rows, with what it has to know about the run."""
    from hypervisor.batches.preflight import RunIntent, Survey

    tasks = request.tasks
    in_text = spec.write_back == "status"  # the tasks are about the files they mention
    intent = RunIntent(
        spec.cwd,
        name,
        tasks.type,
        request.workers,
        requires=tasks.requires,
        in_text=in_text,
        rerun=request.rerun,
    )
    return Survey(intent, agents and agents.survey)


def _check_programs(request: RunRequest, spec: RunSpec, stages: Stages) -> None:
    """A missing program would fail once for every item. In a store that other hosts share, it
    may exist on those."""
    if "://" in (request.store or os.environ.get("HYPERVISOR_STORE", "")):
        return
    programs = [stage.command.argv[0] for stage in stages.specs if stage.command]
    if request.fn and request.python:
        programs.insert(0, request.python)
    elif request.command and not (request.shell or request.fn):
        programs.insert(0, request.command[0])
    for program in programs:
        path = os.path.join(spec.cwd, program) if "/" in program else program
        if "{" not in program and shutil.which(path) is None:
            raise InvalidInput(f"command not found: {program[:200]}")
