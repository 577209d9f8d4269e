"""hv report"""

import argparse
import os
from contextlib import suppress

from hypervisor.batches.report import BatchReport, report
from hypervisor.cli.json_form import plain
from hypervisor.cli.latest import add_batch, named_or_latest
from hypervisor.cli.output import one_line, respond
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.context import Context

DESCRIPTION = "Write an HTML report of a batch: timeline, durations, failures and receipts."
EXAMPLE = """hv report pages
  hv report pages --out /tmp/pages.html"""
NAME = "report.html"


def configure(parser: argparse.ArgumentParser) -> None:
    add_batch(parser)
    parser.add_argument(
        "--out", metavar="FILE", help="output file (default: in the folder of the batch)"
    )
    parser.add_argument("--json-data", action="store_true", help="embed the data as JSON")


def run(hv: Context, args: argparse.Namespace) -> int:
    result = report(hv, named_or_latest(hv, args.batch))
    path = write(hv, result, args.out, args.json_data)
    return respond(
        args, {"batch": result.batch, "path": path, "bytes": os.path.getsize(path)}, one_line(path)
    )


def write(hv: Context, result: BatchReport, out: str | None = None, data: bool = False) -> str:
    """Write the page of a report; returns where it is."""
    from hypervisor.web.report.page import page

    text = page(result, plain(result) if data else None)
    if out is None:
        return hv.batch_files.write(result.batch, NAME, text)
    return _replace(os.path.abspath(out), text)


def _replace(path: str, text: str) -> str:
    """Write the file atomically, so that no reader sees half a page."""
    fresh = f"{path}.{os.getpid()}.new"
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(21, "is a folder")
        try:
            with open(fresh, "x", encoding="utf-8") as file:
                file.write(text)
            os.replace(fresh, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh)
            raise
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None
    return path
