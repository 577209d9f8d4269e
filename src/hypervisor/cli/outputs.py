"""Writing kept outputs: raw bytes when piped, made safe on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TextIO

from hypervisor.cli.escape import RESET, EscapeFilter
from hypervisor.cli.output import one_line, wants_colour
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import DONE
from hypervisor.queue.result import text_of
from hypervisor.queue.task import Json, Task


def write_output(pieces: Iterable[bytes], stream: TextIO) -> None:
    """Write an output piece by piece; on a terminal it ends with a newline."""
    if stream.isatty():
        _write_safely(pieces, stream)
        return
    stream.flush()
    for piece in pieces:
        stream.buffer.write(piece)
        stream.buffer.flush()


def _write_safely(pieces: Iterable[bytes], stream: TextIO) -> None:
    filter = EscapeFilter(wants_colour(stream))
    at_start = True
    try:
        for piece in pieces:
            text = filter.feed(piece)
            stream.write(text)
            stream.flush()
            at_start = text.endswith("\n") if text else at_start
        text = filter.feed(b"", last=True)
        stream.write(text)
        at_start = text.endswith("\n") if text else at_start
    finally:
        stream.write((RESET if filter.coloured else "") + ("" if at_start else "\n"))
        stream.flush()


def output_of(hv: Context, task: Task, spec: Json) -> Iterator[bytes]:
    """The output of a finished task: what its command printed, what its function printed and
    returned, or the last message of its agent."""
    kind = spec if isinstance(spec, dict) else {}
    if kind.get("agent"):
        yield _line(_message(task))
        return
    yield from kept_output(hv, task.id, task.attempts)
    if kind.get("function") and task.state == DONE:
        yield _line(task.result)


def kept_output(hv: Context, task: str, attempt: int) -> Iterator[bytes]:
    """The part of an attempt's output that can be read on this host."""
    return hv.outputs.pieces(task, attempt)


def tagged(pieces: Iterable[bytes], tag: str) -> Iterator[bytes]:
    """The same with the tag and a tab before each line; the last line gets its newline."""
    head = f"{one_line(tag)}\t".encode("utf-8", "surrogateescape")
    at_start = True
    for piece in filter(None, pieces):
        lines = piece.split(b"\n")
        ends_line = not lines[-1]
        text = (b"\n" + head).join(lines[:-1] if ends_line else lines)
        yield (head if at_start else b"") + text + (b"\n" if ends_line else b"")
        at_start = ends_line
    if not at_start:
        yield b"\n"


def _message(task: Task) -> Json:
    if task.state != DONE:
        return task.reason
    return text_of(task.result, "summary") or task.result


def _line(value: Json) -> bytes:
    """A value on a line: text as it is, anything else as JSON."""
    if value is None:
        return b""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return (text if text.endswith("\n") else text + "\n").encode("utf-8", "surrogatepass")
