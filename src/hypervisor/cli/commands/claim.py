"""hv claim"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from hypervisor.cli.arguments import duration
from hypervisor.cli.output import block, clock, one_line, respond
from hypervisor.core.errors import EXIT_NOTHING_TO_CLAIM, EXIT_OK, HypervisorError, LeaseLost
from hypervisor.queue.claim import claim, release
from hypervisor.queue.context import Context
from hypervisor.queue.lease import Lease

EXAMPLE = """hv claim --worker me --type review --can git
  hv claim --worker "$0" --pid $$ --lease 5m --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--worker", metavar="NAME", help="who claims (default: you)")
    add_claim_options(parser)


def add_claim_options(parser: argparse._ActionsContainer) -> None:
    """What a claim can ask for; `done --next` shares them."""
    parser.add_argument("--limit", type=int, metavar="N", help="up to N tasks at once (default 1)")
    parser.add_argument(
        "--lease",
        type=duration,
        metavar="DURATION",
        help="how long without a heartbeat (default 15m)",
    )
    parser.add_argument(
        "--pid",
        type=int,
        metavar="PID",
        help="the process that works on it: claimed while it lives",
    )
    parser.add_argument("--batch", metavar="NAME", help="only tasks of this batch")
    parser.add_argument("--type", action="append", help="only tasks of this type; repeatable")
    parser.add_argument("--branch", help="only tasks of this branch")
    parser.add_argument(
        "--priority", action="append", help="only tasks of this priority; repeatable"
    )
    parser.add_argument(
        "--can",
        action="append",
        metavar="CAPABILITY",
        help="also tasks that require this; repeatable",
    )
    parser.add_argument("--assignee", help="only tasks assigned to this name")


def claim_options(args: argparse.Namespace) -> dict[str, object]:
    """The options that were given; for the others the operation has its defaults."""
    options = {
        "limit": args.limit,
        "lease": args.lease,
        "pid": args.pid,
        "batch": args.batch,
        "types": args.type,
        "branch": args.branch,
        "priorities": args.priority,
        "capabilities": args.can,
        "assignee": args.assignee,
    }
    return {name: value for name, value in options.items() if value is not None}


def run(hv: Context, args: argparse.Namespace) -> int:
    taken = claim(hv, args.worker or hv.actor, **claim_options(args))  # type: ignore[arg-type]
    leases = with_results(hv, taken)
    code = EXIT_OK if leases else EXIT_NOTHING_TO_CLAIM
    with handing_over(hv, leases):
        return respond(args, leases, lambda: print_leases(leases), code)


@contextmanager
def handing_over(hv: Context, leases: Iterable[Lease]) -> Iterator[None]:
    """A token that could not be told is nobody's: what it stands for is given back."""
    try:
        yield
        sys.stdout.flush()
    except OSError:
        for lease in leases:
            with suppress(HypervisorError):
                release(hv, lease.token, "the claim's token could not be told")
        raise


def with_results(hv: Context, leases: Iterable[Lease]) -> list[Lease]:
    """A reduce task comes with the file of its results; without that it is given back."""
    complete: list[Lease] = []
    for lease in leases:
        if not isinstance(lease.task.data, dict) or "gather" not in lease.task.data:
            complete.append(lease)
            continue
        from hypervisor.batches.reduce_input import write_reduce_input  # hardly ever needed here

        try:
            complete.append(write_reduce_input(hv, lease))
        except (OSError, HypervisorError) as error:
            if not _gave_back(hv, lease, error):
                complete.append(lease)
    return complete


def _gave_back(hv: Context, lease: Lease, error: Exception) -> bool:
    """False if that was not possible either: then its token must be told all the same."""
    cause = getattr(error, "strerror", None) or str(error).rstrip(".")
    why = f"the file with its results could not be made: {cause}"
    gone = True
    try:
        release(hv, lease.token, why)
    except LeaseLost:
        pass
    except HypervisorError:
        gone = False
    then = "It is given back" if gone else "You have it without that file"
    print(f"hv: {one_line(lease.task.title)}: {one_line(why)}. {then}.", file=sys.stderr)
    return gone


def print_leases(leases: Sequence[Lease]) -> None:
    """A line each: the token, then the title; on a terminal also what to do with it."""
    for lease in leases:
        print(f"{lease.token}  {one_line(lease.task.title)}")
        if sys.stdout.isatty():
            if lease.task.body:
                print(block(lease.task.body))
            print(f"  yours until {clock(lease.until)}; then `hv done {lease.token}`")
    if not leases:
        print("nothing to claim", file=sys.stderr)
