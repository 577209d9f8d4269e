"""The command line: finds the command, runs it, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hypervisor.cli.commands_table import ALIASES, COMMANDS, GROUPS, Command
from hypervisor.cli.parser import Parser, did_you_mean, terminal_width, wrapped
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
LOGGING = (
    "run",
    "serve",
    "supervise",
    "dashboard",
)  # commands that log, or start something that does
CONFIRMING = (  # commands that confirm what they did
    "pause",
    "resume",
    "kill",
    "scale",
    "update",
    "retry",
    "answer",
    "tell",
    "cancel",
    "approve",
    "reject",
    "heartbeat",
    "done",
    "fail",
    "block",
    "release",
    "receipt",
    "batches",
)
LEVELS = ("debug", "info", "warning", "error")


def run(argv: list[str], connect: Connect) -> int:
    """Run one command and return its exit code."""
    _open_missing_streams()
    code = EXIT_OK
    try:
        code = _guarded(argv, connect)
        sys.stdout.flush()
        return code
    except OSError as error:
        from hypervisor.cli.output import drop_output, warn

        drop_output()
        if isinstance(error, BrokenPipeError):  # the reader has seen enough
            return code
        warn(f"hv: cannot write the output: {error.strerror}.")
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

        problem = one_line(f"{type(error).__name__}: {error}")
        message = f"unexpected {problem}. Set HV_DEBUG=1 to see the traceback."
        return _fail("unexpected", message, "--json" in argv)


def make_parser(command: Command) -> tuple[Parser, Any]:
    """The parser of one command and the module that carries it out."""
    module = import_module(f"hypervisor.cli.commands.{command.name}")
    parser = Parser(f"hv {command.name}", _description(command, module), module.EXAMPLE)
    if command.store != "none":
        parser.general.add_argument("--store", metavar="PATH|URL", help="use this store")
    parser.general.add_argument("--json", action="store_true", help="answer as JSON")
    module.configure(parser)
    if command.name in CONFIRMING:
        parser.general.add_argument("-q", "--quiet", action="store_true", help="do not confirm")
    if command.name in LOGGING:
        parser.general.add_argument(
            "--log-level",
            choices=LEVELS,
            help="log level of this command and of the processes it starts",
        )
    return parser, module


def _description(command: Command, module: Any) -> str:
    """The command's own description, or the summary of its verb."""
    if hasattr(module, "DESCRIPTION"):
        return str(module.DESCRIPTION)
    if command.verb is None:
        return f"{command.about}."
    from hypervisor.verbs import summary

    return summary(command.verb)


def _dispatch(argv: list[str], connect: Connect) -> int:
    leading, rest = _leading_options(argv)
    if not rest or rest[0] in ("-h", "--help", "help"):
        return _overview(rest)
    if rest[0] in ("-V", "--version"):
        rest[0] = "version"
    command = _command(rest[0])
    parser, module = make_parser(command)
    args = parser.parse_args([*leading, *rest[1:]])
    args.words = rest[1:]
    if getattr(args, "log_level", None):
        os.environ["HV_LOG_LEVEL"] = args.log_level
    args.only_looks = False  # set by a command that needs no new store for these arguments
    args.look = lambda: connect(args.store, create=False, bare=True)  # this host, without a store
    args.make = lambda: connect(args.store, create=True)
    if command.store == "none":
        return int(module.run(args))
    # Check first what needs no store: a mistake must not leave an empty one behind.
    code = module.prepare(args) if hasattr(module, "prepare") else None
    return _with_store(command, module, args, connect) if code is None else int(code)


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


def _command(word: str) -> Command:
    word = ALIASES.get(word, word)
    if word not in COMMANDS:
        near = did_you_mean(word, COMMANDS, lambda name: f"`hv {name}`") or "."
        raise InvalidInput(f"unknown command {word[:60]!r}{near} `hv --help` lists all commands.")
    return COMMANDS[word]


def _overview(rest: list[str]) -> int:
    if rest[:1] == ["help"] and len(rest) > 1:
        make_parser(_command(rest[1]))[0].print_help()
        return 0
    print("usage: hv COMMAND [arguments]\n\nA durable queue for coding agents and commands.")
    for group, commands in GROUPS.items():
        print(f"\n{group}:")
        for command in commands:
            print(wrapped(f"  {command.name:<12}{command.about}", terminal_width(), " " * 14))
    hint = "`hv COMMAND --help` shows the options of a command, with examples."
    print(f"\n{wrapped(hint, terminal_width())}")
    return 0


def _fail(code: str, message: str, as_json: bool) -> int:
    from hypervisor.cli.output import one_line, warn

    warn(f"hv: {one_line(message)}")
    if as_json:
        import json

        print(json.dumps({"error": {"code": code, "message": message}}))
    return EXIT_CODES.get(code, EXIT_UNEXPECTED)


def _open_missing_streams() -> None:
    """Reopen streams that the caller closed (`>&-`), or other files would take their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
