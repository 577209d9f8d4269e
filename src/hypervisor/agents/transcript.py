"""Renders an agent's transcript for people: its messages, its tool calls and their results.

Pure: lines of a stream go in, lines for people come out; no input makes it raise.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from hypervisor.agents import stream_events as ev
from hypervisor.agents.stream_state import StreamState
from hypervisor.agents.streams import parser
from hypervisor.core.records import NamedTuple
from hypervisor.core.text import money_text

# Whose line it is.
AGENT, TOOL, ANSWER, ERROR, NOTE, END = "agent", "tool", "answer", "error", "note", "end"

MAX_LENGTH = 200  # characters of a tool's input or of its result
MAX_NOTE_LENGTH = 2_000
# The most telling fields of a tool's input, best first.
MAIN_INPUTS = (
    "command",
    "file_path",
    "path",
    "absolute_path",
    "filePath",
    "pattern",
    "query",
    "url",
    "task",
    "text",
    "summary",
    "description",
    "prompt",
)
OWN_TOOLS = ("mcp__hypervisor__", "mcp_hypervisor_", "hypervisor_", "hypervisor-")


class TranscriptLine(NamedTuple):
    """`name` is that of the tool."""

    who: str
    text: str
    name: str = ""

    @property
    def line(self) -> str:
        """On one line."""
        text = " ".join(self.text.split())
        return f"{self.name}: {text}" if self.name and text else self.name or text


class TranscriptRenderer:
    """Renders one stream, line by line. A message in pieces becomes one line."""

    def __init__(
        self, stream: str, note: Callable[[TranscriptLine, ev.Event], None] | None = None
    ) -> None:
        """`note` is called with each line and the event that it shows."""
        self._parse, self._note = parser(stream), note
        self._state = StreamState()
        self._pieces: list[str] = []
        self._last = ""

    def feed(self, line: str) -> list[TranscriptLine]:
        """The transcript lines for a line of the stream; often none."""
        if not line.strip():
            return []
        self._state, events = self._parse(self._state, line)
        try:
            rendered = [shown for event in events if (shown := self._render(event))]
        except RecursionError:  # nested too deeply to parse: shown as it is
            rendered = [TranscriptLine(NOTE, line.strip()[:MAX_LENGTH])]
        if not rendered:
            return []
        return [*self.flush(), *(shown for shown in rendered if self._is_new(shown))]

    def flush(self) -> list[TranscriptLine]:
        """The message that came in pieces, now complete."""
        message = "".join(self._pieces).strip()
        self._pieces = []
        return [TranscriptLine(AGENT, message)] if message else []

    def _render(self, event: ev.Event) -> TranscriptLine | None:
        if isinstance(event, ev.Message) and event.partial:
            self._pieces.append(event.text)
            return None
        shown = render_event(event)
        if self._note:
            self._note(shown, event)
        return shown if shown.text or shown.name else None

    def _is_new(self, shown: TranscriptLine) -> bool:
        """Errors are often reported twice, as a message and as the reason of the end."""
        last, self._last = self._last, _short(shown.text)
        return shown.who in (TOOL, ANSWER) or self._last != last or not self._state.closes


def current_activity(stream: str, tail: str) -> str:
    """What an agent is doing now, from the end of its transcript; "" if unknown."""
    renderer = TranscriptRenderer(stream)
    last = ""
    for line in tail.splitlines():
        for shown in renderer.feed(line):
            last = shown.line if shown.who in (AGENT, TOOL, ERROR) else last or shown.line
    for shown in renderer.flush():
        last = shown.line
    return last[:MAX_LENGTH]


def render_event(event: ev.Event) -> TranscriptLine:
    match event:
        case ev.Message(text):
            return TranscriptLine(AGENT, text)
        case ev.ToolCall():
            return _tool_call(event)
        case ev.ToolResult():
            return _tool_result(event)
        case ev.Failure(content):
            return TranscriptLine(ERROR, _short(content))
        case ev.Note(text):
            return TranscriptLine(NOTE, text[:MAX_NOTE_LENGTH])
        case ev.End():
            return _end(event)


def _tool_call(call: ev.ToolCall) -> TranscriptLine:
    """The tool and the most telling field of its input."""
    name, shown = call.name, call.input
    for prefix in OWN_TOOLS:
        if name.startswith(prefix):
            name = f"hypervisor.{name[len(prefix) :]}"
    if isinstance(shown, dict):
        texts = (shown[key] for key in MAIN_INPUTS if isinstance(shown.get(key), str))
        shown = next(texts, shown or None)
    return TranscriptLine(TOOL, _short(shown), name)


def _tool_result(result: ev.ToolResult) -> TranscriptLine:
    """The first line of a tool's result, and how many more there are."""
    lines = [line for line in text_of(result.content).splitlines() if line.strip()]
    more = f" (and {_count(len(lines) - 1, 'more line')})" if len(lines) > 1 else ""
    text = _short(lines[0]) if lines else "(nothing)"
    return TranscriptLine(ERROR if result.failed else ANSWER, text + more)


def _end(end: ev.End) -> TranscriptLine:
    figures = (
        end.text,
        _count(end.turns, "turn") if end.turns is not None else "",
        f"{end.tokens:,} tokens" if end.tokens else "",
        f"cost {money_text(round(end.cost * 1e6))}" if end.cost else "",
    )
    return TranscriptLine(END, ", ".join(filter(None, figures)) or "ended")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _short(value: object) -> str:
    text = " ".join(text_of(value).split())
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"


def text_of(value: object) -> str:
    """The text of a string, of text blocks, or of any other value."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for key in ("text", "content", "message", "output"):
            if isinstance(value.get(key), (str, list)):
                return text_of(value[key])
    if isinstance(value, list):
        texts = [text_of(item) for item in value if isinstance(item, (str, dict))]
        if any(texts):
            return "\n".join(texts)
    return json.dumps(value, ensure_ascii=False, default=str)
