"""hv done"""

from __future__ import annotations

import argparse
import sys

from hypervisor.domain.errors import EXIT_CODES, EXIT_OK, LeaseLost
from hypervisor.faces.cli.commands.claim import add_claim_options, claim_options, print_leases
from hypervisor.faces.cli.output import one_line, print_json
from hypervisor.faces.cli.values import json_text
from hypervisor.operations.claim import Done, complete, complete_and_claim
from hypervisor.operations.context import Context

EXAMPLE = """hv done 1q12deyb47df.1.z06d --result '{"verdict": "fine"}'
  hv done 1q12deyb47df.1.z06d --next me"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", metavar="TOKEN", help="as the claim printed it")
    parser.add_argument("--result", type=json_text, metavar="JSON", help="what came of it")
    parser.add_argument(
        "--next", metavar="WORKER", help="claim the next task in the same step, as this worker"
    )
    add_claim_options(parser)


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.next is None:
        answer = complete(hv, args.token, args.result)
        if args.json:
            print_json(answer)
        return EXIT_OK
    turn = complete_and_claim(
        hv,
        [Done(args.token, args.result)],
        args.next,
        **claim_options(args),  # type: ignore[arg-type]
    )
    if args.json:
        print_json(turn)
    else:
        print_leases(turn.leases)
    if turn.settled[0].lost:
        lost = LeaseLost(args.token, turn.settled[0].lost)
        print(f"hv: {one_line(str(lost))}", file=sys.stderr)
        return EXIT_CODES[lost.code]
    return EXIT_OK
