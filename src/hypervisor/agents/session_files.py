"""Token counts that codex writes to its session file while it runs; its output has them only at
the end. The agent controls that file: it may be anything."""

from __future__ import annotations

import glob
import os
from contextlib import suppress

from hypervisor.agents import json_fields as f
from hypervisor.agents.stream_state import StreamState
from hypervisor.queue.agent_session import Tokens

MAX_TAIL = 1 << 20
MARK = '"token_count"'


def with_live_tokens(stream: str, home: str, state: StreamState) -> StreamState:
    """The state with the tokens of the session so far, if known and until its end is reported."""
    if stream != "codex" or state.ended or not state.session.replace("-", "").isalnum():
        return state
    total = _codex_total(home, state.session)
    if total is None:
        return state
    tokens = total.minus(state.tokens_before)
    return state._replace(tokens=tokens) if sum(tokens) > sum(state.tokens) else state


def _codex_total(home: str, session: str) -> Tokens | None:
    """The last count in the session file, of the whole session."""
    pattern = os.path.join(glob.escape(home), ".codex/sessions/*/*/*", f"rollout-*{session}.jsonl")
    for path in glob.glob(pattern)[:1]:
        for line in reversed(_tail(path)):
            payload = f.member(f.parse_object(line) if MARK in line else None, "payload")
            if usage := f.member(payload, "info", "total_token_usage"):
                read, cached = f.count(usage, "input_tokens"), f.count(usage, "cached_input_tokens")
                return Tokens(max(read - cached, 0), f.count(usage, "output_tokens"), cached)
    return None


def _tail(path: str) -> list[str]:
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            file.seek(max(os.fstat(handle).st_size - MAX_TAIL, 0))
            return (file.read(MAX_TAIL) or b"").decode("utf-8", "replace").splitlines()
    return []
