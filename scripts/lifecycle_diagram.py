"""Writes the diagram and the tables in docs/lifecycle.md from queue/lifecycle.py."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator

from marked import keep

from hypervisor.queue.lifecycle import EVENTS, INBOX, QUEUE, STATES, TERMINAL, TRANSITIONS

START = "[*]"
FIRST = {(START, "add"): (INBOX, QUEUE)}  # `add` has no state before it, so no row in the table


def page_part() -> str:
    return "\n".join([*_diagram(), "", *_states(), "", *_events()])


def _arrows() -> dict[tuple[str, str], list[str]]:
    """The events from one state to another, in the order of the table."""
    arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (before, event), afters in FIRST.items():
        for after in afters:
            arrows[before, after].append(event)
    for (before, event), after in TRANSITIONS.items():
        arrows[before, after].append(event)
    return arrows


def _diagram() -> Iterator[str]:
    yield from ("```mermaid", "stateDiagram-v2", f"    state {QUEUE} <<choice>>")
    yield f"    {QUEUE} --> active : can run now"
    yield f"    {QUEUE} --> waiting : cannot run yet"
    for (before, after), events in _arrows().items():
        yield f"    {before} --> {after} : {', '.join(events)}"
    yield "```"


def _states() -> Iterator[str]:
    yield from ("| state | meaning | what can happen |", "|---|---|---|")
    for state, meaning in STATES.items():
        ends = " (terminal)" if state in TERMINAL else ""
        events = ", ".join(f"`{event}`" for before, event in TRANSITIONS if before == state)
        yield f"| `{state}` | {meaning}{ends} | {events} |"


def _events() -> Iterator[str]:
    yield from ("| event | meaning | from → to |", "|---|---|---|")
    for event, meaning in EVENTS.items():
        ways: dict[str, list[str]] = defaultdict(list)
        for (before, after), events in _arrows().items():
            if event in events:
                ways[after].append("new" if before == START else f"`{before}`")
        told = "; ".join(f"{', '.join(befores)} → `{after}`" for after, befores in ways.items())
        yield f"| `{event}` | {meaning} | {told} |"


if __name__ == "__main__":
    sys.exit(keep("docs/lifecycle.md", __file__, page_part(), sys.argv[1:]))
