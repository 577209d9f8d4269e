"""hv cancel"""

from __future__ import annotations

import argparse

from hypervisor.domain.lifecycle import TRANSITIONS
from hypervisor.faces.cli.commands import selecting
from hypervisor.operations.context import Context
from hypervisor.operations.steer import cancel

EXAMPLE = """hv cancel 1q12deyb --reason 'no longer wanted'
  hv cancel --batch review --dry-run"""

STATES = tuple(state for state, event in TRANSITIONS if event == "cancel")


def configure(parser: argparse.ArgumentParser) -> None:
    selecting.configure(parser, STATES)


def run(hv: Context, args: argparse.Namespace) -> int:
    return selecting.run(hv, args, cancel, STATES)
