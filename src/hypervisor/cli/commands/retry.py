"""hv retry"""

import argparse

from hypervisor.cli.commands import selecting
from hypervisor.queue.context import Context
from hypervisor.queue.steer import retry

EXAMPLE = """hv retry 1q12deyb --reason 'the server is back'
  hv retry --state failed --batch review --dry-run"""

STATES = ("failed", "blocked")


def configure(parser: argparse.ArgumentParser) -> None:
    selecting.configure(parser, STATES)


def run(hv: Context, args: argparse.Namespace) -> int:
    return selecting.run(hv, args, retry, STATES)
