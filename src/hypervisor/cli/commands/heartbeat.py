"""hv heartbeat"""

import argparse
import sys

from hypervisor.cli.arguments import duration
from hypervisor.cli.output import clock, confirm, respond
from hypervisor.core.errors import EXIT_CODES
from hypervisor.queue.claim import heartbeat
from hypervisor.queue.context import Context
from hypervisor.queue.lease import DEFAULT_LEASE

EXAMPLE = "hv heartbeat 1q12deyb47df.1.z06dk3w8m1x5t7qa --lease 10m"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", nargs="+", metavar="TOKEN", help="as the claim printed it")
    parser.add_argument(
        "--lease",
        type=duration,
        default=DEFAULT_LEASE,
        metavar="DURATION",
        help="time until the claim expires, from now (default 15m)",
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    beat = heartbeat(hv, args.token, args.lease)
    for token in beat.lost:
        print(f"hv: the claim {token} has ended: stop working on it.", file=sys.stderr)
    if beat.lost:
        return respond(args, beat, code=EXIT_CODES["lease_lost"])
    return confirm(args, beat, f"claimed until {clock(beat.until)}")
