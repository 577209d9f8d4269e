"""Reading a long output piece by piece: a window of whole lines, and where a text occurs."""

from __future__ import annotations

from hypervisor.core import validate
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context
from hypervisor.runs.results import latest_output

SIZE = 64 << 10  # bytes of a window
MAX_SEARCHED = 64 << 20  # bytes
STEP = 1 << 20
MAX_FOUND = 100
MAX_LINE_LENGTH = 300


class Window(NamedTuple):
    """A piece of an output, from `start` to `end` of `size` bytes."""

    attempt: int
    start: int
    end: int
    size: int | None  # None: nothing is stored on this host
    text: str

    @property
    def is_end(self) -> bool:
        return self.size is None or self.end >= self.size


class Match(NamedTuple):
    at: int  # the byte where its line starts
    line: str


def output_window(
    hv: Context, task: str, attempt: int | None = None, start: int | None = None, most: int = SIZE
) -> Window:
    """Read a window of an output: its end, or from a byte on. It begins and ends with a line,
    unless a single line is longer."""
    task_id = hv.resolve(task)
    number = latest_output(hv, task_id) if attempt is None else attempt
    size = hv.outputs.size(task_id, number)
    if size is None:
        return Window(number, 0, 0, None, "")
    begin = max(size - most, 0) if start is None else min(max(start, 0), size)
    data = hv.outputs.read(task_id, number, begin, most)
    if begin and start is None and (cut := data.find(b"\n") + 1):
        begin, data = begin + cut, data[cut:]
    if begin + len(data) < size and (cut := data.rfind(b"\n") + 1):
        data = data[:cut]
    return Window(number, begin, begin + len(data), size, data.decode("utf-8", "replace"))


def search_output(
    hv: Context, task: str, text: str, attempt: int | None = None
) -> tuple[tuple[Match, ...], bool]:
    """Find the lines of an output that contain a text, and whether all of it was searched."""
    task_id = hv.resolve(task)
    wanted = validate.text("the text", text, 1_000).lower().encode()
    number = latest_output(hv, task_id) if attempt is None else attempt
    size = hv.outputs.size(task_id, number) or 0
    matches: list[Match] = []
    at, rest = 0, b""
    while wanted and at + len(rest) < min(size, MAX_SEARCHED) and len(matches) < MAX_FOUND:
        data = rest + hv.outputs.read(task_id, number, at + len(rest), STEP)
        if len(data) == len(rest):
            break
        cut = data.rfind(b"\n") + 1
        if not cut or at + len(data) >= size:
            cut = len(data)
        offset = at
        for line in data[:cut].split(b"\n"):
            if wanted in line.lower() and len(matches) < MAX_FOUND:
                matches.append(Match(offset, line.decode("utf-8", "replace")[:MAX_LINE_LENGTH]))
            offset += len(line) + 1
        at, rest = at + cut, data[cut:]
    return tuple(matches), at >= size
