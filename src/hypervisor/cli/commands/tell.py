"""hv tell"""

import argparse

from hypervisor.agents.answer import tell
from hypervisor.cli.commands.answer import text_of
from hypervisor.cli.output import confirm
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import IN_PROGRESS

EXAMPLE = """hv tell 1q12deyb 'leave the tests alone'
  hv tell 1q12deyb - < note.md"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "task", metavar="TASK", help="id of the task, or a unique beginning or end of it"
    )
    parser.add_argument("text", metavar="TEXT", help="the note; - reads it from stdin")


def run(hv: Context, args: argparse.Namespace) -> int:
    moved = tell(hv, args.task, text_of(args.text))
    when = "its next attempt"
    if moved.state == IN_PROGRESS:
        when = "its next call of a tool of Hypervisor, or its next attempt"
    return confirm(args, moved, f"noted; {moved.task} gets it with {when}")
