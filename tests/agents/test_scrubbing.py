"""Secrets are removed from the files in an agent's home; everything else stays unchanged."""

from __future__ import annotations

import json
import os
import sqlite3

import pytest

from hypervisor.agents import scrubbing
from hypervisor.agents.homes import AgentHomes
from hypervisor.agents.scrubbing import scrub

KEY = "sk-planted-0123456789abcdef"
ODD = 'pass"word/with\\signs'


@pytest.fixture
def home(tmp_path):
    return AgentHomes(str(tmp_path)).prepare("task1")


def write(home, name, content):
    path = os.path.join(home.home, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(content)
    return path


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_a_secret_goes_and_what_is_around_it_stays(home):
    snapshot = write(home, ".codex/shell_snapshots/1.sh", f"export A=1\nexport KEY={KEY}\n")
    session = write(home, "session.jsonl", json.dumps({"text": f"I saw {ODD}!"}) + "\n")
    private = os.path.join(home.tmp, "private")
    with open(private, "w") as file:
        file.write(KEY)
    scrub(home, {KEY, ODD})
    assert read(snapshot) == b"export A=1\nexport KEY=" + b"*" * len(KEY) + b"\n"
    text = json.loads(read(session))["text"]
    assert text.startswith("I saw *") and text.endswith("*!") and "word" not in text
    assert read(private) == b"*" * len(KEY)
    assert os.stat(snapshot).st_mode & 0o777 == 0o600


def test_a_database_can_still_be_read(home):
    path = os.path.join(home.home, "state.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, line TEXT)")
        lines = [(f"{n} {KEY if n % 7 == 0 else 'plain'}",) for n in range(5_000)]
        database.executemany("INSERT INTO log (line) VALUES (?)", lines)
    database.close()
    scrub(home, {KEY})
    assert KEY.encode() not in read(path)
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (count,) = database.execute("SELECT count(*) FROM log WHERE line LIKE '%plain'").fetchone()
    assert count == 5_000 - len(range(0, 5_000, 7))
    database.close()


def test_a_file_without_a_secret_is_not_touched(home):
    path = write(home, "notes", "nothing here")
    before = os.stat(path)
    scrub(home, {KEY, "short", ""})
    assert os.stat(path).st_ino == before.st_ino and os.stat(path).st_mtime == before.st_mtime


def test_what_is_outside_and_what_is_a_login_stays(home, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text(KEY)
    os.symlink(outside, os.path.join(home.home, "link"))
    os.link(outside, os.path.join(home.home, "hard"))
    login = write(home, ".codex/auth.json", KEY)
    os.mkfifo(os.path.join(home.home, "pipe"))
    scrub(home, {KEY}, [".codex/auth.json"])
    assert outside.read_text() == KEY and read(login) == KEY.encode()
    assert os.path.islink(os.path.join(home.home, "link"))
    assert read(os.path.join(home.home, "hard")) == b"*" * len(KEY)


def test_a_secret_over_the_end_of_a_piece_is_found(home, monkeypatch):
    monkeypatch.setattr(scrubbing, "PIECE", 16)
    path = write(home, "long", "x" * 10 + KEY + "y" * 100)
    scrub(home, {KEY})
    assert KEY.encode() not in read(path)


def test_one_that_is_too_large_or_cannot_be_rewritten_is_removed(home, monkeypatch):
    monkeypatch.setattr(scrubbing, "MAX_SIZE", 1_000)
    large = write(home, "large", "x" * 2_000 + KEY)
    plain = write(home, "plain", "x" * 2_000)
    scrub(home, {KEY})
    assert not os.path.exists(large) and os.path.exists(plain)

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scrubbing, "write_own", full)
    small = write(home, "small", KEY)
    scrub(home, {KEY})
    assert not os.path.exists(small)


def test_a_folder_or_file_that_was_closed_is_searched_too(home):
    path = write(home, "closed/key", KEY)
    os.chmod(path, 0)
    os.chmod(os.path.dirname(path), 0)
    scrub(home, {KEY})
    os.chmod(os.path.dirname(path), 0o700)
    assert not os.path.exists(path) or KEY.encode() not in read(path)
