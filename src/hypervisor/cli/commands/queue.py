"""hv queue"""

import argparse
from collections.abc import Iterator

from hypervisor.cli.output import DIM, GREEN, RED, YELLOW, Line, is_live_terminal, one_line, respond
from hypervisor.cli.render import clock
from hypervisor.core.errors import EXIT_OK
from hypervisor.core.text import pluralize
from hypervisor.git.queue_status import LandedTask, LaneStatus, exits, merge_queue
from hypervisor.queue.context import Context

EXAMPLE = "hv queue"
EMPTY = "the merge queue is empty"
EVERY = 0.5  # seconds
QUIT_KEYS = ("q", "Q", "\x1b", "\x04")
STYLES = {"done": GREEN, "failed": RED, "review": YELLOW}
ENDINGS = {
    "done": "nothing to merge",
    "review": "in review: {}",
    "failed": "failed: {}",
    "cancelled": "cancelled",
}
WHY = "hv show {} says why"
SHORT = 12  # characters of a commit


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", nargs="?", metavar="BATCH", help="only tasks of this batch")


def run(hv: Context, args: argparse.Namespace) -> int:
    lanes = merge_queue(hv, args.batch)
    if lanes and not args.json and is_live_terminal():
        _live(hv, args.batch)
        return EXIT_OK
    text = [_plain(line) for line in queue_lines(lanes, hv.now())] or EMPTY
    return respond(args, lanes, text, hv=hv)


def _live(hv: Context, batch: str | None) -> None:
    """Until the queue is empty, `q` or Ctrl-C. What has left it stays above."""
    from hypervisor.cli.live import Screen, one_row  # loads rich
    from hypervisor.cli.live_queue import draw_queue

    lanes = merge_queue(hv, batch)
    try:
        with Screen(keys=True) as screen:
            while lanes:
                screen.paint(draw_queue(queue_lines(lanes, hv.now()), screen.size()[1]))
                if screen.key(EVERY) in QUIT_KEYS:
                    return
                before, lanes = lanes, merge_queue(hv, batch)
                gone = [one_row(exit_line(left)) for left in exits(hv, before, lanes)]
                frame = draw_queue(queue_lines(lanes, hv.now()), screen.size()[1])
                screen.paint(frame, gone)
    except KeyboardInterrupt:
        return
    print(EMPTY)


def queue_lines(lanes: list[LaneStatus], now: int) -> Iterator[Line]:
    """A line for each lane, why it is paused, and a line for each task in it."""
    for lane in lanes:
        where = f"{lane.target} in {lane.repository}" if lane.lane else "commits being collected"
        yield [(one_line(f"{where}: {pluralize(len(lane.tasks), 'task')}"), "")]
        if lane.doing:
            yield [(one_line(f"  {lane.doing}"), "")]
        if lane.paused:
            yield [(one_line(f"  paused: {lane.paused}"), YELLOW)]
        for task in lane.tasks:
            again = f"  (round {task.round + 1}: {WHY.format(task.task)})" if task.round else ""
            age = f"  {task.task}  {clock(now - task.since):>6}  "
            yield [(age, DIM), (one_line(f"{task.title}{again}"), "")]


def exit_line(left: LandedTask) -> Line:
    """Where the work of a task went, or why it was not merged."""
    style = STYLES.get(left.state, "")
    if left.commit:
        text = f"merged: {left.commit[:SHORT]} on {left.target}"
    elif left.state in ENDINGS:
        text = ENDINGS[left.state].format(_first_line(left))
    else:
        text = f"sent back: {_first_line(left)}"
    if left.state not in ("done", "cancelled"):
        text += f" ({WHY.format(left.task)})"
    return [(f"{left.task}  {one_line(left.title)}: ", ""), (one_line(text), style)]


def _first_line(left: LandedTask) -> str:
    return left.reason.partition("\n")[0]


def _plain(line: Line) -> str:
    return "".join(text for text, _ in line)
