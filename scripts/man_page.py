"""Writes the manual page docs/man/hv.1 from the parsers of the commands and from docs/cli.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from cli_reference import meaning, option, own_arguments, positional
from marked import ROOT, renewed

from hypervisor import __version__ as VERSION
from hypervisor.cli.commands_table import COMMANDS, Command
from hypervisor.cli.main import make_parser
from hypervisor.core.extras import DISTRIBUTION

PAGE = "docs/man/hv.1"
DESCRIPTION = (
    "Hypervisor is a durable task queue for coding agents, commands and Python functions. Every "
    "task is claimed by one worker, every change is on disk before a command returns, and what a "
    "crash, a reboot or a rate limit interrupts is resumed."
)
GENERAL_OPTIONS = (
    ("--store PATH|URL", "use this store: a file, a folder, or a postgresql:// URL"),
    ("--json", "print the answer as JSON"),
    ("-h, --help", "show the options and examples"),
)
FILES = (
    (".hypervisor/", "the store of a project, found in this folder or above, like .git"),
    (".hypervisor/config.toml", "its settings; hv config init writes one with every key"),
    (".hypervisor/outputs/", "the output of every attempt"),
)


def page() -> str:
    lines = [
        f'.TH HV 1 "" "{DISTRIBUTION} {VERSION}" "User Commands"',
        *_section("NAME", r"hv \- durable task queue for coding agents and commands"),
        *_section("SYNOPSIS", r".B hv", r".I COMMAND", "[arguments]"),
        *_section("DESCRIPTION", _text(DESCRIPTION)),
        *_section("OPTIONS", "Most commands take these.", *_list(GENERAL_OPTIONS)),
        *_section("COMMANDS"),
        *(line for command in COMMANDS.values() for line in _command(command)),
        *_section("EXIT STATUS", *_list(_table("Exit codes"))),
        *_section("ENVIRONMENT", *_list(_table("Environment"))),
        *_section("FILES", *_list(FILES)),
    ]
    return "\n".join(lines) + "\n"


def _section(heading: str, *lines: str) -> list[str]:
    return [f".SH {heading}", *lines]


def _command(command: Command) -> Iterator[str]:
    parser, module = make_parser(command)
    own = own_arguments(parser)
    places = [action for action in own if not action.option_strings]
    options = [action for action in own if action.option_strings]
    usage = ["hv", command.name, *map(positional, places), *(["[options]"] if options else [])]
    yield f".SS {_text(' '.join(usage))}"
    yield _text(parser.description or "")
    yield from _list((positional(action), meaning(action)) for action in places)
    yield from _list((option(action), meaning(action)) for action in options)
    yield from (".PP", ".EX")
    yield from (_text(line.strip()) for line in module.EXAMPLE.splitlines())
    yield ".EE"


def _list(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, explanation in entries:
        yield from (".TP", f".B {_text(term)}", _text(explanation))


def _table(heading: str) -> Iterator[tuple[str, str]]:
    """The rows of the table below a heading of docs/cli.md."""
    section = Path(ROOT, "docs/cli.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    for term, explanation in re.findall(r"^\| (.+?) \| (.+) \|$", section, re.MULTILINE):
        if term not in ("code", "variable", "---"):
            yield term.strip("`"), explanation.replace("`", "").replace("\\|", "|")


def _text(text: str) -> str:
    """Text as roff takes it literally, in ASCII."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return f"\\&{text}" if text.startswith(".") else text


if __name__ == "__main__":
    path = ROOT / PAGE
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    sys.exit(renewed(PAGE, old, page(), Path(__file__).name, sys.argv[1:]))
