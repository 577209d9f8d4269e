"""Checking a run before there is a store: what is run, the items, and what follows on them."""

import os
import shutil
from typing import NamedTuple

from hypervisor.batches.preflight import Intent, Survey
from hypervisor.cli.run import agents as run_agents
from hypervisor.cli.run.agents import AgentChoice
from hypervisor.cli.run.items import RunItems
from hypervisor.cli.run.pipeline import Stages, stages_of
from hypervisor.cli.run.request import RunRequest
from hypervisor.cli.run.spec import name_for, spec_of
from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.template import Template
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.spec import RunSpec, template_of


class PreparedRun(NamedTuple):
    """A request that was checked, with all that is known before anything is made."""

    request: RunRequest
    spec: RunSpec
    stages: Stages
    batch_name: str
    agents: AgentChoice | None
    items: RunItems
    template: Template | None

    @property
    def survey(self) -> Survey:
        return self.items.survey


def prepare_run(request: RunRequest) -> PreparedRun:
    run_agents.check(request)
    if bool(request.fn) == bool(request.command) and not request.agents.agent:
        both = "not both" if request.fn else "as in `hv run --items FILE -- gzip {}`"
        raise InvalidInput(f"say what to run: a command after --, or a function with --fn; {both}.")
    spec = check_spec(spec_of(request))
    template = template_of(spec) if request.command else None
    stages = stages_of(request, spec)
    _check_programs(request, spec, stages)
    spec, agents = run_agents.choose(request, spec)
    name = name_for(spec, request) if request.name is None else request.name
    name = validate.label("--name", name)
    survey = Survey(_intent(request, spec, name), agents and agents.survey)
    then = [template_of(stage) for stage in stages.then]
    items = RunItems(request, survey, agents and agents.router, template, then)
    return PreparedRun(request, spec, stages, name, agents, items, template)


def _intent(request: RunRequest, spec: RunSpec, name: str) -> Intent:
    """What the pre-flight has to know of the run."""
    tasks = request.tasks
    in_text = spec.write_back == "status"  # task files are worked on: what they name counts
    return Intent(
        spec.cwd, name, tasks.type, request.workers, requires=tasks.requires, in_text=in_text
    )


def _check_programs(request: RunRequest, spec: RunSpec, stages: Stages) -> None:
    """A program that is not there would fail once for every item. Where other hosts share the
    store it may be theirs."""
    if "://" in (request.store or os.environ.get("HYPERVISOR_STORE", "")):
        return
    programs = [stage.command[0] for stage in stages.specs if stage.command]
    if request.fn and request.python:
        programs.insert(0, request.python)
    elif request.command and not (request.shell or request.fn):
        programs.insert(0, request.command[0])
    for program in programs:
        path = os.path.join(spec.cwd, program) if "/" in program else program
        if "{" not in program and shutil.which(path) is None:
            raise InvalidInput(f"command not found: {program[:200]}")
