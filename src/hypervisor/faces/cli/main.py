"""The command line: finds the command, runs it, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from hypervisor.domain.errors import EXIT_CODES, EXIT_UNEXPECTED, HypervisorError
from hypervisor.faces.cli.table import COMMANDS, Command

if TYPE_CHECKING:
    from hypervisor.operations.context import Context

Connect = Callable[..., "Context"]
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the words of a command."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}. `{self.prog} --help` shows how.", file=sys.stderr)
        raise SystemExit(EXIT_CODES["invalid_input"])


def run(argv: list[str], connect: Connect) -> int:
    """Run one command and return its exit code."""
    try:
        return _dispatch(argv, connect)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_UNEXPECTED
    except HypervisorError as error:
        return _report(error, "--json" in argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("HV_DEBUG"):
            raise
        kind = type(error).__name__
        print(f"hv: unexpected {kind}: {error}. HV_DEBUG=1 shows where.", file=sys.stderr)
        return EXIT_UNEXPECTED


def make_parser(command: Command) -> tuple[Parser, Any]:
    """The parser of one command and the module that carries it out."""
    module = import_module(f"hypervisor.faces.cli.commands.{command.name}")
    parser = Parser(
        prog=f"hv {command.name}",
        description=command.summary,
        epilog=f"example:\n  {module.EXAMPLE}",
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    if command.store != "none":
        parser.add_argument("--store", metavar="PATH|URL", help="use this store")
    parser.add_argument("--json", action="store_true", help="answer as JSON")
    module.configure(parser)
    return parser, module


def _formatter(prog: str) -> argparse.HelpFormatter:
    """As the usual one, but it need not load shutil to learn the terminal's width."""
    try:
        width = os.get_terminal_size(1).columns - 2
    except OSError:
        width = 98
    return argparse.RawDescriptionHelpFormatter(prog, width=max(width, 40))


def _dispatch(argv: list[str], connect: Connect) -> int:
    leading, rest = _leading_options(argv)
    if not rest or rest[0] in ("-h", "--help", "help"):
        return _overview(rest)
    if rest[0] in ("-V", "--version"):
        from hypervisor.domain.version import VERSION

        print(f"hv {VERSION}")
        return 0
    command = COMMANDS.get(rest[0])
    if command is None:
        print(
            f"hv: no command {rest[0]!r}.{_nearest(rest[0])} `hv --help` lists them.",
            file=sys.stderr,
        )
        return EXIT_CODES["invalid_input"]
    parser, module = make_parser(command)
    args = parser.parse_args([*leading, *rest[1:]])
    if command.store == "none":
        return int(module.run(args))
    return _with_store(command, module, args, connect)


def _with_store(command: Command, module: Any, args: argparse.Namespace, connect: Connect) -> int:
    hv = connect(args.store, create=command.store == "make")
    try:
        code = int(module.run(hv, args))
        sys.stdout.flush()
        return code
    finally:
        hv.close()


def _leading_options(argv: list[str]) -> tuple[list[str], list[str]]:
    """`hv --store X ls` means the same as `hv ls --store X`."""
    rest = list(argv)
    leading: list[str] = []
    while rest and (rest[0] in ("--store", "--json") or rest[0].startswith("--store=")):
        take = 2 if rest[0] == "--store" else 1
        leading += rest[:take]
        rest = rest[take:]
    return leading, rest


def _overview(rest: list[str]) -> int:
    if len(rest) > 1 and rest[1] in COMMANDS:
        make_parser(COMMANDS[rest[1]])[0].print_help()
        return 0
    print("usage: hv COMMAND …\n\nOne durable queue for agents, commands and functions.\n")
    for name, command in COMMANDS.items():
        print(f"  {name:<11}{command.summary}")
    print("\n`hv COMMAND --help` shows options and an example. HYPERVISOR_STORE names the store.")
    return 0


def _nearest(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, COMMANDS, 1)
    return f" Did you mean `hv {near[0]}`?" if near else ""


def _report(error: HypervisorError, as_json: bool) -> int:
    from hypervisor.faces.cli.output import one_line

    if as_json:
        import json

        print(json.dumps({"error": {"code": error.code, "message": str(error)}}))
    print(f"hv: {one_line(str(error))}", file=sys.stderr)
    return EXIT_CODES.get(error.code, EXIT_UNEXPECTED)
