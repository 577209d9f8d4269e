"""hv cancel"""

import argparse

from hypervisor.cli import bulk
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import TRANSITIONS
from hypervisor.queue.steer import cancel

EXAMPLE = """hv cancel 1q12deyb --reason 'no longer wanted'
  hv cancel --batch review --dry-run"""

STATES = tuple(state for state, event in TRANSITIONS if event == "cancel")


def configure(parser: argparse.ArgumentParser) -> None:
    bulk.configure(parser, STATES)


def run(hv: Context, args: argparse.Namespace) -> int:
    return bulk.run(hv, args, cancel, STATES)
