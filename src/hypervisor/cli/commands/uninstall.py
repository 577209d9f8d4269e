"""hv uninstall"""

import argparse

from hypervisor.cli.commands.install import configure as configure
from hypervisor.cli.commands.install import perform
from hypervisor.integrations.install import plan_uninstall

EXAMPLE = """hv uninstall claude
  hv uninstall codex --project --dry-run"""


def run(args: argparse.Namespace) -> int:
    return perform(args, plan_uninstall, removing=True)
