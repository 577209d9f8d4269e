"""Front matter: whatever an edit is not about survives byte for byte."""

from __future__ import annotations

import datetime
import time

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.task_files import front_matter
from hypervisor.inputs.task_files.markdown import Document, parse, with_body_line, with_fields

# Each line marked «…» is the value that the test replaces; everything around it must survive.
NASTY = {
    "plain": "---\nstatus: «active»\n---\nbody\n",
    "comments": "---\n# top\nstatus:   «active»  # why, ever\n  # odd\nb: 2 # end\n# last\n---\n",
    "crlf": "---\r\na: 1\r\nstatus: «active»\r\nb: 2\r\n---\r\nbody\r\n",
    "mixed line ends": "---\r\na: 1\nstatus: «active»\r\nb: 2\n---\nx\r\ny\rz",
    "old line ends": "---\ra: 1\rstatus: «active»\rb: 2\r---\rbody\r",
    "no trailing newline": "---\nstatus: «active»\n---\nbody",
    "ends with the mark": "---\nstatus: «active»\n---",
    "byte order mark": "\ufeff---\nstatus: «active»\n---\nbody\n",
    "mark and astral": "\ufeff---\n😀: 𝒳𝒴 # 𝔷\nstatus: «active» # 😀\nb: é\n---\n😀\n",
    "tabs": "---\na:\t1\nstatus:\t«active»\t# tab\t\n---\n\tcode\n",
    "marks in the body": "---\nstatus: «active»\n---\na\n---\nstatus: no\n---\n...\n",
    "dots end it": "---\nstatus: «active»\n...\nbody\n---\n",
    "spaces behind the marks": "--- \t\nstatus: «active»\n---\t \nbody\n",
    "double quotes": '---\na: "x"\nstatus: «"active"» # c\n---\n',
    "single quotes": "---\nstatus: «'active'»\nb: 'it''s'\n---\n",
    "quoted key": '---\n"status": «active»\n---\n',
    "quotes over lines": '---\nstatus: «"act\n  ive"»\nb: 1\n---\n',
    "literal": "---\nstatus: «|\n  one\n  # no comment\n\n  two»\n\n# comment\nb: 1\n---\n",
    "literal keeps": "---\nstatus: «|+\n  one»\n\n\nb: 1\n---\n",
    "folded last": "---\na: 1\nstatus: «>-\n  one\n  two»\n---\nbody",
    "plain over lines": "---\nstatus: «one\n  two\n  three»\nb: 1\n---\n",
    "flow list": "---\nstatus: «[a, 'b, c', # x\n  d]» # y\nb: 1\n---\n",
    "flow mapping": "---\nstatus: «{a: 1, b: [2]}»\nb: 1\n---\n",
    "all in flow": '---\n{a: 1, status: «active», "b":2}\n---\n',
    "json": '---\n{"a":[1],"status":«"active"»,"b":{"c":null}}\n---\n',
    "alias": "---\na: &x one\nstatus: «*x»\nb: *x\n---\n",
    "anchor elsewhere": "---\na: &x\n  - 1\nstatus: «active»\nb: *x\nc: {<<: {d: 1}}\n---\n",
    "merge": "---\nbase: &b {k: 1, status: old}\nstatus: «active»\n<<: *b\n---\n",
    "tag": "---\nstatus: «!!str 12»\nb: !custom {x: 1}\n---\n",
    "empty": "---\na: 1\nstatus:« »\nb: 2\n---\n",
    "empty with comment": "---\nstatus:« »# to do\nb: 2\n---\n",
    "null": "---\nstatus: «~» # none\n---\n",
    "indented": "---\n  a: 1\n  status: «active»\n  b: 2\n---\n",
    "explicit key": "---\n? status\n: «active»\n? b\n: 1\n---\n",
    "value on its own line": "---\nstatus:\n  «active» # here\nb: 1\n---\n",
    "looks like more": "---\na: 'status: 1'\nb: |\n  status: 2\nstatus: «active»\n---\nstatus: 3\n",
    "separators": '---\na: "x\u2028y\u0085z"\nstatus: «active»\nb: 1\n---\n\u2028\n',
}


def split(marked):
    head, _, rest = marked.partition("«")
    old, _, tail = rest.partition("»")
    return head, old, tail


def front(data):
    place = front_matter.find_front_matter(data)
    assert place is not None
    return place


@pytest.fixture(params=["C", "Python"], autouse=True)
def parser(request, monkeypatch):
    """With either parser of PyYAML: the one in C is not everywhere."""
    if request.param == "C":
        assert front_matter.loader() is yaml.CSafeLoader
    else:
        if "tabs" in request.node.name:
            pytest.skip("the parser in Python refuses tabs behind a colon")
        monkeypatch.delattr(yaml, "CSafeLoader")
        assert front_matter.loader() is yaml.SafeLoader


@pytest.mark.parametrize("name", NASTY)
class TestNasty:
    def test_only_the_value_changes(self, name):
        head, old, tail = split(NASTY[name])
        before = (head + old + tail).encode()
        after = with_fields(before, {"status": "done"}).decode()
        assert after.startswith(head) and after.endswith(tail.lstrip(" "))
        middle = after[len(head) : len(after) - len(tail)]
        assert middle.strip() in ("done", "'done'", '"done"')
        assert parse(after.encode()).fields == {**parse(before).fields, "status": "done"}

    def test_an_equal_value_changes_nothing(self, name):
        data = "".join(split(NASTY[name])).encode()
        document = parse(data)
        settable = {key: value for key, value in document.fields.items() if value is not None}
        assert with_fields(data, settable) == data
        assert with_fields(data, {"absent": None}) == data
        assert with_fields(data, {}) == data

    def test_a_new_field_is_the_last_line(self, name):
        data = "".join(split(NASTY[name])).encode()
        after = with_fields(data, {"assignee": "bot", "size": 1})
        fields = parse(data).fields
        assert parse(after).fields == {**fields, "assignee": "bot", "size": 1}
        assert parse(after).body == parse(data).body
        if "flow" not in name and name != "json":
            place = front(data)
            added = after[place.end : len(after) - len(data) + place.end].decode()
            assert after == data[: place.end] + added.encode() + data[place.end :]
            end = "\r\n" if data[: place.end].endswith(b"\r\n") else chr(data[place.end - 1])
            assert [line.strip(" ") for line in added.split(end)] == [
                "assignee: bot",
                "size: 1",
                "",
            ]

    def test_a_removed_field_takes_only_itself(self, name):
        head, old, tail = split(NASTY[name])
        data = (head + old + tail).encode()
        if name == "merge":
            pytest.skip("the merged value would show")
        after = with_fields(data, {"status": None})
        fields = parse(data).fields
        del fields["status"]
        assert parse(after).fields == fields and parse(after).body == parse(data).body
        kept = [line for line in (head + tail).splitlines() if "status" not in line]
        assert [line for line in after.decode().splitlines() if line in kept][:1] == kept[:1]

    def test_any_value_comes_back(self, name):
        data = "".join(split(NASTY[name])).encode()
        for value in ["yes", "1.0", "a: b", "x #y", "", "l1\nl2", ["a", "b"], [], {"k": [1]}, 2.5]:
            after = with_fields(data, {"status": value})
            assert parse(after).fields == {**parse(data).fields, "status": value}
            assert parse(after).body == parse(data).body


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


def test_a_list_keeps_its_lines():
    data = b"---\r\ntags: # these\r\n  - a # one\r\n  - b\r\n# next\r\nx: 1\r\n---\r\n"
    after = with_fields(data, {"tags": ["c", "d: e"]})
    assert after == data.replace(b"- a # one\r\n  - b", b"- c\r\n  - 'd: e'")
    assert with_fields(data, {"tags": []}) == data.replace(
        b" # these\r\n  - a # one\r\n  - b", b" [] # these"
    )


class TestWithoutFrontMatter:
    def test_is_all_body(self):
        assert parse(b"just text\n---\n") == Document({}, "just text\n---\n", False)
        assert parse(b"") == Document({}, "", False)
        assert parse(b"\n---\na: 1\n---\n").has_front is False
        assert parse("\ufefftext".encode()).body == "text"

    def test_one_is_added_in_front(self):
        assert with_fields(b"text\r\n", {"a": 1}) == b"---\r\na: 1\r\n---\r\ntext\r\n"
        assert with_fields("\ufefftext".encode(), {"a": 1}) == "\ufeff---\na: 1\n---\ntext".encode()
        assert with_fields(b"", {"a": 1}) == b"---\na: 1\n---\n"
        assert with_fields(b"text", {"a": None}) == b"text"

    @pytest.mark.parametrize("data", ["---\n---\nx", "---\n# c\n\n---\n", "---\r\n...\r\n"])
    def test_an_empty_one_is_filled(self, data):
        assert parse(data.encode()).fields == {} and parse(data.encode()).has_front
        after = with_fields(data.encode(), {"a": 1})
        end = "\r\n" if "\r" in data else "\n"
        mark = "..." if "..." in data else "---" + end
        assert after.decode() == (f"a: 1{end}{mark}").join(data.rsplit(mark, 1))


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
        assert "line " in str(refused.value) and "left as it is" in str(refused.value)
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
        with pytest.raises(InvalidInput, match=r"^a: .*by hand"):
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


# How quick values are made depends on who else works here.
ANY_PARSER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab:# '\"é😀-?", min_size=1).filter(str.strip), inner, max_size=3)
    ),
    max_leaves=6,
)


@ANY_PARSER
@given(
    st.dictionaries(st.sampled_from(["status", "tags", "new", "née"]), VALUES, max_size=3),
    st.sampled_from(sorted({*NASTY} - {"tabs"})),
    st.sampled_from(["", "body", "😀\r\n---\r\n"]),
)
def test_whatever_is_written_is_read_back(parser, changes, name, more):
    data = "".join(split(NASTY[name])).encode()
    data += more.encode() if data.endswith((b"\n", b"\r")) else b""
    after = with_fields(data, changes)
    assert parse(after).fields == {**parse(data).fields, **changes}
    assert parse(after).body == parse(data).body
    assert with_fields(after, changes) == after
    place = front(data)
    assert after.startswith(data[: place.start]) and after.endswith(data[place.end :])


PIECES = [
    "a: ",
    "a:",
    "b: ",
    "c",
    "\n",
    "\n",
    "  ",
    "- ",
    "? ",
    ": ",
    "&x ",
    "*x",
    "<<: ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "|\n",
    ">-\n",
    "'q'",
    '"d"',
    " # c",
    "!!str ",
    "!!map\n",
    "1",
    "\r\n",
    "...",
    "---",
    "\u2028",
    "😀",
    "a: &x 1\n",
    "b: *x\n",
    "\ta",
]
ANY_YAML = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
ANY_TEXT = st.text("ab:-#[]{}&*!|>'\"%@ \n\r\t,?.1é😀\ufeff", max_size=40)


@ANY_PARSER
@given(ANY_YAML | ANY_TEXT, VALUES | st.none())
def test_anything_is_edited_or_refused(parser, inner, value):
    """No crash, and no edit that changes another field."""
    data = b"---\n" + inner.encode() + b"\n---\nbody"
    try:
        before = parse(data)
        after = with_fields(data, {"a": value})
    except InvalidInput:
        return
    fields = {**before.fields, "a": value}
    if value is None:
        del fields["a"]
    assert parse(after) == (fields, before.body, True)
    assert with_fields(after, {"a": value}) == after


def test_a_typical_file_takes_well_under_a_millisecond(parser):
    if front_matter.loader() is yaml.SafeLoader:
        pytest.skip("the parser in Python takes ten times as long")
    data = (
        b"---\nid: T-12\ntitle: Mend the parser\ntype: bug\nstatus: active\npriority: 2\n"
        b"project: alpha\ntags: [a, b]\ndepends_on:\n  - T-3\n---\n\nSome text.\n"
    )
    best = 1.0
    for _ in range(200):  # the best of many: others may be using the processor
        start = time.perf_counter()
        parse(data)
        with_fields(data, {"status": "done", "assignee": "bot", "complexity": "low"})
        best = min(best, time.perf_counter() - start)
    assert best < 0.001


class TestBodyLine:
    def test_is_a_paragraph_at_the_end(self):
        assert (
            with_body_line(b"---\na: 1\n---\ntext", "[[p]]") == b"---\na: 1\n---\ntext\n\n[[p]]\n"
        )
        assert with_body_line(b"a\r\n", "[[p]]") == b"a\r\n\r\n[[p]]\r\n"
        assert with_body_line(b"", "[[p]]") == b"[[p]]\n"
        assert with_body_line(b"---\na: 1\n---", "[[p]]") == b"---\na: 1\n---\n[[p]]\n"
        assert with_body_line(b"a\n\n", "[[p]]") == b"a\n\n[[p]]\n"

    def test_stands_above_the_receipts(self):
        data = b"text\n\n## Receipts\n\n- x\n"
        assert with_body_line(data, "[[p]]") == b"text\n\n[[p]]\n\n## Receipts\n\n- x\n"
        data = b"# T\ntext\n## Receipts\nx\n"
        assert with_body_line(data, "[[p]]") == b"# T\ntext\n\n[[p]]\n\n## Receipts\nx\n"

    def test_is_added_once(self):
        once = with_body_line(b"---\np: '[[p]]'\n---\ntext\n## Receipts\n\n- saw [[p]]\n", "[[p]]")
        assert once.count(b"[[p]]") == 3
        assert with_body_line(once, "[[p]]") == once
        assert with_body_line(b"see [[p]] there", "[[p]]") == b"see [[p]] there"

    def test_is_one_line(self):
        for line in ("", " ", "a\nb", "a\rb", "a\u2028b"):
            with pytest.raises(InvalidInput):
                with_body_line(b"x", line)
