"""hv cancel"""

from __future__ import annotations

import argparse

from hypervisor.faces.cli.commands import selecting
from hypervisor.operations.context import Context
from hypervisor.operations.steer import cancel

EXAMPLE = """hv cancel 1q12deyb --reason 'no longer wanted'
  hv cancel --batch review --dry-run"""

configure = selecting.configure


def run(hv: Context, args: argparse.Namespace) -> int:
    return selecting.run(
        hv, args, cancel, ("inbox", "waiting", "active", "in_progress", "review", "blocked")
    )
