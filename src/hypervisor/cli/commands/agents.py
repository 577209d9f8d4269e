"""hv agents"""

from __future__ import annotations

import argparse
import sys

from hypervisor.agents.agents import AgentView, agents, check_agent
from hypervisor.agents.installed import Probed
from hypervisor.agents.rate_limits import lift_brake
from hypervisor.cli.listed import add_words, print_names
from hypervisor.cli.output import clock, colour, duration, one_line, print_json, table
from hypervisor.cli.render import brake_text, money_text
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL, InvalidInput
from hypervisor.queue.context import Context
from hypervisor.resources.limits import size_text

EXAMPLE = """hv agents
  hv agents check claude
  hv agents lift anthropic:9f2c1d07"""
WORDS = {
    "check": "one turn with the real program",
    "lift": "end the rest of an account",
}
HEAD = ("AGENT", "VERSION", "MEMORY", "RUNNING", "STATE")


def configure(parser: argparse.ArgumentParser) -> None:
    add_words(parser, WORDS, "NAME|ACCOUNT")


def prepare(args: argparse.Namespace) -> None:
    if args.word and not args.name:
        raise InvalidInput(
            f"say which: hv agents {args.word} {'NAME' if args.word == 'check' else 'ACCOUNT'}."
        )


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.word == "check":
        return _check(hv, args)
    if args.word == "lift":
        return _lift(hv, args)
    if args.names:
        print_names(list(hv.settings.agents), args.json)
        return EXIT_OK
    found = agents(hv)
    if args.json:
        print_json(found)
    else:
        _show(found, hv.now() if hv.has_store else 0)
    return EXIT_OK


def _show(found: tuple[AgentView, ...], now: int) -> None:
    """Those that are there first, then how the others are got."""
    here = [each for each in found if each.path]
    missing = [each for each in found if not each.path]
    rows = [
        (each.name, _version(each), _memory(each), _running(each), _state(each)) for each in here
    ]
    if rows:
        table(HEAD, rows, ["done" if each.ready else "blocked" for each in here])
    for each in here:
        for brake in each.brakes:
            print(one_line(f"  {brake_text(brake, now)}"))
            print(one_line(f"  hv agents lift {brake.account}  ends that"))
    if missing and rows:
        print()
    if missing:
        print("not installed:")
        widest = max(len(each.name) for each in missing)
        for each in missing:
            print(one_line(f"  {each.name:<{widest}}  {each.install or each.program}"))


def _version(each: AgentView) -> str:
    """Only the number: what programs print around it is their name once more."""
    import re

    found = re.search(r"\d+(\.\d+)+\S*", each.version)
    return found[0].rstrip(".,;") if found else each.version


def _memory(each: AgentView) -> str:
    return size_text(each.memory) if each.learned else f"({size_text(each.memory)})"


def _running(each: AgentView) -> str:
    most = "" if each.workers is None else f" of {each.workers}"
    return f"{each.running}{most}"


def _state(each: AgentView) -> str:
    if each.why:
        return each.why
    if each.brakes:
        return f"rate-limited until {clock(max(brake.until for brake in each.brakes))}"
    return "ready" if each.verified else "ready (unverified)"


def _check(hv: Context, args: argparse.Namespace) -> int:
    if not args.json and sys.stderr.isatty():
        print(f"asking {one_line(args.name)} for one word …", file=sys.stderr)
    found = check_agent(hv, args.name)
    if args.json:
        print_json(found)
    else:
        print(colour(_told(args.name, found), "done" if found.ok else "failed"))
    return EXIT_OK if found.ok else EXIT_UNSUCCESSFUL


def _told(name: str, found: Probed) -> str:
    tokens = sum(found.tokens)
    parts = [
        f"answered in {duration(found.milliseconds)}" if found.ok else found.outcome,
        f"{tokens:,} tokens" if tokens else "",
        f"cost {money_text(found.cost_micros, found.estimated)}" if found.cost_micros else "",
    ]
    said = ", ".join(part for part in parts if part)
    more = f": {found.said}" if found.said else ""
    return one_line(f"{name} {'works' if found.ok else 'does not work'}: {said}{more}")


def _lift(hv: Context, args: argparse.Namespace) -> int:
    lifted = lift_brake(hv, args.name)
    if args.json:
        print_json({"account": args.name, "lifted": lifted})
    elif lifted:
        print(f"{one_line(args.name)} may be asked again")
    else:
        print(f"{one_line(args.name)} does not rest")
    return EXIT_OK
