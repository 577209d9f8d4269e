"""hv retry"""

import argparse

from hypervisor.cli import bulk
from hypervisor.queue.context import Context
from hypervisor.queue.steer import retry

EXAMPLE = """hv retry 1q12deyb --reason 'the server is back'
  hv retry --state failed --batch review --dry-run"""

STATES = ("failed", "blocked")


def configure(parser: argparse.ArgumentParser) -> None:
    bulk.configure(parser, STATES)


def run(hv: Context, args: argparse.Namespace) -> int:
    return bulk.run(hv, args, retry, STATES)
