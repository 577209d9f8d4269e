"""Token counts in the session file of codex, as the real program writes it."""

from __future__ import annotations

import json
import os

import pytest

from hypervisor.agents.session_files import with_live_tokens
from hypervisor.agents.stream_state import StreamState
from hypervisor.queue.agent_session import Tokens

SESSION = "01a1ed61-f383-7de0-a622-58faa705efca"
STATE = StreamState(session=SESSION)


def count(read, cached, written):
    usage = {"input_tokens": read, "cached_input_tokens": cached, "output_tokens": written}
    info = {"total_token_usage": usage, "last_token_usage": {"input_tokens": 1}}
    payload = {"type": "token_count", "info": info}
    return json.dumps({"type": "event_msg", "payload": payload}, separators=(",", ":"))


@pytest.fixture
def session_file(tmp_path):
    folder = tmp_path / ".codex/sessions/2026/11/18"
    folder.mkdir(parents=True)
    return folder / f"rollout-2026-11-18T06-39-41-{SESSION}.jsonl"


def test_the_last_count_is_used(tmp_path, session_file):
    unknown = '{"payload":{"type":"token_count","info":null}}'
    lines = ['{"type":"session_meta"}', count(1000, 0, 200), count(4000, 500, 800), unknown, '{"x']
    session_file.write_text("\n".join(lines))
    assert with_live_tokens("codex", str(tmp_path), STATE).tokens == Tokens(3500, 800, 500)
    resumed = STATE._replace(tokens_before=Tokens(1000, 200, 0))
    assert with_live_tokens("codex", str(tmp_path), resumed).tokens == Tokens(2500, 600, 500)


def test_what_was_reported_stays(tmp_path, session_file):
    session_file.write_text(count(10, 0, 2))
    for state in (STATE._replace(tokens=Tokens(9000, 1, 0)), STATE._replace(ended=True)):
        assert with_live_tokens("codex", str(tmp_path), state) is state
    assert with_live_tokens("gemini", str(tmp_path), STATE) is STATE
    assert with_live_tokens("codex", str(tmp_path), StreamState(session="../*")).tokens == Tokens()


def test_whatever_the_agent_left_there_does_no_harm(tmp_path, session_file):
    os.mkfifo(session_file)
    assert with_live_tokens("codex", str(tmp_path), STATE) is STATE
    session_file.unlink()
    session_file.symlink_to("/etc/passwd")
    assert with_live_tokens("codex", str(tmp_path), STATE) is STATE
