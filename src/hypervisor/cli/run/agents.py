"""The options of `hv run --agent`: what they mean, what they exclude, what would be started."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from hypervisor.agents import agents as choosing
from hypervisor.agents.installed import Preview
from hypervisor.agents.preflight import AgentSurvey
from hypervisor.agents.profile import MODES
from hypervisor.agents.routing import AUTO
from hypervisor.cli import arguments
from hypervisor.cli.output import block, one_line, print_json
from hypervisor.cli.run.request import AgentOptions, RunRequest
from hypervisor.core.errors import InvalidInput
from hypervisor.core.text import amount_text, pluralize
from hypervisor.inputs.items import task_for
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.runs.spec import RunSpec

if TYPE_CHECKING:
    from hypervisor.cli.run.pipeline import Stages
    from hypervisor.cli.run.prepare import PreparedRun

ONLY_WITH = AgentOptions._fields[1:]  # mean nothing without an agent …
FOR_REDUCE = tuple(  # … but most of them go for the agent of a reduce, too
    name for name in ONLY_WITH if name not in ("prompt", "pull", "scratch", "schema")
)
NOT_WITH = ("fn", "python", "shell", "clean_env", "claim")
BUDGETS = (
    ("--budget", arguments.money, "MONEY", "pause the batch when its cost reaches this, e.g. 5.00"),
    ("--task-budget", arguments.money, "MONEY", "for each task"),
    ("--tokens", arguments.amount, "N", "for the whole batch, e.g. 2M"),
    ("--task-tokens", arguments.amount, "N", "for each task"),
)
LIMITS = ("turns", "budget", "task_budget", "tokens", "task_tokens")
MOST_PULLED = 10
LONGEST_PROMPT = 200_000
NO_SANDBOX = "none: nothing but the agent's own rules keeps it in the folder"


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("agents (hv agents lists them)")
    group.add_argument(
        "--agent", metavar="NAME|auto", help="works on each item; auto: as config.toml routes"
    )
    group.add_argument(
        "--prompt", metavar="FILE|TEXT", help="what it is told (default: to do what the item says)"
    )
    group.add_argument(
        "--permissions", choices=MODES, help="what it may do (default: edit, inside the folder)"
    )
    group.add_argument(
        "--allow",
        action="append",
        metavar="TOOL",
        help="a tool of the agent that it may use besides",
    )
    group.add_argument("--model", metavar="NAME", help="of those the agent knows")
    group.add_argument("--turns", type=int, metavar="N", help="so many turns at most")
    group.add_argument(
        "--pull",
        type=int,
        nargs="?",
        const=MOST_PULLED,
        metavar="N",
        help=f"an agent claims task after task by itself, up to N ({MOST_PULLED}), over MCP",
    )
    group.add_argument(
        "--fallback", metavar="NAME", help="agent to use while the first one is rate-limited"
    )
    group.add_argument(
        "--scratch",
        action="store_true",
        help="each works on a copy; its changes are kept as a patch",
    )
    group.add_argument(
        "--schema", metavar="FILE", help="JSON Schema of the data that its report shall hold"
    )
    for option, type, metavar, help in BUDGETS:
        group.add_argument(option, type=type, metavar=metavar, help=help)


def check(request: RunRequest) -> None:
    """Options that do not go together are refused before anything is read."""
    options = request.agents
    if options.agent is None:
        usable = FOR_REDUCE if request.pipeline.reduce_prompt is not None else ()
        wrong = next((n for n in ONLY_WITH if getattr(options, n) and n not in usable), None)
        if wrong is not None:
            raise InvalidInput(
                f"--{wrong.replace('_', '-')} goes with an agent, as in "
                "`hv run --agent claude --prompt review.md --items 'src/**/*.py'`."
            )
        return
    if request.command:
        raise InvalidInput(
            "say what to run: a command after --, or an agent with --agent; not both."
        )
    wrong = next((name for name in NOT_WITH if getattr(request, name)), None)
    if wrong is not None or request.stdin == "item" or request.result == "json":
        named = {"claim": "batch", None: "stdin" if request.stdin == "item" else "result"}
        word = named.get(wrong, wrong)
        raise InvalidInput(f"--{str(word).replace('_', '-')} does not go with --agent.")


def spec_fields(request: RunRequest) -> dict[str, Any]:
    """The fields of the batch's spec that are about agents."""
    options = request.agents
    if options.agent is None:
        return {}
    return {
        "agent": options.agent,
        "prompt": prompt_text(options.prompt),
        "mode": "pull" if options.pull is not None else "push",
        "pull": MOST_PULLED if options.pull is None else options.pull,
        "workspace": "scratch" if options.scratch else "project",
        "schema": _schema(options.schema),
        **allowance(request),
    }


def allowance(request: RunRequest) -> dict[str, Any]:
    """What an agent may do and cost, on the items as well as in the reduce."""
    options = request.agents
    return {
        "permissions": options.permissions or ("read-only" if request.propose else "edit"),
        "allow": options.allow,
        "fallback": options.fallback or "",
        "model": options.model or "",
        **{name: getattr(options, name) for name in LIMITS},
    }


def batch_name(spec: RunSpec, prompt: str | None) -> tuple[str, str]:
    """The batch's name, and what makes it the same batch when run again: the agent, its prompt
    and the folder."""
    given = prompt or ""
    stem = os.path.splitext(os.path.basename(given))[0] if os.path.isfile(given) else ""
    name = f"{spec.agent}-{stem}" if stem else spec.agent
    return name, "\0".join((spec.cwd, "agent", spec.agent, spec.prompt))


def prompt_text(given: str | None, option: str = "--prompt") -> str:
    """The text of the file, or the text itself. A name that looks like a file's must be one."""
    if given is None:
        return ""
    if not given.strip():
        raise InvalidInput(f"{option} is empty.")
    is_name = len(given) < 1_000 and "\n" not in given
    if is_name and os.path.isfile(given):
        text = arguments.read_text(given, "the prompt")
        if not text.strip():
            raise InvalidInput(f"{given} is empty: it should say what the agent shall do.")
    elif is_name and os.path.isdir(given):
        raise InvalidInput(f"{given} is a folder: name a file, or say what to do in words.")
    elif is_name and not any(c.isspace() for c in given) and ("/" in given or "." in given[1:-1]):
        raise InvalidInput(f"there is no file {given}. A prompt as text needs a space in it.")
    else:
        text = given
    if len(text) > LONGEST_PROMPT:
        raise InvalidInput(f"the prompt is longer than {LONGEST_PROMPT:,} characters.")
    return text


def _schema(path: str | None) -> str:
    if path is None:
        return ""
    text = arguments.read_text(path, "the schema")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} is no JSON Schema: that is an object.")
    return json.dumps(found)


class AgentChoice(NamedTuple):
    """The agents of this host, and who works on what."""

    host: Context
    router: choosing.Router
    survey: AgentSurvey


def open_host(request: RunRequest) -> Context:
    """Settings and programs are what matters here, not the store."""
    host = request.look()
    _ = host.settings, host.agent_programs  # made while the store is open
    host.close()
    return host


def choose(request: RunRequest, spec: RunSpec) -> tuple[RunSpec, AgentChoice | None]:
    """Find the agents on this host; the spec then names them.

    AgentNotReady: the one that is named cannot work here."""
    if request.agents.agent is None:
        return spec, None
    host = open_host(request)
    spec = choosing.equipped_spec(host, spec)
    router = choosing.Router(host, spec)
    return spec, AgentChoice(host, router, AgentSurvey(router, spec))


# What would be started


def dry_run(run: PreparedRun, agents: AgentChoice, first: Item, stages: Stages) -> None:
    """Agent, command line, the prompt of the first item, and what follows."""
    task, spec = task_for(first, run.items.base), run.spec
    name = agents.router.agent(task) or spec.agents[0]
    profile = choosing.find_agent(agents.host, name)
    preview = choosing.preview(agents.host, spec, task, first)
    if run.request.json:
        print_json(
            {
                "batch": run.batch_name,
                "items": run.items.count,
                "agent": name,
                "version": profile.version,
                "routed": dict(agents.survey.routed),
                **preview._asdict(),
                **stages.as_json(),
            }
        )
        return
    routed = ", ".join(f"{name or 'nobody'} {n:,}" for name, n in agents.survey.routed.items())
    facts = [
        ("agent", f"{name} {profile.version} ({profile.path})"),
        ("batch", run.batch_name),
        ("routed", routed if len(agents.survey.routed) > 1 else ""),
        ("folder", preview.cwd),
        ("allowed", ", ".join((spec.permissions, *spec.allow))),
        ("sandbox", preview.sandbox or NO_SANDBOX),
        ("variables", ", ".join(preview.variables)),
        ("command", shlex.join(_without_prompt(preview))),
    ]
    lines = [f"{f'{name}:':<11} {one_line(text)}" for name, text in facts if text]
    lines.append("prompt:" if spec.mode == "pull" else "prompt of the first item:")
    lines += [block(preview.prompt), *stages.lines()]
    lines.append(f"{pluralize(run.items.count, 'item')} (dry run: nothing was started)")
    print("\n".join(lines))


def _without_prompt(found: Preview) -> list[str]:
    """The prompt is shown below, not once more in the command."""
    return ["PROMPT" if word == found.prompt else word for word in found.argv]


def opening(spec: RunSpec, survey: AgentSurvey) -> str:
    """Who works on the batch, in one line."""
    who = ", ".join(f"{name or 'nobody'} ({n:,})" for name, n in survey.routed.items())
    parts = [
        who if spec.agent == AUTO else spec.agent,
        spec.permissions + (f" + {', '.join(spec.allow)}" if spec.allow else ""),
        "in scratch copies" if spec.workspace == "scratch" else "",
        f"budget {amount_text(spec.budget)}" if spec.budget is not None else "",
        f"at most {spec.tokens:,} tokens" if spec.tokens is not None else "",
    ]
    return one_line(" · ".join(part for part in parts if part))
