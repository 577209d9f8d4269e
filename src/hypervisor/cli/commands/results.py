"""hv results"""

import argparse
import csv
import sys
from collections.abc import Iterator

from hypervisor.cli.latest import add_batch, named_or_latest
from hypervisor.cli.output import one_line, print_json, print_json_object, table
from hypervisor.core.errors import EXIT_OK, InvalidInput
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.result import text_of
from hypervisor.queue.sql import queries
from hypervisor.runs.result_rows import cell_text, result_rows
from hypervisor.runs.results import TaskResult, results

EXAMPLE = """hv results pages
  hv results pages --format csv > pages.csv
  hv results --format jsonl | jq .result"""
FORMATS = ("jsonl", "csv", "table")


def configure(parser: argparse.ArgumentParser) -> None:
    add_batch(parser)
    parser.add_argument(
        "--format", choices=FORMATS, help="default: table on a terminal, else jsonl"
    )


def prepare(args: argparse.Namespace) -> None:
    if args.json and args.format:
        raise InvalidInput("--json and --format cannot be used together.")


def run(hv: Context, args: argparse.Namespace) -> int:
    batch = hv.store.read(queries.batch, named_or_latest(hv, args.batch))
    format = args.format or ("table" if sys.stdout.isatty() else "jsonl")
    if args.json:
        members = {"batch": batch.name, "batch_id": batch.id}
        print_json_object({**members, "results": results(hv, batch.id)})
    elif format == "jsonl":
        for result in results(hv, batch.id):
            print_json(result)
    elif format == "csv":
        _print_csv(hv, batch.id)
    else:
        _print_table(results(hv, batch.id))
    return EXIT_OK


def _print_csv(hv: Context, batch: str) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    clean = one_line if sys.stdout.isatty() else str
    for row in result_rows(hv, batch):
        writer.writerow(map(clean, row))


def _print_table(rows: Iterator[TaskResult]) -> None:
    shown = list(rows)
    cells = [
        (
            row.task,
            state_name(row.state),
            cell_text(row.exit_code),
            row.title,
            row.reason or text_of(row.result, "summary") or cell_text(row.result),
        )
        for row in shown
    ]
    table(("ID", "STATE", "EXIT", "TITLE", "RESULT"), cells, [row.state for row in shown])
