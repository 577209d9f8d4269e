"""Gemini must not overwrite the session that it resumes."""

from __future__ import annotations

from hypervisor.agents.acp.saved_sessions import protect_gemini_session

SESSION = "aa137ff5-640a-478f-894d-1b65748ee242"


def test_its_file_gets_a_name_that_gemini_does_not_write_to(tmp_path):
    home = tmp_path / "a [home]"
    chats = home / ".gemini/tmp/project/chats"
    chats.mkdir(parents=True)
    mine, other = (f"session-2026-11-18T08-39-{id}.jsonl" for id in (SESSION[:8], "3d66cf60"))
    (chats / mine).write_text("mine")
    (chats / other).write_text("other")
    for _ in range(2):
        protect_gemini_session(str(home), SESSION)
        texts = {path.name: path.read_text() for path in chats.iterdir()}
        assert texts == {mine.replace(".jsonl", "-saved.jsonl"): "mine", other: "other"}


def test_other_agents_and_odd_ids_do_no_harm(tmp_path):
    protect_gemini_session(str(tmp_path), SESSION)
    protect_gemini_session(str(tmp_path), "../*")
    protect_gemini_session(str(tmp_path), "")
    assert list(tmp_path.iterdir()) == []
