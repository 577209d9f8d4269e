"""What a span is, and its ids, which depend only on what it is about.

A span that is sent again, after a crash or by another process, is the same span.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from hypervisor.core.records import NamedTuple

Value = str | int | float | bool


class Span(NamedTuple):
    """Times are in milliseconds. `parent` is 0 for the root of a trace."""

    trace: int
    id: int
    parent: int
    name: str
    started_at: int
    ended_at: int
    ok: bool | None  # None: neither
    attributes: Mapping[str, Value]
    problem: str = ""


def trace_id(batch: str, task: str) -> int:
    """A trace is a batch; a task without one is a trace of its own."""
    return _number(16, "trace", batch or task)


def batch_span_id(batch: str) -> int:
    return _number(8, "batch", batch)


def task_span_id(task: str) -> int:
    return _number(8, "task", task)


def attempt_span_id(task: str, number: int) -> int:
    return _number(8, "attempt", task, str(number))


def tool_span_id(task: str, number: int, call: int) -> int:
    """`call`: the place of the call in the attempt, from 1."""
    return _number(8, "tool", task, str(number), str(call))


def _number(size: int, *names: str) -> int:
    digest = blake2b("\0".join(names).encode(), digest_size=size, person=b"hv span")
    return int.from_bytes(digest.digest()) or 1  # 0 is not an id
