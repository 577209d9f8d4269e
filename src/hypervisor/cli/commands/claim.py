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
    """The options of a claim; also used by `done --next`."""
    parser.add_argument("--limit", type=int, metavar="N", help="claim up to N tasks (default 1)")
    parser.add_argument(
        "--lease",
        type=duration,
        metavar="DURATION",
        help="time until the claim expires without a heartbeat (default 15m)",
    )
    parser.add_argument(
        "--pid",
        type=int,
        metavar="PID",
        help="process that works on the task; the claim ends when it exits",
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
    """The options that were given; the operation has defaults for the others."""
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
    claimed = claim(hv, args.worker or hv.actor, **claim_options(args))  # type: ignore[arg-type]
    leases = with_results(hv, claimed)
    code = EXIT_OK if leases else EXIT_NOTHING_TO_CLAIM
    with handing_over(hv, leases):
        return respond(args, leases, lambda: print_leases(leases), code, hv=hv)


@contextmanager
def handing_over(hv: Context, leases: Iterable[Lease]) -> Iterator[None]:
    """Release a claim whose token could not be printed: no one could end it."""
    try:
        yield
        sys.stdout.flush()
    except OSError:
        for lease in leases:
            with suppress(HypervisorError):
                release(hv, lease.token, "the claim's token could not be printed")
        raise


def with_results(hv: Context, leases: Iterable[Lease]) -> list[Lease]:
    """Write the input file of each reduce task; release the task if that fails."""
    complete: list[Lease] = []
    for lease in leases:
        if not isinstance(lease.task.data, dict) or "gather" not in lease.task.data:
            complete.append(lease)
            continue
        from hypervisor.batches.reduce_input import write_reduce_input  # hardly ever needed here

        try:
            complete.append(write_reduce_input(hv, lease))
        except (OSError, HypervisorError) as error:
            if not _released(hv, lease, error):
                complete.append(lease)
    return complete


def _released(hv: Context, lease: Lease, error: Exception) -> bool:
    """False if that failed as well: then its token must be printed anyway."""
    cause = getattr(error, "strerror", None) or str(error).rstrip(".")
    reason = f"the file with its results could not be written: {cause}"
    released = True
    try:
        release(hv, lease.token, reason)
    except LeaseLost:
        pass
    except HypervisorError:
        released = False
    state = "The task was released" if released else "You hold the claim, without that file"
    print(f"hv: {one_line(lease.task.title)}: {one_line(reason)}. {state}.", file=sys.stderr)
    return released


def print_leases(leases: Sequence[Lease]) -> None:
    """One line per claim: token and title; on a terminal also the next step."""
    for lease in leases:
        print(f"{lease.token}  {one_line(lease.task.title)}")
        if sys.stdout.isatty():
            if lease.task.body:
                print(block(lease.task.body))
            print(f"  claimed until {clock(lease.until)}; to complete it: hv done {lease.token}")
    if not leases:
        print("nothing to claim", file=sys.stderr)
