"""hv block"""

import argparse

from hypervisor.cli.output import confirm_state
from hypervisor.queue.claim import block
from hypervisor.queue.context import Context

EXAMPLE = (
    "hv block 1q12deyb47df.1.z06dk3w8m1x5t7qa 'no access to the tracker' "
    "--unblock 'a tracker login'"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", metavar="TOKEN", help="as the claim printed it")
    parser.add_argument("reason", metavar="REASON", help="why the task cannot continue")
    parser.add_argument("--unblock", metavar="TEXT", help="what is needed to continue")


def run(hv: Context, args: argparse.Namespace) -> int:
    return confirm_state(args, block(hv, args.token, args.reason, args.unblock))
