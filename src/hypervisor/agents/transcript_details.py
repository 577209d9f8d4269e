"""What a line of a transcript leaves out: the change that a tool makes to a file, as a diff, and
the rest of what a tool answered. Pure, bounded, and no input makes it raise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import unified_diff
from typing import Any

from hypervisor.agents import stream_events as ev
from hypervisor.agents.transcript import (
    MAX_LENGTH,
    TranscriptLine,
    TranscriptRenderer,
    text_of,
)
from hypervisor.core.records import NamedTuple

MAX_EDIT = 40_000  # characters that are compared
MAX_DIFF_LINES = 200
MAX_TEXT = 6_000
PATHS = ("file_path", "path", "absolute_path", "filePath")
BEFORE = ("old_string", "oldString", "old_str", "old_text")
AFTER = ("new_string", "newString", "new_str", "new_text")
WRITTEN = ("content", "contents", "file_text")
PATCHES = ("patch", "patchText", "diff")


class DetailedLine(NamedTuple):
    """A line, the change that its tool made, and the lines after the first that it answered."""

    line: TranscriptLine
    diff: str = ""
    rest: str = ""


def detailed_transcript(stream: str, lines: Iterable[str]) -> list[DetailedLine]:
    """The transcript of a stream, with its details."""
    events: dict[int, tuple[TranscriptLine, ev.Event]] = {}

    def note(shown: TranscriptLine, event: ev.Event) -> None:
        events[id(shown)] = shown, event

    renderer = TranscriptRenderer(stream, note)
    shown = [entry for line in lines for entry in renderer.feed(line)]
    return [
        _detailed(line, events[id(line)][1]) if id(line) in events else DetailedLine(line)
        for line in [*shown, *renderer.flush()]
    ]


def _detailed(line: TranscriptLine, event: ev.Event) -> DetailedLine:
    if isinstance(event, ev.ToolCall):
        return DetailedLine(line, diff_of(event))
    if isinstance(event, ev.ToolResult) and (rest := _all_lines(event)[1:]):
        first = _all_lines(event)[0][:MAX_LENGTH]
        return DetailedLine(line._replace(text=first), "", "\n".join(rest)[:MAX_TEXT])
    return DetailedLine(line)


def diff_of(call: ev.ToolCall) -> str:
    """What a tool changes in a file, as a unified diff; "" for other tools."""
    given = call.input
    if not isinstance(given, dict):
        return ""
    path = _first(given, PATHS) or "file"
    if patch := _first(given, PATCHES):
        return _cut(patch.splitlines())
    edits = given.get("edits")
    pairs = list(edits) if isinstance(edits, list) else [given]
    lines = [line for pair in pairs[:50] for line in _edit(pair)]
    return _cut([f"--- a/{path}", f"+++ b/{path}", *lines]) if lines else ""


def _all_lines(result: ev.ToolResult) -> list[str]:
    return [line for line in text_of(result.content).splitlines() if line.strip()]


def _edit(pair: Any) -> Iterator[str]:
    if not isinstance(pair, dict):
        return
    before, after = _first(pair, BEFORE), _first(pair, AFTER)
    if before is None and after is None:
        before, after = "", _first(pair, WRITTEN)
    if after is None or len(before or "") + len(after) > MAX_EDIT:
        return
    changed = unified_diff((before or "").splitlines(), after.splitlines(), n=2, lineterm="")
    yield from list(changed)[2:]


def _first(given: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((given[name] for name in names if isinstance(given.get(name), str)), None)


def _cut(lines: list[str]) -> str:
    left_out = len(lines) - MAX_DIFF_LINES
    shown = [line[:500] for line in lines[:MAX_DIFF_LINES]]
    return "\n".join([*shown, *([f"  … {left_out} more lines"] if left_out > 0 else [])])
