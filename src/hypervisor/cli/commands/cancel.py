"""hv cancel"""

import argparse

from hypervisor.cli import bulk
from hypervisor.queue.bulk import CANCELLED
from hypervisor.queue.context import Context
from hypervisor.queue.steer import cancel

EXAMPLE = """hv cancel 1q12deyb --reason 'no longer wanted'
  hv cancel --batch review --dry-run"""


def configure(parser: argparse.ArgumentParser) -> None:
    bulk.configure(parser, CANCELLED)


def run(hv: Context, args: argparse.Namespace) -> int:
    return bulk.run(hv, args, cancel, CANCELLED)
