"""The stream formats: one module for each, which parses a line into a state and events.

A module has `parse`, and `add_usage` if the program writes its usage to a file. A new format is a
new module here, and its name in profile.STREAMS. A parser reads the fields that the real programs
were recorded with, and no line makes it fail.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from hypervisor.agents.profile import STREAMS
from hypervisor.agents.stream_events import Parse
from hypervisor.agents.stream_state import StreamState


def parser(stream: str) -> Parse:
    """The parser of a stream format; an unknown one is plain text."""
    parse: Parse = _module(stream).parse
    return parse


def with_usage(stream: str, state: StreamState, usage: str) -> StreamState:
    """Add the figures of a usage file (the profile's `usage`) after the end."""
    add_usage = getattr(_module(stream), "add_usage", None)
    return add_usage(state, usage) if add_usage else state


def _module(stream: str) -> ModuleType:
    return import_module(f"{__name__}.{stream if stream in STREAMS else 'text'}")
