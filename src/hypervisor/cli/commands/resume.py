"""hv resume"""

import argparse

from hypervisor.cli.commands.pause import add_scope, scope_text
from hypervisor.cli.commands.pause import prepare as prepare
from hypervisor.cli.output import confirm
from hypervisor.monitoring.status import status
from hypervisor.queue.context import Context
from hypervisor.runs.control import resume
from hypervisor.runs.supervise import supervise

EXAMPLE = """hv resume pages
  hv resume --all"""
configure = add_scope


def run(hv: Context, args: argparse.Namespace) -> int:
    changed = resume(hv, args.batch, args.type)
    supervisor = None
    if changed and status(hv, args.batch).stats.remaining:
        supervisor = supervise(hv)  # the last one may have left, as there was nothing to do
    answer = {"changed": changed, "supervisor": supervisor}
    outcome = "resumed" if changed else "is not paused"
    return confirm(args, answer, f"{scope_text(args)} {outcome}")
