"""hv scale"""

import argparse

from hypervisor.cli.output import one_line, respond
from hypervisor.core.text import pluralize
from hypervisor.queue.context import Context
from hypervisor.runs.config import MOST_WORKERS
from hypervisor.runs.run import scale

EXAMPLE = """hv scale 4 pages
  hv scale auto"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workers", type=_workers, metavar="N|auto", help="auto: as was planned")
    parser.add_argument("batch", nargs="?", metavar="BATCH", help="only this one (default: all)")


def run(hv: Context, args: argparse.Namespace) -> int:
    workers = None if args.workers == "auto" else args.workers
    scale(hv, workers, args.batch)
    where = "this host" if args.batch is None else one_line(f"batch {args.batch}")
    most = "as planned" if workers is None else f"at most {pluralize(workers, 'worker')}"
    return respond(args, {"workers": workers, "batch": args.batch}, f"{where}: {most}")


def _workers(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) > MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"invalid number of workers {text[:20]!r} (try 4 or auto)")
    return int(text)
