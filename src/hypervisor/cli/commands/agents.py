"""hv agents"""

import argparse
import sys

from hypervisor.agents.agents import AgentView, agents, check_agent
from hypervisor.agents.installed import ProbeResult
from hypervisor.agents.rate_limits import end_cooldown
from hypervisor.cli.arguments import add_words
from hypervisor.cli.output import clock, colour, duration, one_line, respond, table
from hypervisor.cli.render import cost_text, rate_limit_text
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL, InvalidInput
from hypervisor.queue.context import Context
from hypervisor.resources.limits import size_text

EXAMPLE = """hv agents
  hv agents check claude
  hv agents lift anthropic:9f2c1d07"""
WORDS = {"check": "send the agent a one-word prompt", "lift": "end the cooldown of an account"}
HEAD = ("AGENT", "VERSION", "MEMORY", "RUNNING", "CALLS", "STATE")


def configure(parser: argparse.ArgumentParser) -> None:
    add_words(parser, WORDS, "NAME|ACCOUNT", "the agent to check, or the account to lift")


def prepare(args: argparse.Namespace) -> None:
    if args.name and not args.word:
        raise InvalidInput("`hv agents list` takes no name. See `hv agents --help`.")
    if args.word and not args.name:
        raise InvalidInput(
            f"no name given: hv agents {args.word} {'NAME' if args.word == 'check' else 'ACCOUNT'}."
        )


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.word == "check":
        return _check(hv, args)
    if args.word == "lift":
        return _lift(hv, args)
    if args.names:
        names = list(hv.agent_settings.profiles)
        return respond(args, names, names)
    views = agents(hv)
    return respond(args, views, lambda: _show(views, hv.now() if hv.has_store else 0))


def _show(views: tuple[AgentView, ...], now: int) -> None:
    """Installed agents first, then how to install the others."""
    installed = [view for view in views if view.path]
    missing = [view for view in views if not view.path]
    rows = [
        (
            view.name,
            _version(view),
            _memory(view),
            _running(view),
            view.calls or "direct",
            _state(view),
        )
        for view in installed
    ]
    if rows:
        table(HEAD, rows, ["done" if view.ready else "blocked" for view in installed])
    shown = {view.calls or "direct": view.calls_text for view in installed}
    for calls, text in shown.items():
        print(one_line(f"  {calls}: {text.removeprefix('direct: ')}"))
    for view in installed:
        for cooldown in view.cooldowns:
            print(one_line(f"  {rate_limit_text(cooldown, now)}"))
            print(one_line(f"  to use it again now: hv agents lift {cooldown.account}"))
    if missing and rows:
        print()
    if missing:
        print("not installed:")
        widest = max(len(view.name) for view in missing)
        for view in missing:
            print(one_line(f"  {view.name:<{widest}}  {view.install or view.program}"))


def _version(view: AgentView) -> str:
    """Only the number: many programs print their name as well."""
    import re

    match = re.search(r"\d+(\.\d+)+\S*", view.version)
    return match[0].rstrip(".,;") if match else view.version


def _memory(view: AgentView) -> str:
    return size_text(view.memory) if view.learned else f"({size_text(view.memory)})"


def _running(view: AgentView) -> str:
    most = "" if view.workers is None else f" of {view.workers}"
    return f"{view.running}{most}"


def _state(view: AgentView) -> str:
    if view.why:
        return view.why
    if view.cooldowns:
        return f"rate-limited until {clock(max(cooldown.until for cooldown in view.cooldowns))}"
    return "ready" if view.verified else "ready (unverified)"


def _check(hv: Context, args: argparse.Namespace) -> int:
    if not args.json and sys.stderr.isatty():
        print(f"sending {one_line(args.name)} a one-word prompt …", file=sys.stderr)
    probe = check_agent(hv, args.name)
    return respond(
        args,
        probe,
        colour(_probe_text(args.name, probe), "done" if probe.ok else "failed"),
        code=EXIT_OK if probe.ok else EXIT_UNSUCCESSFUL,
    )


def _probe_text(name: str, probe: ProbeResult) -> str:
    tokens = sum(probe.tokens)
    parts = [
        f"answered in {duration(probe.milliseconds)}" if probe.ok else probe.outcome,
        f"{tokens:,} tokens" if tokens else "",
        f"cost {cost_text(probe.cost_micros, probe.estimated)}" if probe.cost_micros else "",
    ]
    details = ", ".join(part for part in parts if part)
    more = f": {probe.message}" if probe.message else ""
    return one_line(f"{name} {'works' if probe.ok else 'does not work'}: {details}{more}")


def _lift(hv: Context, args: argparse.Namespace) -> int:
    lifted = end_cooldown(hv, args.name)
    text = f"{one_line(args.name)} {'can be used again' if lifted else 'is not rate-limited'}"
    return respond(args, {"account": args.name, "lifted": lifted}, text)
