"""Counts the tokens of one call while its answer passes by. Pure: bytes in, figures out.

Four formats, each as a stream of events or as one JSON document. An answer that ends without its
usage is estimated: it was paid for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypervisor.agents.gateway.route import Wire
from hypervisor.agents.json_fields import Object, count, member, text
from hypervisor.queue.agent_session import Tokens

MAX_LINE = 16 << 20
MAX_DOCUMENT = 64 << 20
BYTES_PER_TOKEN = 4
NO_USAGE = (b'"usage":null', b'"usage": null')
ENDS = ("response.completed", "response.incomplete", "response.failed", "message_stop")


class CallMeter:
    def __init__(self, wire: Wire, is_stream: bool, request_bytes: int = 0) -> None:
        self.model = ""
        self.is_final = False  # the usage is complete, whatever follows
        self._wire, self._is_stream = wire, is_stream
        self._request_bytes = request_bytes
        self._tokens = Tokens()
        self._has_output = False
        self._events = 0
        self._size = 0
        self._rest = b""

    def feed(self, data: bytes) -> None:
        self._size += len(data)
        if not self._wire or (not self._is_stream and self._size > MAX_DOCUMENT):
            return
        self._rest += data
        if not self._is_stream:
            return
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > MAX_LINE:
            self._rest = b""
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())

    def end(self) -> None:
        """The answer is complete."""
        if self._wire and not self._is_stream:
            document = _parsed(self._rest)
            for part in document if isinstance(document, list) else [document]:
                self._count(member(part))
        elif self._rest.startswith(b"data:"):
            self._event(self._rest[5:].strip())
        self._rest = b""

    @property
    def tokens(self) -> Tokens:
        """What the provider reported; the rest is estimated."""
        if not self._wire or not self._size:
            return Tokens()
        tokens = self._tokens
        if not (tokens.input or tokens.cached or self._has_output):
            tokens = tokens._replace(input=self._request_bytes // BYTES_PER_TOKEN)
        if not self._has_output:
            sent = self._events if self._is_stream else self._size // BYTES_PER_TOKEN
            tokens = tokens._replace(output=max(sent, tokens.output))
        return tokens

    def _event(self, line: bytes) -> None:
        """Only events with a usage are parsed, and the first one, which names the model."""
        self._events += 1
        if line == b"[DONE]" or b'"message_stop"' in line:
            self.is_final = True
        has_usage = b'"usage' in line and not any(part in line for part in NO_USAGE)
        if has_usage or not self.model:
            self._count(member(_parsed(line)))

    def _count(self, event: Object) -> None:
        inner = member(event, "message") or member(event, "response") or event
        self.model = self.model or (text(inner, "model") or text(inner, "modelVersion"))[:200]
        usage = member(inner, "usage") or member(inner, "usageMetadata") or member(event, "usage")
        if usage and self._wire:
            now = _READERS[self._wire](usage)  # later ones may repeat only a part of it
            self._tokens = Tokens(*map(max, self._tokens, now))
            # At its start a message has a usage, too, with the input only.
            self._has_output = event.get("type") != "message_start"
        if event.get("type") in ENDS:
            self.is_final = True


def _messages(usage: Object) -> Tokens:
    """Tokens written to the cache count as uncached input."""
    read = count(usage, "input_tokens") + count(usage, "cache_creation_input_tokens")
    return Tokens(read, count(usage, "output_tokens"), count(usage, "cache_read_input_tokens"))


def _responses(usage: Object) -> Tokens:
    cached = count(member(usage, "input_tokens_details"), "cached_tokens")
    read = max(count(usage, "input_tokens") - cached, 0)
    return Tokens(read, count(usage, "output_tokens"), cached)


def _chat(usage: Object) -> Tokens:
    cached = count(member(usage, "prompt_tokens_details"), "cached_tokens")
    read = max(count(usage, "prompt_tokens") - cached, 0)
    return Tokens(read, count(usage, "completion_tokens"), cached)


def _gemini(usage: Object) -> Tokens:
    cached = count(usage, "cachedContentTokenCount")
    read = count(usage, "promptTokenCount") + count(usage, "toolUsePromptTokenCount")
    output = count(usage, "candidatesTokenCount") + count(usage, "thoughtsTokenCount")
    return Tokens(max(read - cached, 0), output, cached)


_READERS: dict[Wire, Callable[[Object], Tokens]] = {
    "messages": _messages,
    "responses": _responses,
    "chat": _chat,
    "gemini": _gemini,
}


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
