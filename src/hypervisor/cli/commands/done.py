"""hv done"""

import argparse
from contextlib import suppress

from hypervisor.cli.arguments import json_text
from hypervisor.cli.commands.claim import (
    add_claim_options,
    claim_options,
    handing_over,
    print_leases,
    with_results,
)
from hypervisor.cli.output import respond
from hypervisor.core.errors import EXIT_NOTHING_TO_CLAIM, EXIT_OK, InvalidInput, LeaseLost
from hypervisor.queue.claim import Done, Turn, checked_result, complete, complete_and_claim, release
from hypervisor.queue.context import Context

EXAMPLE = """hv done 1q12deyb47df.1.z06dk3w8m1x5t7qa --result '{"verdict": "fine"}'
  hv done 1q12deyb47df.1.z06dk3w8m1x5t7qa --next me"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", metavar="TOKEN", help="as the claim printed it")
    parser.add_argument("--result", type=json_text, metavar="JSON", help="the result")
    parser.add_argument(
        "--next", metavar="WORKER", help="claim the next task in the same step, as this worker"
    )
    add_claim_options(parser.add_argument_group("with --next"))


def prepare(args: argparse.Namespace) -> None:
    if args.next is None and claim_options(args):
        raise InvalidInput(
            "what to claim next was said, but not by whom: add --next WORKER. Nothing was changed."
        )


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.next is None:
        return respond(args, complete(hv, args.token, args.result))
    turn = complete_and_claim(
        hv,
        [Done(args.token, checked_result(hv, args.token, args.result))],
        args.next,
        **claim_options(args),  # type: ignore[arg-type]
    )
    if turn.settled[0].lost:
        _give_back(hv, turn)
        raise LeaseLost(args.token, turn.settled[0].lost)
    turn = turn._replace(leases=tuple(with_results(hv, turn.leases)))
    code = EXIT_OK if turn.leases else EXIT_NOTHING_TO_CLAIM
    with handing_over(hv, turn.leases):
        return respond(args, turn, lambda: print_leases(turn.leases), code)


def _give_back(hv: Context, turn: Turn) -> None:
    """The answer is an error, so the caller would not learn of what was claimed beside it."""
    for lease in turn.leases:
        with suppress(LeaseLost):
            release(hv, lease.token, "claimed beside a stale token")
