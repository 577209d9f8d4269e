"""Values in front matter: written and read back as the same text, number or list."""

from __future__ import annotations

import datetime

import pytest
import yaml

from hypervisor.inputs.task_files.markdown import parse, with_fields
from tests.inputs.task_files.nasty_files import parser

__all__ = ["parser"]


READ_OTHERWISE = [
    "yes",
    "No",
    "on",
    "y",
    "N",
    "true",
    "null",
    "~",
    "",
    " ",
    "1",
    "1.0",
    "-1",
    "+1",
    ".5",
    "1e5",
    "0x1f",
    "0o17",
    "017",
    "1_000",
    "12:30",
    "1:2:3",
    ".inf",
    "-.INF",
    ".nan",
    "2024-01-31",
    "2024-01-31 10:00:00",
    "2024-01-31T10:00:00Z",
    "a: b",
    "a:",
    ":a",
    "a #b",
    "#a",
    "@a",
    "`a",
    "%a",
    "&a",
    "*a",
    "!a",
    "|",
    ">",
    "-",
    "- a",
    "--- a",
    "---",
    "...",
    "?",
    "? a",
    "'a",
    '"a',
    "[a",
    "a]",
    "{a",
    "a, b",
    "<<",
    "=",
    "a\nb",
    "a\tb",
    "a\rb",
    "\ta",
    "a ",
    " a",
    "a\x85b",
    "a\u2028b",
    "\ufeffa",
    "a\x00b",
    "\x1b[1m",
    "\u202eabc",
    "[[project]]",
    "it's",
    'say "x"',
    "\\",
    "😀",
    "𝒳: 𝒴",
    "a" * 5000,
]


@pytest.mark.parametrize("value", READ_OTHERWISE)
def test_text_is_read_back_as_this_text(value):
    for old in ("a", "'a'", '"a"', ""):
        data = f"---\nx: {old}\nlast: 1\n---\n".encode()
        after = with_fields(data, {"x": value, "list": [value], "map": {"k": value}})
        wanted = {"x": value, "last": 1, "list": [value], "map": {"k": value}}
        assert parse(after).fields == wanted
        inner = after.split(b"---\n")[1] if b"--- a" not in after else after[4:-4]
        assert yaml.safe_load(inner.removesuffix(b"---\n")) == wanted, "to other readers, too"
        assert len(after.splitlines()) == 6


def test_plain_text_is_written_without_quotes():
    after = with_fields(b"", {"a": "done", "b": "a b-c/d.md", "c": "http://x.y/z", "d": "T-12."})
    assert after == b"---\na: done\nb: a b-c/d.md\nc: http://x.y/z\nd: T-12.\n---\n"


def test_dates_are_iso_text():
    moment = datetime.datetime(2024, 1, 31, 10, tzinfo=datetime.UTC)
    after = with_fields(b"", {"d": datetime.date(2024, 1, 5), "m": moment})
    assert after == b"---\nd: 2024-01-05\nm: 2024-01-31T10:00:00+00:00\n---\n"
    assert parse(after).fields == {"d": "2024-01-05", "m": "2024-01-31T10:00:00+00:00"}
    assert with_fields(after, {"d": "2024-01-05", "m": moment}) == after
    assert (
        parse(b"---\na: 2024-1-5\nb: 2024-13-45\n2024-01-01: x\n---\n").fields["b"] == "2024-13-45"
    )


def test_values_are_what_json_can_hold():
    text = (
        b"---\na: .nan\nb: -.inf\nc: 007\nd: 12:30\ne: 0x1F\nf: 1_0\ng: !!binary aGk=\nh: 1e400\n"
    )
    text += (
        b"i: " + b"9" * 5000 + b"\nj: !!set {x, y}\nk: !!python/name:os.system x\n1: a\nyes: b\n"
    )
    fields = parse(text + b"l: !!int abc\nm: !!float x\nn: !!bool x\no: 1.5e+400\n---\n").fields
    assert fields == {
        "a": ".nan",
        "b": "-.inf",
        "c": "007",
        "d": "12:30",
        "e": 31,
        "f": 10,
        "g": "aGk=",
        "h": "1e400",
        "i": "9" * 5000,
        "j": {"x": None, "y": None},
        "k": "x",
        "1": "a",
        "yes": "b",
        "l": "abc",
        "m": "x",
        "n": False,
        "o": "1.5e+400",
    }


def test_equal_is_equal_in_kind():
    data = b"---\na: 1\nb: true\nc: 1.0\nd: '1'\n---\n"
    assert with_fields(data, {"a": 1, "b": True, "c": 1.0, "d": "1"}) == data
    assert with_fields(data, {"a": True}) == data.replace(b"a: 1", b"a: true")
    assert with_fields(data, {"b": 1}) == data.replace(b"b: true", b"b: 1")
    assert with_fields(data, {"a": "1"}) == data.replace(b"a: 1", b"a: '1'")
