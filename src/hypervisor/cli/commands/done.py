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
from hypervisor.cli.output import confirm, respond
from hypervisor.core.errors import EXIT_NOTHING_TO_CLAIM, EXIT_OK, InvalidInput, LeaseLost
from hypervisor.queue.claim import (
    CompleteAndClaim,
    Done,
    checked_result,
    complete,
    complete_and_claim,
    release,
)
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name

EXAMPLE = """hv done 1q12deyb47df.1.z06dk3w8m1x5t7qa --result '{"verdict": "fine"}'
  hv done 1q12deyb47df.1.z06dk3w8m1x5t7qa --next me"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("token", metavar="TOKEN", help="as the claim printed it")
    parser.add_argument("--result", type=json_text, metavar="JSON", help="result of the task")
    parser.add_argument(
        "--next", metavar="WORKER", help="claim the next task in the same step, as this worker"
    )
    add_claim_options(parser.add_argument_group("with --next"))


def prepare(args: argparse.Namespace) -> None:
    if args.next is None and claim_options(args):
        raise InvalidInput("options for the next claim need --next WORKER. Nothing was changed.")


def run(hv: Context, args: argparse.Namespace) -> int:
    if args.next is None:
        moved = complete(hv, args.token, args.result)
        return confirm(args, moved, f"{moved.task} {state_name(moved.state)}")
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
        return respond(args, turn, lambda: print_leases(turn.leases), code, hv=hv)


def _give_back(hv: Context, turn: CompleteAndClaim) -> None:
    """Release the new claims: the answer is an error, so the caller does not learn about them."""
    for lease in turn.leases:
        with suppress(LeaseLost):
            release(hv, lease.token, "claimed together with a stale token")
