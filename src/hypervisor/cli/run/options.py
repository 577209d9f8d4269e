"""The options of `hv run`: items, how, review, tasks, limits."""

import argparse

from hypervisor.batches.chunk import GATES, SPANS
from hypervisor.cli import arguments
from hypervisor.inputs.sources import FORMATS
from hypervisor.runs.config import MOST_WORKERS, size, span
from hypervisor.runs.spec import STRATEGIES


def add_items(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("items (default: the lines of standard input)")
    group.add_argument(
        "--items",
        action="append",
        metavar="FILE|PATTERN",
        help="a file with an item a line or row, - for stdin, or files like 'src/**/*.py'",
    )
    group.add_argument("--item", action="append", metavar="TEXT", help="this item")
    group.add_argument("--format", choices=FORMATS, help="default: by file name, else lines")
    group.add_argument("--epic", metavar="ID", help="only the task files below this one")
    group.add_argument("-0", "--null", action="store_true", help="items end with NUL")


def add_how(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how")
    group.add_argument("--fn", metavar="MODULE:FUNCTION", help="call this Python function instead")
    group.add_argument("--python", metavar="PATH", help="the interpreter for --fn")
    group.add_argument(
        "--shell", action="store_true", help="the command is a shell script; items are quoted"
    )
    group.add_argument(
        "--stdin",
        choices=("closed", "item"),
        default="closed",
        help="what the command reads (default: nothing)",
    )
    group.add_argument("--clean-env", action="store_true", help="pass only PATH, HOME and the like")
    group.add_argument("--cwd", metavar="FOLDER", default=".", help="run it there")
    group.add_argument(
        "--workers", type=workers, metavar="N|auto", help="default: one per core, 5 agents"
    )
    group.add_argument(
        "--batch",
        type=int,
        dest="claim",
        metavar="N",
        help="how many tasks a worker claims at once",
    )
    group.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="auto",
        help="auto: follow the host's load; parallel: ignore warnings; sequential: one at a time; "
        "adaptive: learn the best number of workers",
    )
    rest = group.add_mutually_exclusive_group()
    rest.add_argument("--fail-fast", action="store_true", help="start nothing more after a failure")
    rest.add_argument("--keep-going", action="store_true", help="go on after failures (default)")
    group.add_argument("--detach", action="store_true", help="do not wait; it runs in background")
    group.add_argument("--dry-run", action="store_true", help="show what would run")
    group.add_argument("--quiet", "-q", action="store_true", help="no progress, only the end")


def add_review(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("chunks and checkpoints")
    group.add_argument("--chunk", choices=SPANS, help="by the date of the items")
    group.add_argument("--chunk-by", metavar="FIELD", help="by a column, such as sender or project")
    group.add_argument("--chunk-size", type=int, metavar="N", help="so many items each (25)")
    group.add_argument(
        "--per",
        choices=("item", "chunk"),
        default="item",
        help="a task for each item, or one for the whole chunk: {} is then a file with its items",
    )
    group.add_argument(
        "--gate",
        choices=GATES,
        default="none",
        help="stop for your decision after each chunk or the first",
    )
    group.add_argument(
        "--result",
        choices=("none", "json"),
        default="none",
        help="json: the last line a command prints is its result",
    )
    group.add_argument(
        "--write-back",
        choices=("none", "receipts", "status"),
        help="what goes into task files (default: by what is run)",
    )
    group.add_argument(
        "--propose",
        action="store_true",
        help="set HV_PROPOSE=1, so that workers propose changes instead of making them",
    )


def add_tasks(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the tasks")
    group.add_argument("--name", help="the batch's name (default: made from the command)")
    group.add_argument("--type", default="run", help="what kind of work")
    group.add_argument("--branch", default="", help="the context whose findings their agents share")
    group.add_argument(
        "--priority",
        choices=("critical", "high", "medium", "low"),
        default="medium",
        help="priority in the queue",
    )
    group.add_argument(
        "--retries",
        type=int,
        default=0,
        metavar="N",
        help="how often a failed one is tried again, later each time",
    )
    group.add_argument("--after", action="append", metavar="TASK", help="wait until that is done")
    group.add_argument(
        "--key",
        action="append",
        metavar="TEXT",
        help="never run beside another task with this key; placeholders allowed",
    )
    group.add_argument(
        "--requires",
        action="append",
        metavar="CAPABILITY",
        help="only hosts whose config.toml lists it run it",
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits of an attempt (the whole process tree is stopped)")
    group.add_argument(
        "--timeout", type=arguments.checked(span), metavar="TIME", help="e.g. 90s, 15m"
    )
    group.add_argument(
        "--memory",
        type=arguments.checked(size),
        metavar="SIZE",
        help="e.g. 2G; also what the host must have free to start one",
    )
    group.add_argument(
        "--silence",
        type=arguments.checked(span),
        metavar="TIME",
        help="no output, no CPU and nothing written; of an agent: not a "
        "word and no tool at work (default 15m, 0 turns it off)",
    )
    group.add_argument(
        "--max-output", type=arguments.checked(size), metavar="SIZE", help="e.g. 100M"
    )


def workers(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"invalid number of workers {text[:20]!r} (try 4 or auto)")
    return int(text)
