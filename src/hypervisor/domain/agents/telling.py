"""An agent's transcript told for people: who said what, which tools were called, what came back.

Pure: lines go in, what is to be shown comes out. A line that is no event of the agent's stream
(a warning of the program, half a line) is shown as it is; nothing here ever raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

# Who speaks.
AGENT, TOOL, ANSWER, ERROR, NOTE, END = "agent", "tool", "answer", "error", "note", "end"

LONGEST = 200  # characters of a tool's words or of its answer
LONGEST_LINE = 2_000  # of what is shown as it is
MAIN = (
    "command", "file_path", "path", "absolute_path", "filePath", "pattern", "query", "url",
    "task", "text", "summary", "description", "prompt",
)  # fmt: skip
STACK = ("at ", "}", "{")  # lines of a stack that a program in JavaScript prints
OURS = ("mcp__hypervisor__", "mcp_hypervisor_", "hypervisor_", "hypervisor-")
SHELLS = ("bash -lc ", "/bin/bash -lc ", "/usr/bin/bash -lc ", "/bin/sh -c ", "sh -c ")

Event = Mapping[str, Any]


class Said(NamedTuple):
    """One thing that was said or done. `name` is that of the tool."""

    who: str
    text: str
    name: str = ""

    @property
    def line(self) -> str:
        """On one line."""
        text = " ".join(self.text.split())
        return f"{self.name}: {text}" if self.name and text else self.name or text


class Teller:
    """Tells one stream, line by line. What comes in pieces is told once it is whole."""

    def __init__(self, stream: str) -> None:
        self._tell = STREAMS.get(stream)
        self._pieces: list[str] = []
        self._begun: set[str] = set()
        self._last = ""

    def tell(self, line: str) -> list[Said]:
        """What a line of the transcript says; often nothing."""
        text = line.strip()
        if not text:
            return []
        if self._tell is None:
            return [Said(AGENT, line.rstrip()[:LONGEST_LINE])]
        event = _event(text)
        if event is None:
            found = [] if text.startswith(STACK) else [Said(NOTE, text[:LONGEST_LINE])]
        else:
            try:
                found = [said for said in self._tell(self, event) if said.text or said.name]
            except Exception:  # a shape that no version had so far: better seen than lost
                found = [Said(NOTE, text[:LONGEST])]
        return [*self.rest(), *(said for said in found if self._is_news(said))] if found else []

    def rest(self) -> list[Said]:
        """What was said in pieces and is whole now that something else comes."""
        whole = "".join(self._pieces).strip()
        self._pieces = []
        return [Said(AGENT, whole)] if whole else []

    def _is_news(self, said: Said) -> bool:
        """Errors come twice, as a message and as the reason of the end."""
        last, self._last = self._last, _short(said.text)
        return said.who in (TOOL, ANSWER) or self._last != last

    def piece(self, text: str) -> None:
        self._pieces.append(text)

    def is_new(self, name: str) -> bool:
        """Whether this is the first word of a call: some streams tell of its end only."""
        fresh = name not in self._begun
        self._begun.add(name)
        return fresh


def doing(stream: str, tail: str) -> str:
    """What an agent is doing now, from the end of its transcript; "" if that does not tell."""
    teller = Teller(stream)
    last = ""
    for line in tail.splitlines():
        for said in teller.tell(line):
            last = said.line if said.who in (AGENT, TOOL, ERROR) else last or said.line
    for said in teller.rest():
        last = said.line
    return last[:LONGEST]


# The streams. Each gets an event and yields what is worth showing.


def _claude(teller: Teller, event: Event) -> Iterator[Said]:
    kind, sub = event.get("type"), event.get("subtype")
    if kind == "system" and sub == "init":
        yield _session(event.get("session_id"), event.get("model"))
    elif kind == "system" and sub == "api_retry":
        yield Said(ERROR, _retry(event))
    elif kind in ("assistant", "user"):
        yield from _blocks(kind, _of(event, "message").get("content"))
    elif kind == "rate_limit_event" and _of(event, "rate_limit_info").get("status") == "rejected":
        yield Said(ERROR, "a limit of the account is reached")
    elif kind == "result":
        usage = _of(event, "usage")
        if event.get("is_error"):
            told = event.get("result") or event.get("error") or str(sub).replace("_", " ")
            yield Said(ERROR, _short(told))
        yield _end(event.get("num_turns"), usage.get("input_tokens"), usage.get("output_tokens"),
                   event.get("total_cost_usd"))  # fmt: skip


def _blocks(kind: str, content: object) -> Iterator[Said]:
    for block in content if isinstance(content, list) else []:
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text" and kind == "assistant":
            yield Said(AGENT, _text(block.get("text")))
        elif block.get("type") == "tool_use":
            yield _call(block.get("name"), block.get("input"))
        elif block.get("type") == "tool_result":
            yield _answer(block.get("content"), bool(block.get("is_error")))


def _codex(teller: Teller, event: Event) -> Iterator[Said]:
    kind, item = str(event.get("type")), _of(event, "item")
    if kind == "thread.started":
        yield _session(event.get("thread_id"), "")
    elif kind == "turn.failed":
        yield Said(ERROR, _short(_of(event, "error").get("message")))
    elif kind == "error":
        yield Said(ERROR, _short(event.get("message")))
    elif kind == "turn.completed":
        usage = _of(event, "usage")
        yield _end(None, usage.get("input_tokens"), usage.get("output_tokens"), None)
    elif kind.startswith("item."):
        yield from _codex_item(teller, item, kind == "item.completed")


def _codex_item(teller: Teller, item: Event, over: bool) -> Iterator[Said]:
    kind = item.get("type")
    if kind in ("agent_message", "error") and over:
        shown = item.get("text") or item.get("message")  # such an error is a warning
        yield Said(AGENT if kind == "agent_message" else NOTE, _text(shown))
    elif kind == "file_change" and over:
        changes = [each for each in item.get("changes") or () if isinstance(each, dict)]
        told = (f"{each.get('kind', 'change')} {each.get('path', '')}" for each in changes)
        yield Said(TOOL, _short(", ".join(told)), "edit")
    elif kind in ("command_execution", "mcp_tool_call", "web_search"):
        if teller.is_new(str(item.get("id"))):
            yield _codex_call(item)
        if over and kind != "web_search":
            answer = item.get("aggregated_output") or item.get("error") or item.get("result")
            yield _answer(answer, item.get("status") == "failed" or bool(item.get("exit_code")))


def _codex_call(item: Event) -> Said:
    if item.get("type") == "mcp_tool_call":
        return _call(f"{item.get('server', '')}.{item.get('tool', '')}", item.get("arguments"))
    if item.get("type") == "web_search":
        return Said(TOOL, _short(item.get("query")), "search")
    command = _text(item.get("command"))
    for shell in SHELLS:
        if command.startswith(shell):
            command = command[len(shell) :].strip("'\"")
    return Said(TOOL, _short(command), "shell")


def _gemini(teller: Teller, event: Event) -> Iterator[Said]:
    kind = event.get("type")
    if kind == "init":
        yield _session(event.get("session_id"), event.get("model"))
    elif kind == "message" and event.get("role") == "assistant":
        teller.piece(_text(event.get("content")))
    elif kind == "tool_use":
        yield _call(event.get("tool_name"), event.get("parameters"))
    elif kind == "tool_result":
        answer = event.get("output") or _of(event, "error").get("message")
        yield _answer(answer, event.get("status") == "error")
    elif kind == "error":
        yield Said(ERROR, _short(event.get("message")))
    elif kind == "result":
        stats = _of(event, "stats")
        if event.get("status") not in ("success", None):
            yield Said(ERROR, _short(_of(event, "error").get("message") or event.get("status")))
        yield _end(None, stats.get("input_tokens"), stats.get("output_tokens"), None)


def _opencode(teller: Teller, event: Event) -> Iterator[Said]:
    kind, part = event.get("type"), _of(event, "part")
    if teller.is_new("session") and event.get("sessionID"):
        yield _session(event.get("sessionID"), "")
    if kind == "text":
        yield Said(AGENT, _text(part.get("text")))
    elif kind == "tool_use":
        state = _of(part, "state")
        yield _call(part.get("tool"), state.get("input"))
        if state.get("status") in ("completed", "error"):
            answer = state.get("output") or state.get("error")
            yield _answer(answer, state.get("status") == "error")
    elif kind == "error":
        error = _of(event, "error")
        yield Said(ERROR, _short(_of(error, "data").get("message") or error.get("name")))
    elif kind == "step_finish":
        tokens = _of(part, "tokens")
        if part.get("reason") not in ("tool-calls", "tool_use"):
            yield _end(None, tokens.get("input"), tokens.get("output"), part.get("cost"))


def _copilot(teller: Teller, event: Event) -> Iterator[Said]:
    kind, data = event.get("type"), _of(event, "data")
    if kind == "session.start":
        yield _session(data.get("sessionId"), data.get("selectedModel"))
    elif kind == "assistant.message":
        yield Said(AGENT, _text(data.get("content")))
    elif kind == "tool.execution_start":
        yield _call(data.get("toolName"), data.get("arguments"))
    elif kind == "tool.execution_complete":
        failed = data.get("success") is False
        answer = _of(data, "error").get("message") if failed else data.get("result")
        yield _answer(answer, failed)
    elif kind == "session.error":
        yield Said(ERROR, _short(data.get("message")))
    elif kind == "result":
        yield Said(END, f"ended with {event.get('exitCode')}")


STREAMS: dict[str, Callable[[Teller, Event], Iterator[Said]]] = {
    "claude": _claude, "qwen": _claude, "codex": _codex, "gemini": _gemini,
    "opencode": _opencode, "copilot": _copilot,
}  # fmt: skip


# What they have in common.


def _event(text: str) -> Event | None:
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _of(event: Event, name: str) -> Event:
    found = event.get(name)
    return found if isinstance(found, dict) else {}


def _session(session: object, model: object) -> Said:
    told = [f"session {session}" if session else "", f"model {model}" if model else ""]
    return Said(NOTE, ", ".join(each for each in told if each))


def _call(name: object, given: object) -> Said:
    """The tool and the one of its words that says most."""
    called = _text(name)
    for prefix in OURS:
        if called.startswith(prefix):
            called = f"hypervisor.{called[len(prefix) :]}"
    if not isinstance(given, dict):
        return Said(TOOL, _short(given), called)
    main = next((given[key] for key in MAIN if isinstance(given.get(key), str)), None)
    return Said(TOOL, _short(given if main is None and given else main), called)


def _answer(content: object, failed: bool) -> Said:
    """The first line of a tool's answer, and how many more there are."""
    lines = [line for line in _text(content).splitlines() if line.strip()]
    more = "" if len(lines) < 2 else f" (and {_counted(len(lines) - 1, 'more line')})"
    return Said(ERROR if failed else ANSWER, (_short(lines[0]) if lines else "(nothing)") + more)


def _retry(event: Event) -> str:
    wait = event.get("retry_delay_ms")
    when = f" in {wait / 1000:.0f} s" if isinstance(wait, (int, float)) else ""
    return f"{_short(event.get('error')) or 'the provider failed'}; it tries again{when}"


def _end(turns: object, read: object, written: object, cost: object) -> Said:
    tokens = sum(each for each in (read, written) if isinstance(each, int))
    told = [
        _counted(turns, "turn") if isinstance(turns, int) else "",
        f"{tokens:,} tokens" if tokens else "",
        f"cost {cost:.4f}" if isinstance(cost, (int, float)) and cost else "",
    ]
    return Said(END, ", ".join(each for each in told if each) or "ended")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _short(value: object) -> str:
    text = " ".join(_text(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _text(value: object) -> str:
    """Text from what may be text, blocks of text, or something else."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for key in ("text", "content", "message", "output"):
            if isinstance(value.get(key), (str, list)):
                return _text(value[key])
    if isinstance(value, list):
        texts = [_text(each) for each in value if isinstance(each, (str, dict))]
        if any(texts):
            return "\n".join(texts)
    return json.dumps(value, ensure_ascii=False, default=str)
