"""The items of a run: read as a stream, refused by line, turned into tasks and back."""

import io
import itertools
import json
import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.core import validate
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.items import glob_items, item_of, occurrences, read_items, seekable, task_for
from hypervisor.inputs.template import Item, parse
from hypervisor.queue.add import check_task
from hypervisor.queue.task import NewTask, Task

BASE = NewTask("", type="convert", data={"run": 1})
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
COLUMNS = st.none() | st.dictionaries(TEXT, JSON, max_size=3)
ITEM = st.builds(Item, TEXT, st.integers(1, 10**9), COLUMNS, st.just(""))


def items(data, form="lines", null=False):
    data = data.encode() if isinstance(data, str) else data
    return list(read_items(io.BytesIO(data), form, null))


def texts(*args, **more):
    return [item.text for item in items(*args, **more)]


def as_task(new):
    """The task as a store gives it back: its data has been JSON in between."""
    data = json.loads(json.dumps(new.data))
    return Task(
        "t1",
        new.title,
        "active",
        new.type,
        new.priority,
        "",
        "",
        "",
        (),
        new.key,
        "",
        data,
        None,
        0,
        0,
        0,
        0,
        0,
        None,
        None,
        None,
        None,
        0,
        0,
    )


@pytest.mark.parametrize(
    "data",
    [
        "a\nb c\n",
        "a\nb c",
        "\ufeffa\r\nb c\r\n",
        "a\n\n \t\n\r\nb c\n\n",
    ],
)
def test_lines(data):
    assert items(data) == [Item("a", 1, None), Item("b c", 2, None)]


def test_lines_keep_all_but_their_end():
    assert texts(" a \n\tb\n-c\n{}\n\u2028x\x0cy\rz\n") == [
        " a ",
        "\tb",
        "-c",
        "{}",
        "\u2028x\x0cy\rz",
    ]


def test_items_that_end_with_nul():
    assert texts("a\nb\0 c \0\0\r\n\0 \0d", null=True) == ["a\nb", " c ", "\r\n", " ", "d"]
    assert texts("\ufeffa\0", null=True) == ["\ufeffa"]  # the name of a file, not a mark
    with pytest.raises(InvalidInput, match="line 2: not valid UTF-8"):
        items(b"a\0\xff\0", null=True)
    for form in ("jsonl", "csv"):
        with pytest.raises(InvalidInput, match=f"are not {form}"):
            items("", form, null=True)


@given(st.lists(TEXT), st.integers(1, 3))
def test_whatever_ends_with_nul_comes_back(given, block):
    class Slow(io.BytesIO):
        def read(self, size=-1, /):
            return super().read(block)

    data = "".join(text + "\0" for text in given).encode()
    assert [item.text for item in read_items(Slow(data), "lines", True)] == given


def test_rows_of_jsonl():
    rows = [
        '{"item": "a", "size": 1}',
        '{"path": "b",  "tags": ["ä", null]}',
        '"c d"',
        " 5 ",
        "-1.50",
        "1e999",
        '{"item": 7}',
        '{"item": null}',
        '{"item": true, "x": {}}',
        "{}",
        '" "',
        '{"x": "\\ud800"}',
    ]
    found = items("\r\n".join(["", *rows, " "]), "jsonl")
    assert [item.text for item in found] == [
        "a",
        '{"path":"b","tags":["ä",null]}',
        "c d",
        "5",
        "-1.50",
        "1e999",
        "7",
        '{"item":null}',
        '{"item":true,"x":{}}',
        "{}",
        " ",
        '{"x":"\\ud800"}',
    ]
    assert [item.number for item in found] == list(range(1, 13))
    assert found[0].columns == {"item": "a", "size": 1}
    assert found[1].columns == {"path": "b", "tags": ["ä", None]}
    assert found[2].columns is found[3].columns is None


def test_rows_of_csv():
    data = '\ufefffile,"the size",,\r\na.txt,1,,\r\n\r\n"b ""c"",\r\nd",,x,y\r\n'
    assert items(data, "csv") == [
        Item("a.txt", 1, {"file": "a.txt", "the size": "1", "": ""}),
        Item('b "c",\r\nd', 2, {"file": 'b "c",\r\nd', "the size": "", "": "y"}),
    ]
    assert texts("a,b\r1,2\r3,4\r", "csv") == ["1", "3"]
    assert texts("a\n1\n2", "csv") == ["1", "2"]


@pytest.mark.parametrize("form", ["lines", "jsonl", "csv"])
@pytest.mark.parametrize("data", ["", "\n", "\ufeff", "\r\n\r\n"])
def test_nothing_in_nothing(form, data):
    assert items(data, form) == []
    assert items("a,b\n", "csv") == []


LONG = "x" * 5_000_000


@pytest.mark.parametrize(
    "form, data, problem",
    [
        ("lines", "a\n" + LONG, "line 2: the item is too long: 5,000,000 characters"),
        ("lines", "a\n" + LONG * 4, "line 2: too long: at most 16,777,216 bytes"),
        ("lines", "a\n" + "é" * 1_000_000, "line 2: the item is too large"),
        ("lines", "a\nb\0c\n", "line 2: the item contains a NUL"),
        ("lines", b"a\n\xff\xfe\n", "line 2: not valid UTF-8"),
        ("lines", bytes(range(256)), "line 1: the item contains a NUL"),
        ("lines", bytes(range(255, 0, -1)), "line 1: not valid UTF-8"),
        ("lines", "a\n".encode("utf-16"), "line 1: not valid UTF-8"),
        ("jsonl", '"a"\n\n{', "line 3: not valid JSON ("),
        ("jsonl", '"a"\nb', "line 2: not valid JSON ("),
        ("jsonl", '"a"\n' + "[" * 100_000, "line 2: not valid JSON ("),
        ("jsonl", '"a"\n' + "9" * 5_000, "line 2: not valid JSON ("),
        ("jsonl", '{"a": 1}{"a": 2}', "line 1: not valid JSON ("),
        ("jsonl", '"a"\n[1]', "line 2: expected a JSON object, string or number"),
        ("jsonl", '"a"\ntrue', "line 2: expected"),
        ("jsonl", '"a"\nnull', "line 2: expected"),
        ("jsonl", '"a"\nNaN', "line 2: expected"),
        ("jsonl", '"a"\n-Infinity', "line 2: expected"),
        ("jsonl", '"a"\n{"x": NaN}', "line 2: the item cannot be kept as JSON"),
        ("jsonl", '"a"\n""', "line 2: the item is empty"),
        ("jsonl", '"a"\n{"item": ""}', "line 2: the item is empty"),
        ("jsonl", '"a"\n"\\u0000"', "line 2: the item contains a NUL"),
        ("jsonl", '"a"\n"\\ud800"', "line 2: the item is not valid Unicode"),
        (
            "jsonl",
            '"a"\n{"x": %s}' % ("[" * 99 + "]" * 99),
            "line 2: the item is nested too deeply",
        ),
        ("jsonl", '"a"\n{"x": "' + LONG + '"}', "line 2: the item is too long"),
        ("jsonl", '"a"\n{"item": "i", "x": "' + LONG + '"}', "line 2: the item is too large"),
        ("jsonl", b'"a"\n"\xff"', "line 2: not valid UTF-8"),
        ("csv", "a,b\n1,2\n3\n", "line 3: its number of cells differs"),
        ("csv", "a,b\n1,2\n3,4,5\n", "line 3: its number of cells differs"),
        ("csv", 'a\n1\n"open', "line 3: not valid CSV ("),
        ("csv", "a\n1\n" + LONG, "line 3: not valid CSV (field larger"),
        ("csv", "a,b\n1,2\n,4\n", "line 3: the item is empty"),
        ("csv", "a,b,a\n1,2,3\n", "line 1: two columns are named 'a'"),
        ("csv", "\n\na,a\n", "line 3: two columns are named 'a'"),
        ("csv", "a,b\n1\0,2\n", "line 2: the item contains a NUL"),
        ("csv", b"a,b\n" + b"1,2\n" * 50 + b"\xff,2\n", "line 52: not valid UTF-8"),
        ("csv", b"\xff\n", "line 1: not valid UTF-8"),
    ],
)
def test_bad_input_is_refused_by_line(form, data, problem):
    with pytest.raises(InvalidInput) as error:
        items(data, form)
    assert str(error.value).startswith(problem) and len(str(error.value)) < 300


def test_unknown_formats():
    with pytest.raises(InvalidInput, match="use one of lines, jsonl, csv"):
        items("", "xml")


@given(st.binary() | st.text().map(str.encode), st.sampled_from(["lines", "jsonl", "csv"]))
def test_any_bytes_are_read_or_refused(data, form):
    try:
        found = items(data, form)
    except InvalidInput:
        return
    for item in found:
        check_task(task_for(item, BASE))


class Stream(io.RawIOBase):
    """A file that nobody has to hold: it is made while it is read."""

    def __init__(self, parts):
        self.parts, self.rest = parts, b""

    def readable(self):
        return True

    def readinto(self, buffer):
        self.rest = self.rest or next(self.parts, b"")
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


@pytest.mark.parametrize(
    "form, line, first, null",
    [
        ("lines", b"some/folder/%d\n", b"", False),
        ("lines", b"some/folder/%d\0", b"", True),
        ("jsonl", b'{"a": %d}\n', b"", False),
        ("csv", b"%d,x\n", b"a,b\n", False),
    ],
)
def test_memory_stays_flat(form, line, first, null):
    count = 20_000
    lines = (first * (n == 0) + line % n for n in range(count))
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_items(io.BufferedReader(Stream(lines)), form, null)) == count
        # Of NUL-ended items a whole block is split at once.
        assert tracemalloc.get_traced_memory()[1] < (4_000_000 if null else 500_000)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form, null", [("lines", False), ("lines", True), ("csv", False)])
def test_a_line_without_end_is_given_up(form, null):
    file = io.BufferedReader(Stream(itertools.repeat(b"x" * 1_000_000)))
    with pytest.raises(InvalidInput, match="line 1: too long"):
        next(read_items(file, form, null))


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name in ("b.py", "a b.py", "new\nline.py", "deep/er/c.py", "deep/.hidden.py", "d.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "folder.py").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_globs_give_files_sorted(tree):
    found = list(glob_items("**/*.py"))
    assert [item.text for item in found] == ["a b.py", "b.py", "deep/er/c.py", "new\nline.py"]
    assert [item.number for item in found] == [1, 2, 3, 4]
    assert [item.text for item in glob_items("**/")] == ["deep/", "deep/er/", "folder.py/"]
    assert [item.text for item in glob_items("*/")] == ["deep/", "folder.py/"]
    for nothing in ("", "no/*", "a\0b", "[", "/nowhere/**"):
        assert list(glob_items(nothing)) == []


def test_a_file_name_that_is_no_text(tree):
    with open(os.fsencode(tree) + b"/z\xff.py", "w"):
        pass
    with pytest.raises(InvalidInput, match=r"not valid Unicode text: 'z\\udcff.py'"):
        list(glob_items("*.py"))


def test_a_pipe_can_be_read_twice_once_it_is_spooled(tmp_path):
    read, write = os.pipe()
    data = b"a\nb\n" * 10_000
    with open(read, "rb") as pipe, open(write, "wb") as end:
        end.write(data)
        end.close()
        assert not pipe.seekable()
        with seekable(pipe, str(tmp_path)) as file:
            for _ in range(2):
                file.seek(0)
                assert sum(1 for _ in read_items(file, "lines")) == 20_000
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("form", ["lines", "jsonl", "csv"])
def test_a_file_is_read_twice_as_it_is(tmp_path, form):
    (tmp_path / "x").write_text('"head"\n"a"\n"b"\n')
    with open(tmp_path / "x", "rb") as file:
        file.readline()
        assert seekable(file) is file
        start = file.tell()
        first = list(read_items(file, form))
        file.seek(start)
        assert list(read_items(file, form)) == first != []


@given(ITEM, st.integers(1, 10**6))
def test_from_item_to_task_and_back(item, occurrence):
    new = task_for(item, BASE, occurrence)
    checked = check_task(new)
    assert item_of(as_task(checked)) == item
    assert new.type == "convert" and new.data["run"] == 1 and BASE.data == {"run": 1}
    assert new.title.strip() and len(new.title.splitlines()) == 1


def test_the_task_of_an_item():
    new = task_for(Item("a  b\nc", 3), BASE)
    assert (new.title, new.key) == ("a b c", "a  b\nc")
    assert new.data == {"run": 1, "item": "a  b\nc", "number": 3}
    new = task_for(Item("a", 3, {"size": "1"}), BASE)
    assert new.title == "a" and new.data["columns"] == {"size": "1"}
    blank = task_for(Item(" \n"), NewTask("x"))
    assert (blank.title, blank.key) == (r"' \n'", " \n #1") and check_task(blank)


@pytest.mark.parametrize("length", [1_999, 2_000, 2_001, 8_091, 8_192, 8_193, 600_000])
def test_long_items_have_short_titles_and_keys(length):
    text = "ä" * length
    new = check_task(task_for(Item(text), BASE, 10**9))
    assert len(new.title) == min(length, validate.LONGEST_TITLE)
    assert new.title.endswith("…") == (length > validate.LONGEST_TITLE)
    assert item_of(as_task(new)).text == text


def key(text, occurrence=1, columns=None, number=1):
    return task_for(Item(text, number, columns), BASE, occurrence).key


def test_the_same_item_has_the_same_key_wherever_it_stands():
    assert key("a", number=1) == key("a", number=2) == "a"
    assert key("a", 2, number=5) == key("a", 2) == "a #2"
    assert key("a", columns={"x": 1, "y": 2}) == key("a", columns={"y": 2, "x": 1}, number=9)
    assert key("x" * 9_000) == key("x" * 9_000, number=2)


def test_keys_that_could_be_mistaken():
    plain = ["a", "a #2", "a #1", "a #2 #1", " ", "  #1", "a #02", "a #٢", "x" * 9_000]
    plain += [key(text, 3) for text in plain] + [key(text, 1, {"x": 1}) for text in plain]
    found = [
        key(text, occurrence, columns)
        for text in plain
        for occurrence in (1, 2, 3, 12)
        for columns in (None, {}, {"x": 1}, {"x": "1"})
    ]
    assert len(set(found)) == len(found) == len(plain) * 16


PAIR = st.tuples(
    st.lists(st.sampled_from(["a", " ", "#", " #", "1", "2", "-", "0" * 32, "{}"]), min_size=1).map(
        "".join
    ),
    st.integers(1, 12),
    st.none() | st.dictionaries(st.sampled_from("ab"), st.sampled_from([1, "1", None])),
)


@given(st.lists(PAIR, max_size=10))
def test_different_items_and_occurrences_never_share_a_key(pairs):
    distinct = {json.dumps(pair, sort_keys=True): pair for pair in pairs}
    assert len({key(*pair) for pair in distinct.values()}) == len(distinct)


def test_occurrences_are_counted_from_one():
    row = {"x": 1}
    given = [Item("a"), Item("b"), Item("a", 3), Item("a", 4, row), Item("a", 5, row), Item("a", 6)]
    assert list(occurrences(given)) == list(zip(given, [1, 1, 2, 1, 2, 3], strict=True))
    assert list(occurrences([])) == []


@given(st.lists(ITEM, max_size=20))
def test_the_same_input_gives_the_same_keys_and_none_twice(given):
    keys = [task_for(item, BASE, n).key for item, n in occurrences(given)]
    assert len(set(keys)) == len(keys)
    assert keys == [task_for(item, BASE, n).key for item, n in occurrences(iter(given))]


@pytest.mark.parametrize("data", [None, 5, [], {}, {"item": 5}, {"item": None}])
def test_a_task_without_an_item(data):
    task = as_task(NewTask("x", key="x", data=data))
    with pytest.raises(InvalidInput, match="the task t1 has no item"):
        item_of(task)


def test_a_task_that_was_added_by_hand_needs_only_an_item():
    assert item_of(as_task(NewTask("x", data={"item": "a"}))) == Item("a", 1, None)


def test_from_a_table_to_commands():
    rows = items("file,size\na b.txt,10\n-c,20\n", "csv")
    template = parse(["resize", "{file}", "--to={size}", "{#}{.}"])
    template.check(rows[0].columns)
    again = [item_of(as_task(task_for(item, BASE))) for item in rows]
    assert [template.render(item) for item in again] == [
        ["resize", "a b.txt", "--to=10", "1a b"],
        ["resize", "-c", "--to=20", "2-c"],
    ]
