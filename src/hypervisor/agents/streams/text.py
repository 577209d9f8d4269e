"""Plain text: each line is a message, and nothing else is known. The end of the output is the
agent's last message."""

from __future__ import annotations

from hypervisor.agents.stream_events import Message, Update
from hypervisor.agents.stream_state import StreamState, one_line, storable

MOST_KEPT = 64 << 10
LONGEST_SHOWN = 2_000  # of a line in the transcript


def parse(state: StreamState, line: str) -> Update:
    shown = line.rstrip()[:LONGEST_SHOWN]
    line = storable(line.rstrip("\r\n"), MOST_KEPT)
    message = f"{state.message}\n{line}" if state.message else line
    if len(message) > 2 * MOST_KEPT:  # cut seldom, not on each line
        message = message[-MOST_KEPT:]
    activity = one_line(line) or state.activity
    state = state._replace(message=message, closes=False, activity=activity)
    return Update(state, (Message(shown),) if shown else ())
