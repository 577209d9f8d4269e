"""Plain text: what is printed is said, and nothing else is known. The end of the output is the
agent's last message."""

from __future__ import annotations

from hypervisor.domain.agents.heard import Heard
from hypervisor.domain.agents.streams.reading import one_line, storable

MOST_SAID = 64 << 10


def hear(heard: Heard, line: str) -> Heard:
    line = storable(line.rstrip("\r\n"), MOST_SAID)
    said = f"{heard.said}\n{line}" if heard.said else line
    if len(said) > 2 * MOST_SAID:  # cut seldom, not on each line
        said = said[-MOST_SAID:]
    return heard._replace(said=said, closes=False, now=one_line(line) or heard.now)
