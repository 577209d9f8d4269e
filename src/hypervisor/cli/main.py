"""The command line: finds the command, runs it, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from hypervisor.cli.commands_table import COMMANDS, Command
from hypervisor.core.errors import (
    EXIT_CODES,
    EXIT_OK,
    EXIT_UNEXPECTED,
    HypervisorError,
    InvalidInput,
    NotFound,
)

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

Connect = Callable[..., "Context"]
INTERRUPTED = 130
LONGEST_COMPLAINT = 500
LOGGING = ("run", "serve", "supervise")  # commands that log, or start something that does
LEVELS = ("debug", "info", "warning", "error")


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the words of a command."""

    def error(self, message: str) -> NoReturn:
        raise InvalidInput(f"{message[:LONGEST_COMPLAINT]}. `{self.prog} --help` shows how.")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Words behind options go to a command that has a place for them."""
        found, rest = self.parse_known_args(args, namespace)
        if rest and (not hasattr(found, "late") or any(word.startswith("-") for word in rest)):
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        if rest:
            found.late = tuple(rest)
        return found


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Wraps the summary, not the example; need not load shutil to learn the terminal's width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_width())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example:"):
            return super()._fill_text(text, width, indent)
        return _wrapped(text, width)


def run(argv: list[str], connect: Connect) -> int:
    """Run one command and return its exit code."""
    _open_missing_streams()
    try:
        code = _guarded(argv, connect)
        sys.stdout.flush()
        return code
    except OSError as error:
        from hypervisor.cli.output import drop_output

        drop_output()
        if isinstance(error, BrokenPipeError):  # the reader has seen enough
            return EXIT_OK
        print(f"hv: the answer could not be written: {error.strerror}.", file=sys.stderr)
        return EXIT_UNEXPECTED


def _guarded(argv: list[str], connect: Connect) -> int:
    try:
        return _dispatch(argv, connect)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_UNEXPECTED
    except HypervisorError as error:
        return _fail(error.code, str(error), "--json" in argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        if os.environ.get("HV_DEBUG"):
            raise
        if isinstance(error, OSError):
            sys.stdout.flush()  # fails again if it is the answer that cannot be written
        from hypervisor.cli.output import one_line

        what = one_line(f"{type(error).__name__}: {error}")
        return _fail("unexpected", f"unexpected {what}. HV_DEBUG=1 shows where.", "--json" in argv)


def make_parser(command: Command) -> tuple[Parser, Any]:
    """The parser of one command and the module that carries it out."""
    module = import_module(f"hypervisor.cli.commands.{command.name}")
    parser = Parser(
        prog=f"hv {command.name}",
        description=command.summary,
        epilog=f"example:\n  {module.EXAMPLE}",
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    if command.store != "none":
        parser.add_argument("--store", metavar="PATH|URL", help="use this store")
    parser.add_argument("--json", action="store_true", help="answer as JSON")
    module.configure(parser)
    if command.name in LOGGING:
        parser.add_argument(
            "--log-level",
            choices=LEVELS,
            help="log level of this command and of the processes it starts",
        )
    return parser, module


def _width() -> int:
    try:
        return max(os.get_terminal_size(1).columns - 2, 40)
    except OSError:
        return 98


def _dispatch(argv: list[str], connect: Connect) -> int:
    leading, rest = _leading_options(argv)
    if not rest or rest[0] in ("-h", "--help", "help"):
        return _overview(rest)
    if rest[0] in ("-V", "--version"):
        from hypervisor.core.version import VERSION

        print(f"hv {VERSION}")
        return 0
    command = COMMANDS.get(rest[0])
    if command is None:
        word = rest[0][:60]
        raise InvalidInput(f"no command {word!r}.{_nearest(word)} `hv --help` lists them.")
    parser, module = make_parser(command)
    args = parser.parse_args([*leading, *rest[1:]])
    args.words = rest[1:]
    if getattr(args, "log_level", None):
        os.environ["HV_LOG_LEVEL"] = args.log_level
    args.only_looks = False  # a command that makes a store may say that these words need none
    args.look = lambda: connect(args.store, create=False, bare=True)  # at this host, before a run
    args.make = lambda: connect(args.store, create=True)
    if command.store == "none":
        return int(module.run(args))
    # What can be checked without a store is: a mistake must not leave an empty one behind.
    settled = module.prepare(args) if hasattr(module, "prepare") else None
    return _with_store(command, module, args, connect) if settled is None else int(settled)


def _with_store(command: Command, module: Any, args: argparse.Namespace, connect: Connect) -> int:
    try:
        bare = {"bare": True} if command.store == "bare" else {}
        create = command.store == "make" and not args.only_looks
        hv = connect(args.store, create=create, **bare)
    except NotFound:
        if command.store != "look":
            raise
        return int(module.run(None, args))
    try:
        return int(module.run(hv, args))
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
        print(_wrapped(f"  {name:<11}{command.summary}", _width(), " " * 13))
    hint = "`hv COMMAND --help` shows options and an example. HYPERVISOR_STORE names the store."
    print(f"\n{_wrapped(hint, _width())}")
    return 0


def _wrapped(line: str, width: int, indent: str = "") -> str:
    """Broken between words."""
    from textwrap import fill

    return fill(line, width, subsequent_indent=indent)


def _nearest(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, COMMANDS, 1)
    return f" Did you mean `hv {near[0]}`?" if near else ""


def _fail(code: str, message: str, as_json: bool) -> int:
    from hypervisor.cli.output import one_line

    if as_json:
        import json

        print(json.dumps({"error": {"code": code, "message": message}}))
    print(f"hv: {one_line(message)}", file=sys.stderr)
    return EXIT_CODES.get(code, EXIT_UNEXPECTED)


def _open_missing_streams() -> None:
    """A caller may have closed them (`>&-`); files opened later must not take their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
