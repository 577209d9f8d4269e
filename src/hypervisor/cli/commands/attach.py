"""hv attach"""

import argparse
import sys

from hypervisor.agents.attach import HANDOVERS, Attached, Attachment, Handover
from hypervisor.cli.output import one_line
from hypervisor.core import validate
from hypervisor.core.errors import EXIT_OK, InvalidInput
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import TERMINAL, state_name
from hypervisor.queue.message import MAX_MESSAGE_LENGTH
from hypervisor.runs.supervise import continue_runs

DESCRIPTION = """
Continue the session of a task's agent in this terminal. A running attempt is stopped first, at no
cost to the task; nobody else works on it meanwhile. Then hand the task back.
"""
EXAMPLE = """hv ls --state blocked
  hv attach 1q12deyb
  hv attach 1q12deyb --then done"""
QUESTION = "Hand the task back: [c]ontinue with the agent, [d]one, [b]lock it? [c] "


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "task", metavar="TASK", help="id of the task, or a unique beginning or end of it"
    )
    parser.add_argument(
        "--then",
        choices=HANDOVERS,
        help="afterwards: the agent continues, the task is done, or it is blocked (default: ask)",
    )
    parser.add_argument(
        "--note", metavar="TEXT", default="", help="a note for the agent, or the result or reason"
    )


def run(hv: Context, args: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidInput("hv attach needs a terminal. To write to the agent, use `hv answer`.")
    validate.text("the note", args.note, MAX_MESSAGE_LENGTH)
    with Attachment(hv, hv.resolve(args.task)) as attachment:
        attachment.run()
        ended = attachment.ended
        attached = attachment.hand_back(args.then or ("continue" if ended else _ask()), args.note)
    continues = () if attached.state in (*TERMINAL, "blocked") else _continue(hv, attached)
    print(_text(attached, bool(continues)))
    return EXIT_OK


def _ask() -> Handover:
    """The end of input, as of a closed terminal, means: continue."""
    while True:
        try:
            word = input(QUESTION).strip().lower()
        except (EOFError, KeyboardInterrupt, OSError):
            return "continue"
        chosen = next((how for how in HANDOVERS if how.startswith(word)), None)
        if chosen is not None:
            return chosen


def _continue(hv: Context, attached: Attached) -> tuple[str, ...]:
    return continue_runs(hv, [attached.task])


def _text(attached: Attached, continues: bool) -> str:
    if attached.ended:
        return one_line(
            f"{attached.task} is {state_name(attached.state)}: its claim had already ended"
        )
    if continues:
        follow = f"hv logs {attached.task} --follow"
        return f"handed back; the agent continues in the background; to follow it: {follow}"
    return f"{attached.task} is {state_name(attached.state)}"
