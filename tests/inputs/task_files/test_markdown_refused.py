"""Front matter that is refused: invalid, other encodings, bombs, values that YAML does not have."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.task_files.markdown import parse, with_fields
from tests.inputs.task_files.nasty_files import parser

__all__ = ["parser"]


INVALID = {
    "unclosed": ("---\na: 1\n", 1),
    "bad indent": ("---\na: 1\n b: 2\n---\n", 3),
    "tab indent": ("---\na:\n\tb: 2\n---\n", 3),
    "two colons": ("---\nx: 1\ny: 2\na: b: c\n---\n", 4),
    "open quote": ('---\na: "x\nb: 1\n---\n', None),
    "open list": ("---\na: [1, 2\n---\n", None),
    "two documents": ("---\na: 1\n--- x\n---\n", 3),
    "unknown alias": ("---\na: 1\nb: *x\n---\n", 3),
    "a list": ("---\n- a\n---\n", 2),
    "a text": ("---\nonly words\n---\n", 2),
    "control character": ("---\na: 1\nb: \x07\n---\n", 3),
    "nul": ("---\r\na: 1\r\nb: \x00\r\n---\r\n", 3),
    "duplicate": ("---\na: 1\nb: 2\na: 1\n---\n", 4),
    "duplicate, quoted": ("---\na: 1\n'a': 2\n---\n", 3),
    "duplicate inside": ("---\nx:\n  a: 1\n  a: 2\n---\n", 4),
    "list as key": ("---\n? [a]\n: 1\n---\n", 2),
    "merged text": ("---\na: 1\n<<: text\n---\n", 3),
    "directive": ("---\n%YAML 1.1\na: 1\n---\n", None),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_is_refused_with_its_line(name):
    text, line = INVALID[name]
    for call in (parse, lambda data: with_fields(data, {"a": 5, "new": 1})):
        with pytest.raises(InvalidInput) as refused:
            call(text.encode())
        assert "line " in str(refused.value) and "not changed" in str(refused.value)
        if line is not None:
            assert str(refused.value).startswith(f"line {line}:"), refused.value


@pytest.mark.parametrize("place", ["---\na: %\n---\n", "---\na: 1\n---\nbody\n%"])
def test_other_encodings_are_refused(place):
    line = place[: place.index("%")].count("\n") + 1
    for call in (parse, lambda data: with_fields(data, {"b": 1})):
        with pytest.raises(InvalidInput, match=f"^line {line}: .*UTF-8"):
            call(place.replace("%", "é").encode("latin-1"))
    with pytest.raises(InvalidInput):
        parse("---\na: 1\n---\n".encode("utf-16"))


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
BOMBS = {
    "aliases": LAUGHS,
    "long text again and again": f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 1000)}]\n",
    "itself": "a: &a [*a]\n",
    "itself, merged": "a: &a\n  <<: *a\n",
    "brackets": "a: " + "[" * 100_000,
    "dashes": "- " * 100_000 + "a",
    "mappings": "{a: " * 50_000,
    "questions": "? " * 100_000,
    "a bit too deep": "a: " + "[" * 101 + "]" * 101 + "\n",
    "too large": "a: 1\n" * 60_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(name):
    for call in (parse, lambda data: with_fields(data, {"status": "x"})):
        with pytest.raises(InvalidInput):
            call(f"---\n{BOMBS[name]}\n---\n".encode())


def test_what_is_deep_but_not_too_deep_is_read():
    deep = parse(b"---\na: " + b"[" * 99 + b"]" * 99 + b"\n---\n").fields["a"]
    for _ in range(98):
        (deep,) = deep
    assert deep == []


def test_a_shared_value_is_not_changed_for_others():
    data = b"---\na: &x one\nb: *x\n---\n"
    for changes in ({"a": "two"}, {"a": None}):
        with pytest.raises(InvalidInput, match=r"^a: .*edit it yourself"):
            with_fields(data, changes)
    with pytest.raises(InvalidInput):
        with_fields(b"---\nx: &x {k: 1}\n<<: *x\n---\n", {"k": None})
    assert with_fields(b"---\na: &x one\n---\n", {"a": "two"}) == b"---\na: two\n---\n"


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), float("nan"), "\ud800", {1: 2}])
def test_values_that_yaml_does_not_have_are_refused(value):
    with pytest.raises(InvalidInput):
        with_fields(b"---\na: 1\n---\n", {"a": value})


@pytest.mark.parametrize("key", ["", " ", "a\nb", "x" * 201, "\ud800", 7])
def test_names_that_are_none_are_refused(key):
    with pytest.raises(InvalidInput):
        with_fields(b"---\na: 1\n---\n", {key: 1})
