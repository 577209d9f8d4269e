"""From the pipe to the file: no secret is written, and no line uses all the memory."""

from __future__ import annotations

import json
import os
import random
from urllib.parse import quote

import pytest

from hypervisor.agents import transcript_writer
from hypervisor.agents.secrets import HIDDEN
from hypervisor.agents.transcript_writer import Redactor, TranscriptWriter, secrets_in
from hypervisor.queue.hide_tokens import MAX_TOKEN_LENGTH

KEY = "sk-ant-0123456789"
ODD = 'ä "key" / with\\odd signs'
TOKEN = "1q22pqqjp2tt.12.x7k2"


def through(redactor, *pieces):
    return b"".join([*(redactor.feed(piece) for piece in pieces), redactor.end()])


def test_a_secret_is_hidden_wherever_it_is_cut():
    text = f"before {KEY} after\n".encode()
    for cut in range(len(text)):
        shown = through(Redactor([KEY]), text[:cut], text[cut:])
        assert shown == f"before {HIDDEN} after\n".encode()


def test_letter_by_letter_and_without_an_end_of_line():
    text = f"{KEY}{KEY} {TOKEN}".encode()
    shown = through(Redactor([KEY]), *(bytes([letter]) for letter in text))
    assert shown == f"{HIDDEN}{HIDDEN} 1q22pqqjp2tt.12.…".encode()


@pytest.mark.parametrize("levels", range(4))
def test_json_within_json_is_not_a_hiding_place(levels):
    for ascii_only in (True, False):
        text, hidden = f"it is {ODD}!", f"it is {HIDDEN}!"
        for _ in range(levels):
            text = json.dumps({"text": text}, ensure_ascii=ascii_only)
            hidden = json.dumps({"text": hidden}, ensure_ascii=ascii_only)
        assert through(Redactor([ODD]), text.encode() + b"\n").decode() == f"{hidden}\n"


def test_nor_are_addresses():
    for form in (quote(ODD, safe=""), ODD.replace("/", "\\/")):
        assert through(Redactor([ODD]), f"a?k={form}&b\n".encode()).decode() == f"a?k={HIDDEN}&b\n"


def test_of_two_that_begin_alike_all_of_the_longer_one_is_hidden():
    shown = through(Redactor(["secret-1", "secret-1-and-more"]), b"secret-1-and-more secret-1\n")
    assert shown.decode() == f"{HIDDEN} {HIDDEN}\n"


def test_each_line_of_a_secret_is_one():
    key = "-----BEGIN-----\nabcdefghij\nklmnopqrst\n-----END-----"
    shown = through(Redactor([key]), f"{key}\n".encode())
    assert b"abcdefghij" not in shown and b"klmnopqrst" not in shown
    assert b"abcdefghij" not in through(Redactor([key]), json.dumps(key).encode())


def test_tokens_are_known_by_their_form():
    shown = through(Redactor(), f"{TOKEN} x{TOKEN} {TOKEN}9 1.2.3 a.b.c\n".encode()).decode()
    assert shown.startswith("1q22pqqjp2tt.12.… x1q22pqqjp2tt")
    assert shown.endswith("1.2.3 a.b.c\n")


def test_short_words_are_not_secrets():
    assert through(Redactor(["abc", ""]), b"abc\n") == b"abc\n"


@pytest.mark.parametrize("key", [KEY, KEY * 5])
def test_a_line_without_an_end_is_given_on_in_pieces(monkeypatch, key):
    monkeypatch.setattr(transcript_writer, "HELD", 100)
    dice = random.Random(7)
    redactor, text = Redactor([key]), (("x" * 40 + key) * 200).encode()
    shown, place, largest = b"", 0, 0
    while place < len(text):
        size = dice.randint(1, 90)
        shown += redactor.feed(text[place : place + size])
        place += size
        largest = max(largest, len(redactor._held))
    shown += redactor.end()
    assert shown == text.replace(key.encode(), HIDDEN.encode())
    assert largest <= 100 + 2 * max(len(key), MAX_TOKEN_LENGTH) + 90


def test_addresses_hold_passwords():
    assert secrets_in(["http://me:hush-hush@proxy:1"]) == {
        "http://me:hush-hush@proxy:1",
        "hush-hush",
    }
    assert secrets_in(["plain"]) == {"plain"}


class Pipe:
    def __init__(self, path, secrets=()):
        self.lines: list[str] = []
        self.path = path
        self.transcript = TranscriptWriter(str(path), secrets, self.lines.append)
        self.channel, self.writing = self.transcript.pipe()

    def write(self, data):
        while data:
            data = data[os.write(self.writing, data[: 1 << 15]) :]
            assert self.channel.read()

    def end(self):
        os.close(self.writing)
        assert not self.channel.read()
        self.channel.close()
        self.transcript.close()
        return self.path.read_bytes()


def test_lines_are_heard_when_they_are_whole(tmp_path):
    pipe = Pipe(tmp_path / "t.log", [KEY])
    pipe.write(b'{"a": ')
    assert pipe.lines == []
    pipe.write(f'"{KEY}"}}\nand\nsome more'.encode())
    assert pipe.lines == [f'{{"a": "{HIDDEN}"}}', "and"]
    assert pipe.end().endswith(b"some more")
    assert pipe.lines[-1] == "some more"


def test_what_is_not_text_does_no_harm(tmp_path):
    pipe = Pipe(tmp_path / "t.log")
    pipe.write(b"\xff\xfe\0\n\n")
    assert pipe.end() == b"\xff\xfe\0\n\n"
    assert len(pipe.lines) == 2


def test_an_endless_line_is_kept_but_not_listened_to(tmp_path, monkeypatch):
    monkeypatch.setattr(transcript_writer, "MAX_LINE_LENGTH", 200_000)
    pipe = Pipe(tmp_path / "t.log")
    for _ in range(30):
        pipe.write(b"x" * 50_000)
        assert len(pipe.channel._line) <= 200_000 + (1 << 17)
    pipe.write(b"\nheard again\n")
    assert len(pipe.end()) == 30 * 50_000 + 13
    assert pipe.lines == ["heard again"]


def test_nor_at_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(transcript_writer, "MAX_LINE_LENGTH", 200_000)
    pipe = Pipe(tmp_path / "t.log")
    pipe.write(b"x" * 400_000)
    pipe.end()
    assert pipe.lines == []


def test_what_is_closed_twice_is_closed_once(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    pipe = Pipe(tmp_path / "t.log")
    pipe.write(b"unfinished")
    pipe.end()
    assert len(os.listdir("/proc/self/fd")) == before
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]  # they get the same numbers
    pipe.channel.close()
    pipe.transcript.close()
    for handle in others:
        os.close(handle)
    assert pipe.lines == ["unfinished"]


def test_a_full_disk_does_not_end_the_agent(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    lines: list[str] = []
    written = TranscriptWriter("/dev/full", (), lines.append)
    channel, writing = written.pipe()
    os.write(writing, b"a\nb\n")
    assert channel.read() and lines == ["a", "b"]
    os.close(writing)
    channel.close()
    written.close()


def test_the_file_is_the_users_alone(tmp_path):
    pipe = Pipe(tmp_path / "t.log")
    pipe.end()
    assert (tmp_path / "t.log").stat().st_mode & 0o777 == 0o600


def test_what_has_grown_is_looked_at_where_it_has_grown(monkeypatch):
    redactor, looked = Redactor(["sk-0123456789"]), []
    clean = redactor.clean

    def watched(text):
        looked.append(len(text))
        return clean(text)

    monkeypatch.setattr(redactor, "clean", watched)
    said = "x" * 100_000 + "sk-01234"
    assert redactor.clean_more(said + "56789 and on", said).endswith("x[hidden] and on")
    assert looked[0] < 200, "not all of it for each line"
    assert redactor.clean_more("sk-0123456789", "other") == "[hidden]"
