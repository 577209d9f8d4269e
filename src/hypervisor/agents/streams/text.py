"""Plain text: every line is part of the agent's message."""

from __future__ import annotations

from hypervisor.agents.stream_events import Message, Update
from hypervisor.agents.stream_state import StreamState, one_line, storable

MAX_KEPT = 64 << 10
MAX_SHOWN_LENGTH = 2_000  # of a line in the transcript


def parse(state: StreamState, line: str) -> Update:
    shown = line.rstrip()[:MAX_SHOWN_LENGTH]
    line = storable(line.rstrip("\r\n"), MAX_KEPT)
    message = f"{state.message}\n{line}" if state.message else line
    if len(message) > 2 * MAX_KEPT:  # cut seldom, not on each line
        message = message[-MAX_KEPT:]
    activity = one_line(line) or state.activity
    state = state._replace(message=message, closes=False, activity=activity)
    return Update(state, (Message(shown),) if shown else ())
