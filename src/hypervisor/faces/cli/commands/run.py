"""hv run"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO

from hypervisor.domain import checks
from hypervisor.domain.errors import EXIT_OK, InvalidInput
from hypervisor.domain.run import STRATEGIES, RunSpec, template_of
from hypervisor.domain.settings import MOST_WORKERS, size, span
from hypervisor.domain.task import NewTask
from hypervisor.domain.template import Item, Template, parse
from hypervisor.faces.cli import following, values
from hypervisor.faces.cli.output import one_line, print_json, say
from hypervisor.operations import items as reading
from hypervisor.operations import run as running
from hypervisor.operations.add import check_task
from hypervisor.operations.context import Context
from hypervisor.operations.sources import FORMATS, guess_format
from hypervisor.operations.wording import counted

EXAMPLE = """find . -name '*.jpg' | hv run -- convert {} {.}.png
  hv run --items 'src/**/*.py' --workers 4 -- ruff check {}
  hv run --fn package.module:function --items rows.jsonl --retries 2"""
MAGIC = frozenset("*?[")
SHOWN = 10


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "hv run [options] -- COMMAND …\n       hv run [options] --fn MODULE:FUNCTION"
    parser.add_argument(
        "command", nargs="*", metavar="-- COMMAND",
        help="what to run for each item: {} item, {.} without extension, {/} base name, "
        "{//} folder, {/.} both, {#} number, {name} column; without any, the item comes last",
    )  # fmt: skip
    _configure_items(parser)
    _configure_how(parser)
    _configure_tasks(parser)
    _configure_limits(parser)


def _configure_items(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("items (default: the lines of standard input)")
    group.add_argument(
        "--items", action="append", metavar="FILE|PATTERN",
        help="a file with an item a line or row, - for stdin, or files like 'src/**/*.py'",
    )  # fmt: skip
    group.add_argument("--item", action="append", metavar="TEXT", help="this item")
    group.add_argument("--format", choices=FORMATS, help="default: by file name, else lines")
    group.add_argument("-0", "--null", action="store_true", help="items end with NUL")


def _configure_how(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how")
    group.add_argument("--fn", metavar="MODULE:FUNCTION", help="call this Python function instead")
    group.add_argument("--python", metavar="PATH", help="the interpreter for --fn")
    group.add_argument(
        "--shell", action="store_true", help="the command is a shell script; items are quoted"
    )
    group.add_argument("--stdin", choices=("closed", "item"), default="closed",
                       help="what the command reads (default: nothing)")  # fmt: skip
    group.add_argument("--clean-env", action="store_true", help="pass only PATH, HOME and the like")
    group.add_argument("--cwd", metavar="FOLDER", default=".", help="run it there")
    group.add_argument("--workers", type=_workers, metavar="N|auto", help="default: one per core")
    group.add_argument("--batch", type=int, dest="claim", metavar="N",
                       help="how many tasks a worker claims at once")  # fmt: skip
    group.add_argument("--strategy", choices=STRATEGIES, default="auto",
                       help="as the host can bear, as fast as allowed, or one by one")  # fmt: skip
    rest = group.add_mutually_exclusive_group()
    rest.add_argument("--fail-fast", action="store_true", help="start nothing more after a failure")
    rest.add_argument("--keep-going", action="store_true", help="go on after failures (default)")
    group.add_argument("--detach", action="store_true", help="do not wait; it runs in background")
    group.add_argument("--dry-run", action="store_true", help="show what would run")
    group.add_argument("--quiet", "-q", action="store_true", help="no progress, only the end")


def _configure_tasks(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the tasks")
    group.add_argument("--name", help="the batch's name (default: made from the command)")
    group.add_argument("--type", default="run", help="what kind of work")
    group.add_argument("--priority", choices=("critical", "high", "medium", "low"),
                       default="medium", help="how much of a head start it gets")  # fmt: skip
    group.add_argument("--retries", type=int, default=0, metavar="N",
                       help="how often a failed one is tried again, later each time")  # fmt: skip
    group.add_argument("--after", action="append", metavar="TASK", help="wait until that is done")
    group.add_argument("--key", action="append", metavar="TEXT",
                       help="never beside one of this key; placeholders allowed")  # fmt: skip
    group.add_argument("--requires", action="append", metavar="CAPABILITY",
                       help="only hosts whose config.toml lists it run it")  # fmt: skip


def _configure_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits of an attempt (the whole process tree is stopped)")
    group.add_argument("--timeout", type=_checked(span), metavar="TIME", help="e.g. 90s, 15m")
    group.add_argument("--memory", type=_checked(size), metavar="SIZE",
                       help="e.g. 2G; also what the host must have free to start one")  # fmt: skip
    group.add_argument("--silence", type=_checked(span), metavar="TIME",
                       help="no output, no CPU and nothing written for so long")  # fmt: skip
    group.add_argument("--max-output", type=_checked(size), metavar="SIZE", help="e.g. 100M")


def prepare(args: argparse.Namespace) -> int | None:
    """Check everything that can be checked without a store; a rehearsal ends here."""
    if bool(args.fn) == bool(args.command):
        both = "not both" if args.fn else "as in `hv run --items FILE -- gzip {}`"
        raise InvalidInput(f"say what to run: a command after --, or a function with --fn; {both}.")
    args.spec = running.check_spec(_spec(args))
    args.template = None if args.fn else template_of(args.spec)
    _check_program(args)
    args.batch_name = checks.label(
        "--name", _name_for(args.spec) if args.name is None else args.name
    )
    args.base = _base(args)
    args.keys = parse(args.key) if args.key else None
    args.source = Source(args)
    args.count = _check_items(args)
    return _preview(args) if args.dry_run else None


def run(hv: Context, args: argparse.Namespace) -> int:
    args.after = [hv.resolve(task) for task in args.after or ()]  # before anything is made
    if hv.launcher.supervisor() is None:
        hv.launcher.start_supervisor()  # it comes up while we add the tasks
    submitted = running.run(hv, args.spec, _tasks(args), args.batch_name)
    args.source.close()
    if not args.json:
        _say_opening(submitted, args)
    if submitted.to_do:
        running.supervise(hv)
    if args.detach:
        return _detached(submitted, args)
    return following.follow(hv, submitted, as_json=args.json, quiet=args.quiet)


class Source:
    """The items as the command line names them; can be read twice."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._stack = ExitStack()
        self._texts = args.item or []
        self._null, self._form = args.null, args.format
        names = args.items or ([] if args.item else ["-"])
        if names == ["-"] and not args.items and sys.stdin.isatty():
            raise InvalidInput("no items: pipe them in, or name them with --items or --item.")
        self._parts = [self._open(name) for name in names]

    def __iter__(self) -> Iterator[Item]:
        for number, item in enumerate(self._all(), 1):
            yield item._replace(number=number)

    def close(self) -> None:
        self._stack.close()

    def _all(self) -> Iterator[Item]:
        for text in self._texts:
            if not text:
                raise InvalidInput("--item is empty.")
            yield Item(text)
        for part in self._parts:
            if isinstance(part, str):
                yield from reading.glob_items(part)
            else:
                file, form, begin = part
                file.seek(begin)
                yield from reading.read_items(file, form, self._null)

    def _open(self, name: str) -> str | tuple[IO[bytes], str, int]:
        if MAGIC & set(name):
            return name
        try:
            file = sys.stdin.buffer if name == "-" else open(name, "rb")  # noqa: SIM115
            self._stack.callback(file.close)
            copy = reading.spooled(file)
        except OSError as error:
            raise InvalidInput(f"{name} cannot be read: {error.strerror}.") from None
        form = self._form or ("lines" if name == "-" else guess_format(name))
        return copy, form, copy.tell()


def _spec(args: argparse.Namespace) -> RunSpec:
    cwd = os.path.abspath(args.cwd)
    if not os.path.isdir(cwd):
        raise InvalidInput(f"there is no folder {args.cwd}.")
    return RunSpec(
        cwd=cwd, command=tuple(args.command), function=args.fn, shell=args.shell,
        python=args.python, stdin=args.stdin, clean_env=args.clean_env, workers=args.workers,
        claim=args.claim, fail_fast=args.fail_fast, strategy=args.strategy, time=args.timeout,
        memory=args.memory, silence=args.silence, output=args.max_output,
    )  # fmt: skip


def _check_program(args: argparse.Namespace) -> None:
    """A program that is not there would fail once for every item. Where other hosts share the
    store it may be theirs."""
    program = args.python if args.fn else args.command[0]
    store = args.store or os.environ.get("HYPERVISOR_STORE", "")
    if program is None or args.shell or "{" in program or "://" in store:
        return
    there = os.path.join(args.spec.cwd, program) if "/" in program else program
    if shutil.which(there) is None:
        raise InvalidInput(f"there is no program {program[:200]} that could be run.")


def _name_for(spec: RunSpec) -> str:
    """The same command in the same folder is the same batch, so that it can be resumed."""
    from hashlib import blake2b

    what = spec.function or os.path.basename(spec.command[0].split()[0])
    same = "\0".join((spec.cwd, what, *spec.command, str(spec.shell), spec.stdin))
    safe = "".join(c if c.isalnum() or c in "._:" else "-" for c in what)[:40]
    return f"{safe}-{blake2b(same.encode(), digest_size=3).hexdigest()}"


def _check_items(args: argparse.Namespace) -> int:
    template: Template | None = args.template
    count, risky, columns_checked = 0, None, False
    for item in args.source:
        count += 1
        if not columns_checked:
            columns_checked = True
            for each in filter(None, (template, args.keys)):
                each.check(None if item.columns is None else item.columns.keys())
        if template is not None:
            template.render(item)
            if risky is None and template.risky(item):
                risky = item.text
    if not count:
        named = ", ".join(args.items or ["standard input"])
        raise InvalidInput(f"there are no items in {named}. Nothing was started.")
    if risky is not None:
        print(
            f"hv: the item {one_line(risky[:60])!r} begins with a dash: the command may take it "
            "for an option (`-- {}` or `./{}` helps).",
            file=sys.stderr,
        )
    return count


def _base(args: argparse.Namespace) -> NewTask:
    """What all tasks have in common, checked."""
    base = NewTask(
        "an item", type=args.type, priority=args.priority, retries=args.retries,
        after=tuple(args.after or ()), requires=tuple(args.requires or ()),
        exclusive=tuple(args.key or ()),
    )  # fmt: skip
    return check_task(base)._replace(exclusive=())


def _tasks(args: argparse.Namespace) -> Iterator[NewTask]:
    base = NewTask(
        "", type=args.type, priority=args.priority, retries=args.retries,
        after=tuple(args.after or ()), requires=tuple(args.requires or ()),
    )  # fmt: skip
    keys = parse(args.key, append=False) if args.key else None
    for item, occurrence in reading.occurrences(args.source):
        task = reading.task_for(item, base, occurrence)
        yield task if keys is None else task._replace(exclusive=tuple(keys.render(item)))


def _say_opening(found: running.Submitted, args: argparse.Namespace) -> None:
    if args.quiet:
        print(_opening(found, args), file=sys.stderr)
    else:
        say(_opening(found, args))


def _opening(found: running.Submitted, args: argparse.Namespace) -> str:
    parts = [
        f"{found.already_done:,} already done, skipped" if found.already_done else "",
        f"{found.added:,} new" if found.added and found.added != args.count else "",
        f"{found.retried:,} failed before, tried again" if found.retried else "",
        f"{found.still_open:,} still open" if found.still_open else "",
    ]
    said = "; ".join(part for part in parts if part)
    return f"batch {found.batch.name}: {counted(args.count, 'item')}" + (
        f" ({said})" if said else ""
    )


def _detached(found: running.Submitted, args: argparse.Namespace) -> int:
    if args.json:
        print_json({"batch": found.batch.name, "id": found.batch.id, "to_do": found.to_do})
    else:
        name = shlex.quote(found.batch.name)
        print(f"runs in the background: hv status {name} --watch · hv summary {name}")
    return EXIT_OK


def _preview(args: argparse.Namespace) -> int:
    template: Template | None = args.template
    shown: list[list[str]] = []
    for item in args.source:
        if len(shown) == SHOWN:
            break
        shown.append(template.render(item) if template else [args.fn, item.text])
    if args.json:
        print_json({"batch": args.batch_name, "items": args.count, "commands": shown})
        return EXIT_OK
    for argv in shown:
        print(one_line(shlex.join(argv)))
    more = f", {args.count - SHOWN:,} of them not shown" if args.count > SHOWN else ""
    print(f"{counted(args.count, 'item')}{more} (dry run: nothing was started)")
    return EXIT_OK


def _workers(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number of workers: try 4 or auto")
    return int(text)


_checked = values.checked
