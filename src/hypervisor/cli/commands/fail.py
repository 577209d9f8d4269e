"""hv fail"""

import argparse

from hypervisor.cli.arguments import duration
from hypervisor.cli.output import confirm
from hypervisor.queue.claim import fail
from hypervisor.queue.context import Context

EXAMPLE = "hv fail 1q12deyb47df.1.z06dk3w8m1x5t7qa 'the tests do not pass' --retry-in 10m"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", metavar="TOKEN", help="as the claim printed it")
    parser.add_argument("reason", metavar="REASON", help="what went wrong")
    parser.add_argument("--final", action="store_true", help="do not retry, even with retries left")
    parser.add_argument(
        "--retry-in", type=duration, metavar="DURATION", help="retry after this delay"
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    answer = fail(hv, args.token, args.reason, args.final, args.retry_in)
    outcome = "failed" if answer.state == "failed" else "will be retried"
    return confirm(args, answer, f"{answer.task} {outcome}")
