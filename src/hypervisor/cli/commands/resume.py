"""hv resume"""

import argparse

from hypervisor.cli.commands.pause import add_scope, scope_text
from hypervisor.cli.commands.pause import prepare as prepare
from hypervisor.cli.output import respond
from hypervisor.queue.context import Context
from hypervisor.runs.run import resume
from hypervisor.runs.status import status
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
    return respond(args, answer, f"{scope_text(args)} {'goes on' if changed else 'was not paused'}")
