"""One parser for each stream format. `hear` takes what was heard so far and one more line.

A parser knows the fields that the real programs were recorded with, and no line makes it fail:
what is no JSON, of another kind or cut off is left alone, but for words of trouble in plain text.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from hypervisor.domain.agents.heard import Heard
from hypervisor.domain.agents.profile import STREAMS

Hear = Callable[[Heard, str], Heard]


def hearing(stream: str) -> Hear:
    """The parser of a stream format; that of plain text for one that nobody knows."""
    name = stream if stream in STREAMS else "text"
    hear: Hear = import_module(f"{__name__}.{name}").hear
    return hear


def with_usage(stream: str, heard: Heard, usage: str) -> Heard:
    """What a file of usage (the profile's `usage`) adds to what was heard, after the end."""
    if stream != "copilot":
        return heard
    from hypervisor.domain.agents.streams import copilot

    return copilot.with_usage(heard, usage)
