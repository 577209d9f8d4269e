"""hv selftest"""

import argparse
import json
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from hypervisor.cli.output import colour, one_line, print_json, warn
from hypervisor.core.errors import EXIT_OK, EXIT_UNSUCCESSFUL, InvalidInput
from hypervisor.core.store_path import find_upwards, named_store
from hypervisor.selftest.part import PartResult
from hypervisor.selftest.parts import PARTS, Part
from hypervisor.selftest.run import Report, Scope, replay, run_selftest

DESCRIPTION = (
    "Try to break a scratch store on this machine: kill workers, cut the power, stop processes "
    "until their lease expires, fill disks. Then check that nothing was lost or done twice. Your "
    "store is not touched. --store postgresql://… tests that server, in separate databases."
)
EXAMPLE = """hv selftest
  hv selftest --prove
  hv selftest --minutes 30 --write report.html
  hv selftest --only simulation --seed 42
  hv selftest --store postgresql://localhost/postgres"""
QUICK, FULL = 40.0, 900.0  # seconds
MAX_MINUTES = 10_000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", metavar="PATH|URL", help="test the disk or server of this store")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="about a minute (default)")
    length.add_argument("--full", action="store_true", help="about 15 minutes")
    length.add_argument("--minutes", type=_minutes, metavar="N", help="about this many minutes")
    parser.add_argument("--seed", type=int, metavar="N", help="repeat the random choices of a run")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PART",
        help=f"run this part: {', '.join(part.name for part in PARTS)} (repeatable)",
    )
    parser.add_argument(
        "--prove",
        action="store_true",
        help="also plant known bugs in copies of the program, and check that each is found",
    )
    parser.add_argument("--write", metavar="FILE", help="write a report: FILE.html or FILE.json")
    parser.add_argument("--replay", metavar="FILE", help="replay a saved failing history")


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid number of minutes {text!r}") from None
    if not 0 < minutes <= MAX_MINUTES:
        raise argparse.ArgumentTypeError(f"must be between 0 and {MAX_MINUTES:,}")
    return minutes


def run(args: argparse.Namespace) -> int:
    if args.write and Path(args.write).suffix not in (".html", ".json"):
        raise InvalidInput(f"cannot write {args.write!r}: use a name ending in .html or .json")
    where = _where(args.store)
    if args.replay:
        return _replay(args, where)
    seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
    seconds = FULL if args.full else 60.0 * args.minutes if args.minutes else QUICK
    show = _Progress(args.json)
    report = run_selftest(where, Scope(seconds, seed, args.only, args.prove), show)
    show.clear()
    _save_replays(report)
    if args.write:
        _write(args.write, report)
    if args.json:
        print_json(report)
    else:
        for line in _lines(report):
            print(line)
    return EXIT_OK if report.held else EXIT_UNSUCCESSFUL


def _where(store: str | None) -> str:
    """The server, or a folder on the disk of the store."""
    named = named_store(store, os.environ)
    if "://" in named:
        return named
    if named:
        path = os.path.abspath(named)
        return path if os.path.isdir(path) else os.path.dirname(path)
    return find_upwards(os.getcwd(), ".hypervisor") or os.getcwd()


class _Progress:
    """One line on a terminal, which is written over."""

    def __init__(self, quiet: bool) -> None:
        self._is_shown = not quiet and sys.stderr.isatty()

    def __call__(self, part: Part, text: str) -> None:
        if self._is_shown:
            sys.stderr.write(f"\r\x1b[K{part.name}: {text}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")


def _lines(report: Report) -> Iterator[str]:
    for result in report.results:
        yield _line(result, good="held")
    if report.bugs:
        yield ""
        yield "planted bugs"
        for result in report.bugs:
            yield _line(result, good="violated")
    yield ""
    yield f"on {', '.join(f'{name} {value}' for name, value in report.host.items())}"
    yield f"not covered: {'; '.join(report.not_covered)}"
    verdict = (
        colour("✓ all checks passed", "done")
        if report.held
        else colour("✗ a check failed", "failed")
    )
    yield f"{verdict} in {report.seconds:g} s, seed {report.seed}"


WORDS = {"held": "held", "violated": "VIOLATED", "skipped": "skipped"}


def _line(result: PartResult, good: str) -> str:
    name = result.bug or result.part
    if result.bug:
        word = "found" if result.outcome == good else "NOT FOUND"
    else:
        word = WORDS[result.outcome]
    style = "done" if result.outcome == good else "failed"
    style = "" if result.outcome == "skipped" else style
    figures = ", ".join(f"{value:,} {what}" for what, value in result.figures.items())
    text = result.message or figures
    if result.bug and result.outcome == good:
        text = f"by {result.part} in {result.seconds:g} s, seed {result.seed}: {text}"
    space = " " * (9 - len(word))
    return f"{colour(word, style)}{space} {name:<23} {one_line(text)}".rstrip()


def _save_replays(report: Report) -> None:
    for result in report.results:
        if result.replay is not None:
            path = Path(f"selftest-{result.part}-{report.seed}.json")
            path.write_text(json.dumps(result.replay, indent=1))
            warn(f"hv: to replay it: hv selftest --replay {path}")


def _write(path: str, report: Report) -> None:
    if path.endswith(".json"):
        from hypervisor.cli.json_form import plain

        text = json.dumps(plain(report), indent=1)
    else:
        from hypervisor.web.report.selftest import selftest_page

        text = selftest_page(report)
    Path(path).write_text(text)


def _replay(args: argparse.Namespace, where: str) -> int:
    try:
        saved = json.loads(Path(args.replay).read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read {args.replay}: {error}") from None
    problem = replay(where, saved)
    if args.json:
        print_json({"held": problem is None, "message": problem or ""})
    else:
        print("held" if problem is None else f"VIOLATED {one_line(problem)}")
    return EXIT_OK if problem is None else EXIT_UNSUCCESSFUL
