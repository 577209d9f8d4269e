"""The options of `hv run --agent`, their checks, and the dry run."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from typing import TYPE_CHECKING

from hypervisor.cli import arguments
from hypervisor.cli.output import block, one_line, print_json
from hypervisor.cli.run.request import AgentOptions, RunRequest
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import money_text, pluralize
from hypervisor.inputs.items import task_for
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.runs.spec import AUTO, PERMISSIONS, AgentSpec, RunSpec, Workspace

if TYPE_CHECKING:
    from hypervisor.agents.agents import Router
    from hypervisor.agents.installed import Preview
    from hypervisor.agents.preflight import AgentSurvey
    from hypervisor.cli.run.pipeline import Stages
    from hypervisor.cli.run.prepare import PreparedRun

ONLY_WITH = AgentOptions._fields[1:]  # meaningless without an agent …
FOR_REDUCE = tuple(  # … but most of them also apply to the agent of a reduce
    name for name in ONLY_WITH if name not in ("prompt", "pull", "scratch", "schema")
)
NOT_WITH = ("fn", "python", "shell", "clean_env", "claim")
BUDGETS = (
    ("--budget", arguments.money, "USD", "pause the batch when its cost reaches this, e.g. 5.00"),
    ("--task-budget", arguments.money, "USD", "the same for each task"),
    ("--tokens", arguments.amount, "N", "pause the batch after N tokens, e.g. 2M"),
    ("--task-tokens", arguments.amount, "N", "the same for each task"),
)
MAX_PULLED = 10
MAX_PROMPT_LENGTH = 200_000
PLACES: dict[Workspace, str] = {
    "": "",
    "project": "",
    "scratch": "in scratch copies",
    "clone": "in clones of the repository",
}
NO_SANDBOX = "none: only the agent's own rules keep it in the folder"


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("agents (hv agents lists them)")
    group.add_argument(
        "--agent",
        metavar="NAME|auto",
        help="agent for the items; auto: chosen by the routing in config.toml",
    )
    group.add_argument(
        "--prompt", metavar="FILE|TEXT", help="prompt (default: do what the item says)"
    )
    group.add_argument(
        "--permissions",
        choices=PERMISSIONS,
        help="what the agent may do (default: edit, inside the folder)",
    )
    group.add_argument(
        "--allow", action="append", metavar="TOOL", help="another tool that the agent may use"
    )
    group.add_argument("--model", metavar="NAME", help="model, as the agent calls it")
    group.add_argument("--turns", type=int, metavar="N", help="maximum number of turns")
    group.add_argument(
        "--pull",
        type=int,
        nargs="?",
        const=MAX_PULLED,
        metavar="N",
        help=f"let each agent claim up to N tasks itself, over MCP (default {MAX_PULLED})",
    )
    group.add_argument(
        "--fallback", metavar="NAME", help="agent to use while the first one is rate-limited"
    )
    group.add_argument(
        "--scratch",
        action="store_true",
        help="give each agent a copy of the folder; keep its changes as a patch",
    )
    group.add_argument(
        "--schema", metavar="FILE", help="JSON Schema of the data that the agent must report"
    )
    for option, type, metavar, help in BUDGETS:
        group.add_argument(option, type=type, metavar=metavar, help=help)
    group.add_argument(
        "--gateway",
        action=argparse.BooleanOptionalAction,
        help="call models through the gateway, which keeps API keys and enforces budgets (default)",
    )


def check(request: RunRequest) -> None:
    """Refuse options that cannot be used together, before anything is read."""
    options = request.agents
    if options.agent is None:
        usable = FOR_REDUCE if request.pipeline.reduce_prompt is not None else ()
        wrong = next((n for n in ONLY_WITH if getattr(options, n) and n not in usable), None)
        if wrong is not None:
            raise InvalidInput(
                f"--{wrong.replace('_', '-')} works only with an agent, as in "
                "`hv run --agent claude --prompt review.md --items 'src/**/*.py'`."
            )
        return
    if request.command:
        raise InvalidInput("give either a command after --, or an agent with --agent, not both.")
    wrong = next((name for name in NOT_WITH if getattr(request, name)), None)
    if wrong is not None or request.stdin == "item" or request.result == "json":
        word = wrong or ("stdin" if request.stdin == "item" else "result")
        raise InvalidInput(f"--{word.replace('_', '-')} cannot be used with --agent.")


def agent_spec(request: RunRequest, name: str) -> AgentSpec:
    """The agent for the items."""
    options = request.agents
    return allowed_agent(request, name)._replace(
        prompt=prompt_text(options.prompt),
        mode="push" if options.pull is None else "pull",
        pull=MAX_PULLED if options.pull is None else options.pull,
        schema=_schema(options.schema),
    )


def allowed_agent(request: RunRequest, name: str) -> AgentSpec:
    """An agent with its permissions and budgets, for the items or for the reduce."""
    options = request.agents
    return AgentSpec(
        name,
        permissions=options.permissions or ("read-only" if request.propose else "edit"),
        allow=options.allow,
        fallback=options.fallback or "",
        model=options.model or "",
        turns=options.turns,
        budget=options.budget,
        task_budget=options.task_budget,
        tokens=options.tokens,
        task_tokens=options.task_tokens,
        gateway=options.gateway,
    )


def batch_name(cwd: str, spec: AgentSpec, prompt: str | None) -> tuple[str, str]:
    """The batch's name, and what identifies it when run again: agent, prompt and folder."""
    given = prompt or ""
    stem = os.path.splitext(os.path.basename(given))[0] if os.path.isfile(given) else ""
    name = f"{spec.name}-{stem}" if stem else spec.name
    return name, "\0".join((cwd, "agent", spec.name, spec.prompt))


def prompt_text(given: str | None, option: str = "--prompt") -> str:
    """The content of the file, or the text itself. What looks like a path must exist."""
    if given is None:
        return ""
    if not given.strip():
        raise InvalidInput(f"{option} is empty.")
    is_name = len(given) < 1_000 and "\n" not in given
    if is_name and os.path.isfile(given):
        text = arguments.read_text(given, "the prompt")
        if not text.strip():
            raise InvalidInput(f"{given} is empty: it must contain the prompt for the agent.")
    elif is_name and os.path.isdir(given):
        raise InvalidInput(f"{given} is a folder: give a file, or the prompt itself.")
    elif is_name and not any(c.isspace() for c in given) and ("/" in given or "." in given[1:-1]):
        raise InvalidInput(
            f"no such file: {given}. To give the prompt itself, use more than one word."
        )
    else:
        text = given
    if len(text) > MAX_PROMPT_LENGTH:
        raise InvalidInput(f"the prompt is longer than {MAX_PROMPT_LENGTH:,} characters.")
    return text


def _schema(path: str | None) -> str:
    if path is None:
        return ""
    text = arguments.read_text(path, "the schema")
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(schema, dict):
        raise InvalidInput(f"{path} is not a JSON Schema: expected an object.")
    return json.dumps(schema)


class AgentChoice(NamedTuple):
    """The agents of this host, and which one works on which item."""

    host: Context
    spec: AgentSpec
    router: Router
    survey: AgentSurvey


def open_host(request: RunRequest) -> Context:
    """The settings and programs of this host, without a store."""
    host = request.look()
    _ = host.settings, host.agent_programs  # made while the store is open
    host.close()
    return host


def choose(request: RunRequest, spec: RunSpec) -> tuple[RunSpec, AgentChoice | None]:
    """Find the agents on this host and complete the spec with them.

    AgentNotReady: the named agent cannot work here."""
    if spec.agent is None:
        return spec, None
    from hypervisor.agents.agents import Router, equipped_spec, ways_of
    from hypervisor.agents.preflight import AgentSurvey

    host = open_host(request)
    agent = equipped_spec(host, spec.agent)
    router = Router(host, agent)
    choice = AgentChoice(host, agent, router, AgentSurvey(router, agent, ways_of(host, agent)))
    return spec._replace(work=agent), choice


# What would be started


def dry_run(run: PreparedRun, agents: AgentChoice, first: Item, stages: Stages) -> None:
    """Agent, command line, the prompt of the first item, and later stages."""
    from hypervisor.agents.agents import find_agent, preview

    task, spec = task_for(first, run.items.base), agents.spec
    name = agents.router.agent(task) or spec.agents[0]
    profile = find_agent(agents.host, name)
    start = preview(agents.host, run.spec, task, first)
    if run.request.json:
        print_json(
            {
                "batch": run.batch_name,
                "items": run.items.count,
                "agent": name,
                "version": profile.version,
                "routed": dict(agents.survey.routed),
                **start._asdict(),
                "sandbox": _sandbox_text(agents.host, run.spec, name, start.sandbox),
                **stages.as_json(),
            }
        )
        return
    routed = ", ".join(f"{name or 'no agent'} {n:,}" for name, n in agents.survey.routed.items())
    facts = [
        ("agent", f"{name} {profile.version} ({profile.path})"),
        ("batch", run.batch_name),
        ("routed", routed if len(agents.survey.routed) > 1 else ""),
        ("folder", start.cwd),
        ("allowed", ", ".join((spec.permissions, *spec.allow))),
        ("sandbox", _sandbox_text(agents.host, run.spec, name, start.sandbox)),
        ("calls", start.calls_text),
        ("variables", ", ".join(start.variables)),
        ("command", shlex.join(_without_prompt(start))),
    ]
    lines = [f"{f'{name}:':<11} {one_line(text)}" for name, text in facts if text]
    lines.append("prompt:" if spec.mode == "pull" else "prompt of the first item:")
    lines += [block(start.prompt), *stages.lines(), *map(one_line, run.notes)]
    lines.append(f"{pluralize(run.items.count, 'item')} (dry run: nothing was started)")
    print("\n".join(lines))


def _sandbox_text(host: Context, spec: RunSpec, name: str, own: str) -> str:
    from hypervisor.runs.sandbox.check import check_sandbox, described

    check_sandbox(host, spec)
    return described(host, spec, name) or own or NO_SANDBOX


def _without_prompt(start: Preview) -> list[str]:
    """The command line with PROMPT for the prompt, which is shown below it."""
    return ["PROMPT" if word == start.prompt else word for word in start.argv]


def opening(spec: AgentSpec, survey: AgentSurvey, workspace: Workspace) -> str:
    """The agents of the batch and their limits, in one line."""
    routed = ", ".join(f"{name or 'no agent'} ({n:,})" for name, n in survey.routed.items())
    parts = [
        routed if spec.name == AUTO else spec.name,
        spec.permissions + (f" + {', '.join(spec.allow)}" if spec.allow else ""),
        PLACES[workspace],
        ", ".join(dict.fromkeys(way.short for way in survey.ways.values() if way.short)),
        f"budget {money_text(spec.budget)}" if spec.budget is not None else "",
        f"at most {spec.tokens:,} tokens" if spec.tokens is not None else "",
    ]
    return one_line(" · ".join(part for part in parts if part))
