"""hv doctor"""

from __future__ import annotations

import argparse

from hypervisor.cli.output import colour, one_line, print_json
from hypervisor.core.errors import EXIT_CODES, EXIT_OK
from hypervisor.queue.context import Context
from hypervisor.queue.doctor import doctor

EXAMPLE = "hv doctor"


def configure(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(hv: Context, args: argparse.Namespace) -> int:
    checks = doctor(hv)
    if args.json:
        print_json(checks)
    else:
        for check in checks:
            mark = colour("ok ", "done") if check.ok else colour("BAD", "failed")
            print(f"{mark} {check.name:<12}{one_line(check.found)}")
            if not check.ok:
                print(f"                → {one_line(check.fix)}")
    return EXIT_OK if all(check.ok for check in checks) else EXIT_CODES["store"]
