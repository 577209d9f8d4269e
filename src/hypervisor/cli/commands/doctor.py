"""hv doctor"""

import argparse

from hypervisor.cli.output import colour, one_line, respond
from hypervisor.core.errors import EXIT_CODES, EXIT_OK
from hypervisor.queue.context import Context
from hypervisor.runs.doctor import doctor

EXAMPLE = "hv doctor"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fix", action="store_true", help="make the files of the store private again"
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    checks, lines = doctor(hv, args.fix), []
    for check in checks:
        mark = colour("ok ", "done") if check.ok else colour("BAD", "failed")
        lines.append(f"{mark} {check.name:<12}{one_line(check.found)}")
        lines += [] if check.ok else [f"                → {one_line(check.fix)}"]
    healthy = all(check.ok for check in checks)
    return respond(args, checks, lines, code=EXIT_OK if healthy else EXIT_CODES["store"])
