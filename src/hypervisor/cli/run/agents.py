"""The words of `hv run --agent`: what they mean, what they exclude, and what would be started."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from hypervisor.agents import agents as choosing
from hypervisor.agents.installed import Preview
from hypervisor.agents.preflight import AgentSurvey
from hypervisor.agents.profile import MODES
from hypervisor.agents.routing import AUTO
from hypervisor.cli import values
from hypervisor.cli.output import block, one_line, print_json
from hypervisor.core.errors import EXIT_OK, InvalidInput
from hypervisor.core.text import amount_text, counted
from hypervisor.inputs.items import task_for
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.runs.spec import RunSpec

# Options that say how an agent works, and so mean nothing without one …
ONLY_WITH = (
    "prompt",
    "pull",
    "permissions",
    "allow",
    "model",
    "turns",
    "budget",
    "task_budget",
    "task_tokens",
    "tokens",
    "fallback",
    "scratch",
    "schema",
)
# … and of them those that go for the agent of a reduce, too.
FOR_REDUCE = (
    "permissions",
    "allow",
    "model",
    "turns",
    "budget",
    "task_budget",
    "task_tokens",
    "tokens",
    "fallback",
)
# … and those that say how a command or function works.
NOT_WITH = ("fn", "python", "shell", "clean_env", "claim")
MOST_PULLED = 10
LONGEST_PROMPT = 200_000


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
        "--fallback", metavar="NAME", help="takes over while the agent's account rests"
    )
    group.add_argument(
        "--scratch",
        action="store_true",
        help="each works on a copy; its changes are kept as a patch",
    )
    group.add_argument(
        "--schema", metavar="FILE", help="JSON Schema of the data that its report shall hold"
    )
    group.add_argument(
        "--budget",
        type=values.money,
        metavar="MONEY",
        help="for the whole batch, e.g. 5.00; it is paused at that",
    )
    group.add_argument("--task-budget", type=values.money, metavar="MONEY", help="for each task")
    group.add_argument(
        "--tokens", type=values.amount, metavar="N", help="for the whole batch, e.g. 2M"
    )
    group.add_argument("--task-tokens", type=values.amount, metavar="N", help="for each task")


def check(args: argparse.Namespace) -> None:
    """Words that do not go together are refused before anything is read."""
    if args.agent is None:
        usable = FOR_REDUCE if args.reduce_prompt is not None else ()
        wrong = next((n for n in ONLY_WITH if getattr(args, n) and n not in usable), None)
        if wrong is not None:
            raise InvalidInput(
                f"--{wrong.replace('_', '-')} goes with an agent, as in "
                "`hv run --agent claude --prompt review.md --items 'src/**/*.py'`."
            )
        return
    if args.command:
        raise InvalidInput(
            "say what to run: a command after --, or an agent with --agent; not both."
        )
    wrong = next((name for name in NOT_WITH if getattr(args, name)), None)
    if wrong is not None or args.stdin == "item" or args.result == "json":
        named = {"claim": "batch", None: "stdin" if args.stdin == "item" else "result"}
        word = named.get(wrong, wrong)
        raise InvalidInput(f"--{str(word).replace('_', '-')} does not go with --agent.")


def fields(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of the batch's spec that are about agents."""
    if args.agent is None:
        return {}
    return {
        "agent": args.agent,
        "prompt": prompt_text(args.prompt),
        "mode": "pull" if args.pull is not None else "push",
        "pull": MOST_PULLED if args.pull is None else args.pull,
        "workspace": "scratch" if args.scratch else "project",
        "schema": _schema(args.schema),
        **leave(args),
    }


def leave(args: argparse.Namespace) -> dict[str, Any]:
    """What an agent may do and cost, on the items as well as in the reduce."""
    return {
        "permissions": args.permissions or ("read-only" if args.propose else "edit"),
        "allow": tuple(args.allow or ()),
        "fallback": args.fallback or "",
        "model": args.model or "",
        "turns": args.turns,
        "budget": args.budget,
        "task_budget": args.task_budget,
        "tokens": args.tokens,
        "task_tokens": args.task_tokens,
    }


def called(spec: RunSpec, args: argparse.Namespace) -> tuple[str, str]:
    """What the batch is called, and what makes it the same batch when run again: the agent, what
    it is told, and the folder."""
    given = args.prompt or ""
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
        text = values.read_text(given, "the prompt")
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
    text = values.read_text(path, "the schema")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} is no JSON Schema: that is an object.")
    return json.dumps(found)


def survey(args: argparse.Namespace) -> AgentSurvey:
    """Finds the agents on this host, and gets ready to say who works on what.

    AgentNotReady: the one that is named cannot work here."""
    args.host = args.look()
    _ = args.host.equipment  # settings and programs are what matters here, not the store
    args.host.close()
    args.spec = choosing.equipped_spec(args.host, args.spec)
    args.router = choosing.Router(args.host, args.spec)
    return AgentSurvey(args.router, args.spec)


# What would be started


def show(
    args: argparse.Namespace, first: Item, follows: Mapping[str, Any], told: Sequence[str]
) -> int:
    """The dry run: agent, command line, the prompt of the first item, and what follows."""
    host: Context = args.host
    task = task_for(first, args.base)
    name = args.router.agent(task) or args.spec.agents[0]
    seen = choosing.find_agent(host, name)
    found = choosing.preview(host, args.spec, task, first)
    if args.json:
        print_json(
            {
                "batch": args.batch_name,
                "items": args.count,
                "agent": name,
                "version": seen.version,
                "routed": dict(args.survey.agents.routed),
                **found._asdict(),
                **follows,
            }
        )
        return EXIT_OK
    print(f"agent:      {one_line(f'{name} {seen.version} ({seen.path})')}")
    for line in _told(found, args):
        print(line)
    print("prompt:" if args.spec.mode == "pull" else "prompt of the first item:")
    print(block(found.prompt))
    for line in told:
        print(line)
    print(f"{counted(args.count, 'item')} (dry run: nothing was started)")
    return EXIT_OK


def _told(found: Preview, args: argparse.Namespace) -> list[str]:
    spec: RunSpec = args.spec
    routed = ", ".join(
        f"{name or 'nobody'} {count:,}" for name, count in args.survey.agents.routed.items()
    )
    kept = found.sandbox or "none: nothing but the agent's own rules keeps it in the folder"
    lines = [
        ("batch", args.batch_name),
        ("routed", routed if len(args.survey.agents.routed) > 1 else ""),
        ("folder", found.cwd),
        ("allowed", ", ".join((spec.permissions, *spec.allow))),
        ("sandbox", kept),
        ("variables", ", ".join(found.variables)),
        ("command", shlex.join(_without_prompt(found))),
    ]
    return [f"{f'{name}:':<11} {one_line(text)}" for name, text in lines if text]


def _without_prompt(found: Preview) -> list[str]:
    """The prompt is shown below, not once more in the command."""
    return ["PROMPT" if word == found.prompt else word for word in found.argv]


def opening(args: argparse.Namespace) -> str:
    """Who works on the batch, in one line."""
    spec: RunSpec = args.spec
    who = ", ".join(
        f"{name or 'nobody'} ({count:,})" for name, count in args.survey.agents.routed.items()
    )
    parts = [
        who if spec.agent == AUTO else spec.agent,
        spec.permissions + (f" + {', '.join(spec.allow)}" if spec.allow else ""),
        "in scratch copies" if spec.workspace == "scratch" else "",
        f"budget {amount_text(spec.budget)}" if spec.budget is not None else "",
        f"at most {spec.tokens:,} tokens" if spec.tokens is not None else "",
    ]
    return one_line(" · ".join(part for part in parts if part))
