"""The options of `hv run`: items, how, review, tasks, limits."""

import argparse
from typing import Any

from hypervisor.batches.chunk import SPANS
from hypervisor.cli import arguments
from hypervisor.cli.parser import hint_new_name
from hypervisor.inputs.sources import FORMATS
from hypervisor.runs.config_readers import MAX_WORKERS, size, span
from hypervisor.runs.sandbox.level import LEVELS
from hypervisor.runs.spec import GATES, ON_CUTS, RESULT_FORMATS, STDINS, STRATEGIES, WRITE_BACKS

# What `hv run --help` shows; `--help-all` shows the rest.
COMMON = (
    "items",
    "null",
    "again",
    "fn",
    "shell",
    "workers",
    "detach",
    "dry_run",
    "print_output",
    "ordered",
    "agent",
    "prompt",
    "budget",
    "merge",
    "then",
    "reduce",
    "gate",
    "name",
    "retries",
    "timeout",
)
RENAMED = {"--key": "--exclusive"}


class BatchName(argparse.Action):
    """`--name` or `--batch`. A number after --batch is the old spelling of --claim."""

    def __call__(self, _: object, namespace: Any, value: Any, option: str | None = None) -> None:
        if option == "--batch" and str(value).isdecimal():
            hint_new_name("hv run --batch N", "--claim N")
            namespace.claim = int(value)
        else:
            namespace.name = value


def add_items(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("items (default: the lines of standard input)")
    group.add_argument(
        "--items",
        action="append",
        metavar="FILE|PATTERN",
        help="read items from a file (- is stdin), or take the files that match 'src/**/*.py'",
    )
    group.add_argument("--item", action="append", metavar="TEXT", help="add this item")
    group.add_argument(
        "--format", choices=FORMATS, help="format of the items (default: by file name, else lines)"
    )
    group.add_argument("--epic", metavar="ID", help="only task files whose parent is this one")
    group.add_argument(
        "-0", "--null", action="store_true", help="items end with NUL, as from find -print0"
    )
    group.add_argument(
        "--skip-bad",
        action="store_true",
        help="succeed even if unusable rows or files were left out",
    )
    group.add_argument("--require-items", action="store_true", help="fail if there are no items")


def add_rerun(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "running again (default: failed and new items, and changed files)"
    )
    choice = group.add_mutually_exclusive_group()
    choice.add_argument("--again", action="store_true", help="run everything again")
    choice.add_argument(
        "--no-changed",
        action="store_true",
        help="skip done items even if their file or the command has changed",
    )


def add_how(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("running")
    group.add_argument("--name", "--batch", action=BatchName, help="name of the batch")
    group.add_argument(
        "-j",
        "--workers",
        type=workers,
        metavar="N|auto",
        help="maximum number of workers (default: one per core, more while they wait; 5 agents)",
    )
    group.add_argument("-n", "--dry-run", action="store_true", help="show what would run")
    group.add_argument("--detach", action="store_true", help="run in the background")
    group.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    rest = group.add_mutually_exclusive_group()
    rest.add_argument(
        "--fail-fast", action="store_true", help="start nothing more after the first failure"
    )
    rest.add_argument("--keep-going", action="store_true", help="continue after failures (default)")
    group.add_argument("--fn", metavar="MODULE:FUNCTION", help="call this Python function")
    group.add_argument("--python", metavar="PATH", help="Python interpreter for --fn")
    group.add_argument(
        "--shell", action="store_true", help="the command is a shell script; items are quoted"
    )
    _add_process(group)


def _add_process(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--stdin",
        choices=STDINS,
        default="closed",
        help="standard input of the command (default: closed)",
    )
    group.add_argument(
        "--clean-env", action="store_true", help="pass only PATH, HOME and a few more variables"
    )
    group.add_argument(
        "--sandbox",
        choices=LEVELS,
        help="confine commands and agents: hide files, also limit the network, or use containers",
    )
    group.add_argument("--cwd", metavar="FOLDER", default=".", help="working directory")
    group.add_argument(
        "--claim", type=int, metavar="N", help="number of tasks a worker claims at a time"
    )
    group.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="auto",
        help="auto: adapt to the load of the host; parallel: ignore moderate load; sequential: one "
        "task at a time; adaptive: learn the best number of workers",
    )
    group.add_argument(
        "--per-host", type=int, metavar="N", help="maximum number of workers on one host"
    )
    packing = group.add_mutually_exclusive_group()
    packing.add_argument(
        "--pack", action="store_true", help="where hosts share a store: fill one after another"
    )
    packing.add_argument(
        "--spread",
        dest="pack",
        action="store_false",
        help="give each of them the same share of --workers (default)",
    )
    group.add_argument(
        "--on-cut",
        choices=ON_CUTS,
        help="what attempts do if their host loses PostgreSQL: pause, then stop (freeze, default); "
        "stop early (stop); or finish, and keep a late result (finish)",
    )


def add_review(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("chunks and checkpoints")
    group.add_argument("--chunk", choices=SPANS, help="split the batch by the date of the items")
    group.add_argument(
        "--chunk-by", metavar="FIELD", help="split it by a column, such as sender or project"
    )
    group.add_argument("--chunk-size", type=int, metavar="N", help="items per chunk (default 25)")
    group.add_argument(
        "--per",
        choices=("item", "chunk"),
        default="item",
        help="one task per item, or one per chunk, where {} is a file with its items",
    )
    group.add_argument(
        "--gate",
        choices=GATES,
        default="none",
        help="wait for your decision after each chunk, or only after the first",
    )
    group.add_argument(
        "--result",
        choices=RESULT_FORMATS,
        default="none",
        help="json: the last line of the output is the result",
    )
    group.add_argument(
        "--write-back",
        choices=WRITE_BACKS,
        help="what to write into task files (default: status for task files, else none)",
    )
    group.add_argument(
        "--propose",
        action="store_true",
        help="propose changes instead of making them (sets HV_PROPOSE=1)",
    )


def add_tasks(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tasks")
    group.add_argument("--type", default="run", help="type of the tasks")
    group.add_argument("--branch", default="", help="branch whose findings the agents share")
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
        help="retry a failed task up to N times, with growing delays",
    )
    arguments.add_retry_delay(group)
    arguments.add_start(group)
    group.add_argument(
        "--after", action="append", metavar="TASK", help="wait until this task is done"
    )
    group.add_argument(
        "--exclusive",
        action="append",
        metavar="KEY",
        help="never run at the same time as another task with this key; {} is the item",
    )
    group.add_argument(
        "--requires",
        action="append",
        metavar="CAPABILITY",
        help="run only on hosts whose config.toml lists this",
    )
    group.add_argument(
        "--on",
        action="append",
        metavar="LABEL",
        help="run only on hosts with this label or name; repeatable",
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits of an attempt (beyond them, it is stopped)")
    group.add_argument(
        "--timeout", type=arguments.checked(span), metavar="DURATION", help="maximum time, e.g. 90s"
    )
    group.add_argument(
        "--memory",
        type=arguments.checked(size),
        metavar="SIZE",
        help="maximum memory, e.g. 2G; an attempt starts only when this much is free",
    )
    group.add_argument(
        "--silence",
        type=arguments.checked(span),
        metavar="DURATION",
        help="maximum time without output, CPU use or a write to disk; for an agent, without a "
        "message or a running tool (default 15m; 0: no limit)",
    )
    group.add_argument(
        "--max-output",
        type=arguments.checked(size),
        metavar="SIZE",
        help="maximum output, e.g. 100M",
    )


def workers(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"invalid number of workers {text[:20]!r} (try 4 or auto)")
    return int(text)
