"""hv kill"""

import argparse
from functools import partial

from hypervisor.cli import bulk
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import IN_PROGRESS, state_called
from hypervisor.runs.control import kill

EXAMPLE = """hv kill 1q12deyb --reason 'it loops'
  hv kill 1q12deyb --retry
  hv kill pages --dry-run
  hv kill --type render"""

STATES = (IN_PROGRESS,)


def configure(parser: argparse.ArgumentParser) -> None:
    bulk.configure(parser, STATES)
    parser.add_argument(
        "--retry",
        action="store_true",
        help="put the tasks back into the queue instead of failing them",
    )


def prepare(args: argparse.Namespace) -> None:
    for state in args.state:
        if state_called(state) != IN_PROGRESS:
            raise InvalidInput(
                f"only running tasks can be killed; `hv cancel --state {state}` cancels others."
            )


def run(hv: Context, args: argparse.Namespace) -> int:
    stop = partial(kill, retry=args.retry)
    return bulk.run(hv, args, stop, STATES, skip="wrong_state")  # it has ended since
