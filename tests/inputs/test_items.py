"""The items of a run: read as a stream, refused by line."""

import io
import itertools
import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.items import glob_items, read_items, task_for
from hypervisor.inputs.read_twice import seekable
from hypervisor.inputs.template import Item
from hypervisor.queue.add import check_task
from tests.inputs.some_items import BASE, TEXT, items


def texts(*args, **more):
    return [item.text for item in items(*args, **more)]


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
    assert [item.text for item in items(b"a\0\xff\0", null=True)] == ["a", "\udcff"]
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
        ("lines", "a\n" + LONG * 4, "line 2: too long (maximum 16,777,216 bytes)"),
        ("lines", "a\n" + "é" * 1_000_000, "line 2: the item is too large"),
        ("lines", "a\nb\0c\n", "line 2: the item contains a NUL"),
        ("lines", bytes(range(256)), "line 1: the item contains a NUL"),
        ("lines", "a\n".encode("utf-16"), "line 1: the item contains a NUL"),
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
        ("csv", "a,b\n1,2\n3\n", "line 3: 1 column instead of 2"),
        ("csv", "a,b\n1,2\n3,4,5\n", "line 3: 3 columns instead of 2"),
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
    """A file that needs no memory: it is generated while it is read."""

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


def test_a_link_to_nothing_is_left_out_and_reported(tree):
    (tree / "b2.py").symlink_to(tree / "gone")
    (tree / "b3.py").symlink_to(tree / "b.py")
    with pytest.raises(InvalidInput, match=r"b2\.py is a broken link"):
        list(glob_items("b*.py"))
    bad: list[tuple[str, str]] = []
    found = list(glob_items("b*.py", lambda *problem: bad.append(problem)))
    assert [(item.number, item.text) for item in found] == [(1, "b.py"), (2, "b3.py")]
    assert bad == [("b2.py", "it is a broken link.")]


def test_a_file_name_that_is_not_text(tree):
    with open(os.fsencode(tree) + b"/z\xff.py", "w"):
        pass
    assert list(glob_items("z*.py")) == [Item("z\udcff.py")]


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
