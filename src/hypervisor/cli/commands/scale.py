"""hv scale"""

import argparse

from hypervisor.cli.output import confirm, one_line
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.runs.config_readers import MAX_WORKERS
from hypervisor.runs.control import scale

EXAMPLE = """hv scale 4 pages
  hv scale auto"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workers",
        type=_workers,
        metavar="N|auto",
        help="maximum number of workers; auto: as set by `hv run` or config.toml",
    )
    parser.add_argument(
        "batch", nargs="?", metavar="BATCH", help="name or id of a batch (default: every host)"
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    workers = None if args.workers == "auto" else args.workers
    scale(hv, workers, args.batch)
    where = "each host" if args.batch is None else one_line(f"batch {args.batch}")
    most = (
        "default number of workers"
        if workers is None
        else f"at most {pluralize(workers, 'worker')}"
    )
    answer = {"workers": workers, "batch": args.batch}
    return confirm(args, answer, f"{where}: {most}")


def _workers(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) > MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"invalid number of workers {text[:20]!r} (try 4 or auto)")
    return int(text)
