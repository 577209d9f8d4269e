"""hv retry"""

import argparse
import shlex
from collections.abc import Sequence

from hypervisor.cli import bulk
from hypervisor.queue.bulk import RETRIED
from hypervisor.queue.context import Context
from hypervisor.queue.steer import Moved, retry
from hypervisor.runs.supervise import continue_runs

EXAMPLE = """hv retry 1q12deyb --reason 'the server is back'
  hv retry --state failed --batch review --dry-run"""


def configure(parser: argparse.ArgumentParser) -> None:
    bulk.configure(parser, RETRIED)


def run(hv: Context, args: argparse.Namespace) -> int:
    return bulk.run(hv, args, retry, RETRIED, then=_continue)


def _continue(hv: Context, moved: Sequence[Moved]) -> list[str]:
    """Tasks of a run are run again in the background; others wait for a claim."""
    batches = continue_runs(hv, [task.task for task in moved])
    which = f" {shlex.quote(batches[0])}" if len(batches) == 1 else ""
    return [f"running in the background; to follow: hv status{which} --watch"] if batches else []
