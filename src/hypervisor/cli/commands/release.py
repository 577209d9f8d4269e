"""hv release"""

import argparse

from hypervisor.cli.output import confirm_state
from hypervisor.queue.claim import release
from hypervisor.queue.context import Context
from hypervisor.queue.steer import take_back

EXAMPLE = """hv release 1q12deyb47df.1.z06dk3w8m1x5t7qa
  hv release --force 1q12deyb --reason 'the agent hangs'"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "token", metavar="TOKEN|TASK", help="token of your claim; with --force, the task"
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for the log")
    parser.add_argument(
        "--force",
        action="store_true",
        help="end another worker's claim; make sure that it has stopped working",
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.force:
        return confirm_state(args, take_back(hv, args.token.partition(".")[0], args.reason))
    return confirm_state(args, release(hv, args.token, args.reason))
