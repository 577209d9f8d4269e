"""hv answer"""

import argparse
import sys

from hypervisor.agents.answer import answer
from hypervisor.cli.output import confirm
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import state_name
from hypervisor.queue.message import MAX_MESSAGE_LENGTH
from hypervisor.runs.supervise import continue_runs

EXAMPLE = """hv ls --state blocked
  hv answer 1q12deyb 'use port 8080'
  hv answer 1q12deyb - < answer.md"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "task", metavar="TASK", help="id of the task, or a unique beginning or end of it"
    )
    parser.add_argument("text", metavar="TEXT", help="the answer; - reads it from stdin")


def run(hv: Context, args: argparse.Namespace) -> int:
    moved = answer(hv, args.task, text_of(args.text))
    continues = continue_runs(hv, [moved.task])
    follow = f"hv logs {moved.task} --follow"
    after = f"it continues in the background; to follow: {follow}"
    waits = f"answered; {moved.task} is {state_name(moved.state)} and waits for a claim"
    return confirm(args, moved, f"answered; {after}" if continues else waits)


def text_of(word: str) -> str:
    """The text on the command line, or what is on stdin for `-`."""
    if word != "-":
        return word
    if sys.stdin.isatty():
        raise InvalidInput("no text given: - reads it from stdin, which is a terminal")
    return sys.stdin.read(MAX_MESSAGE_LENGTH + 1)
