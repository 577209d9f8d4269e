"""Writes the command reference in docs/cli.md from the parsers that the commands use."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from marked import keep

from hypervisor.cli.arguments import duration
from hypervisor.cli.commands_table import ALSO, COMMANDS, Command
from hypervisor.cli.main import make_parser
from hypervisor.core.times import UNITS

EVERYWHERE = ("help", "store", "json")  # told once, above the generated part


def page_part() -> str:
    return "\n".join(line for command in COMMANDS.values() for line in _command(command))


def _command(command: Command) -> Iterator[str]:
    parser, module = make_parser(command)
    own = own_arguments(parser)
    places = [action for action in own if not action.option_strings]
    options = [action for action in own if action.option_strings]
    yield from (f"### hv {command.name}", "", str(parser.description), "")
    words = ["hv", command.name, *(positional(action) for action in places)]
    yield from ("    " + " ".join([*words, *(["[options]"] if options else [])]), "")
    if own:
        yield from ("| argument | meaning |", "|---|---|")
        yield from (_row(positional(action), action) for action in places)
        yield from (_row(option(action), action) for action in options)
        yield ""
    verbs = [verb for verb in (command.verb, *ALSO.get(command.name, ())) if verb]
    if verbs:
        yield from ("In Python: " + ", ".join(f"`{verb}`" for verb in verbs) + ".", "")
    yield from ("    " + line.strip() for line in module.EXAMPLE.splitlines())
    yield ""


def own_arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Those of the command itself; old spellings are not published."""
    return [
        action
        for action in parser._actions
        if action.dest not in EVERYWHERE and action.help != argparse.SUPPRESS
    ]


def _row(name: str, action: argparse.Action) -> str:
    return f"| `{_escaped(name)}` | {_escaped(meaning(action))} |"


def positional(action: argparse.Action) -> str:
    name = _value(action)
    return {"?": f"[{name}]", "*": f"[{name} …]", "+": f"{name} …"}.get(str(action.nargs), name)


def option(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {_value(action)}"


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar:
        return action.metavar
    if action.choices:
        return "|".join(map(str, action.choices))
    return action.dest.upper()


def meaning(action: argparse.Action) -> str:
    told = [action.help] if action.help else []
    if type(action).__name__ == "_AppendAction" and "repeatable" not in (action.help or ""):
        told.append("repeatable")
    if action.default not in (None, "", False, []) and "default" not in (action.help or ""):
        told.append(f"default {_default(action)}")
    return "; ".join(told)


def _default(action: argparse.Action) -> Any:
    if action.type is not duration:
        return f"`{action.default}`"
    unit = next(u for u in ("d", "h", "m", "s", "ms") if not int(action.default) % UNITS[u])
    return f"`{int(action.default) // UNITS[unit]}{unit}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    sys.exit(keep("docs/cli.md", __file__, page_part(), sys.argv[1:]))
