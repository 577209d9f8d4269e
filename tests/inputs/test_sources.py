"""Bad rows are reported with their location and left out; the others are not affected."""

import csv
import io
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs import sources
from hypervisor.inputs.items import read_items
from hypervisor.inputs.sources import FORMATS, guess_format, open_file, read_tasks
from hypervisor.queue.task import NewTask


def read(data, form, null=False):
    bad = []
    data = data.encode() if isinstance(data, str) else data
    items = read_items(io.BytesIO(data), form, null, lambda *each: bad.append(each), "in.csv")
    return [item.text for item in items], bad


@pytest.mark.parametrize(
    "form, data, good, lines",
    [
        ("lines", b"a\n\xff\nb\nc\0d\ne", "a\udcffbe", [4]),
        ("lines", b"\0\na", "a", [1]),
        ("jsonl", '"a"\n{\n\n"b"\nnull\n""\n{"item": "c", "x": NaN}\n"d"', "abd", [2, 5, 6, 7]),
        ("jsonl", b'"a"\n"\xff"\n"b"', "ab", [2]),
        ("csv", "x,y\na,1\nb\nc,1,2\n,3\nd,4\n", "ad", [3, 4, 5]),
        ("csv", b"x,y\na,1\n\xff,2\nb,3\n", "ab", [3]),
        ("csv", b'x,y\na,"1\n\xff\n2"\nb,3\n', "b", [3]),
        ("csv", 'x,y\na,1\n"b"c,2\nd,3\n', "ad", [3]),
        ("csv", 'x,y\na,"1\nb,2\nc,3\n', "bc", [2]),
        ("csv", 'x,y\na,"1\nb,"2"\nc,3\n', "bc", [2]),
        ("csv", 'x,y\r\na,"1\r\nb,"2\r\nc,"3\r\nd,4', "d", [2, 3, 4]),
        ("csv", 'x,y\na,"1\n\n"2,3\nb,4\n', "b", [2, 4]),
        ("csv", "x,y\ra,1\rb\rc,2\r", "ac", [3]),
    ],
)
def test_bad_rows_do_not_stop_the_rest(form, data, good, lines):
    found, bad = read(data, form)
    assert found == list(good)
    assert [place for place, _ in bad] == [f"in.csv, line {line}" for line in lines]
    assert all("Nothing was" not in why and why.endswith(".") for _, why in bad)


def test_nul_ended_items():
    found, bad = read(b"a\0\xff\0b\0", "lines", null=True)
    assert found == ["a", "\udcff", "b"] and bad == []


@pytest.mark.parametrize("data", [b"\xff,b\na,1\n", b'"a\nb,1\n', b"a,a\n1,2\n", b'"a"b\n1\n'])
def test_without_a_header_there_is_nothing_to_go_on_with(data):
    with pytest.raises(InvalidInput, match="line 1: "):
        read(data, "csv")


def test_formats_that_are_not_of_files():
    for form in ("maildir", "tasks"):
        with pytest.raises(InvalidInput, match=f"the format {form} needs a folder"):
            read("", form)


def test_guessing():
    names = ("a.jsonl", "a.NDJSON", "a.csv", "a.mbox", "a.txt", "mbox")
    assert [guess_format(name) for name in names] == [
        "jsonl",
        "jsonl",
        "csv",
        "mbox",
        "lines",
        "lines",
    ]


@pytest.mark.parametrize("form", [each for each in FORMATS if each not in sources.TABLES])
def test_tasks_are_not_added_from_mails(form):
    with pytest.raises(InvalidInput, match=f"cannot add tasks from {form}"):
        read_tasks(io.BytesIO(b"From x\n"), form, NewTask(""))


def test_adding_is_all_or_nothing():
    with pytest.raises(InvalidInput, match=r"line 3: .* Nothing was added"):
        list(read_tasks(io.BytesIO(b"title,key\na,1\nb\nc,3\n"), "csv", NewTask("")))


LONG = 100  # for tests: what is too long is cut there


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(sources, "MAX_LINE_LENGTH", LONG)
    monkeypatch.setattr(sources, "SMALL_BLOCK", 16)
    monkeypatch.setattr(sources, "BLOCK", 16)


@pytest.mark.parametrize(
    "form, begin, end",
    [
        ("lines", "", "\n"),
        ("lines", "", "\0"),
        ("csv", "x\n", "\n"),
        ("csv", "x\n", "\r\n"),
        ("csv", "x\r", "\r"),
    ],
)
@pytest.mark.parametrize("length", [LONG - 2, *range(LONG, LONG + 40), 1_000])
def test_a_long_line_is_passed_over(short, form, begin, end, length):
    data = begin + end.join(["a", "y" * length, "b", "z" * length, "c"])
    found, bad = read(data, form, null=end == "\0")
    fine = length + (form == "csv" or end == "\n") * len(end) <= LONG
    assert found == (["a", "y" * length, "b", "z" * length, "c"] if fine else ["a", "b", "c"])
    first = bool(begin)
    places = [] if fine else [f"in.csv, line {2 + first}", f"in.csv, line {4 + first}"]
    assert [place for place, _ in bad] == places


def test_a_row_of_many_lines_is_limited(short):
    rows = 'x,y\n1,"' + "a\n" * 200 + '"\n2,b\n'
    found, bad = read(rows, "csv")
    assert found[-1] == "2" and bad[0] == ("in.csv, line 2", "too long (maximum 100 bytes).")


ROWS = st.lists(
    st.lists(st.text(st.sampled_from('ab",\n\r '), min_size=1), min_size=2, max_size=2), max_size=20
)


@given(ROWS, st.sampled_from(["\n", "\r\n", "\r"]))
def test_csv_as_others_read_it(rows, end):
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([["one", "two"], *rows])
    found, bad = read(text.getvalue(), "csv")
    assert found == [row[0] for row in rows] and bad == []


CELL = st.sampled_from(['"', ",", "\n", "\r", "a", '""', '","', "\xff", "ü"])


@settings(max_examples=500)
@given(st.lists(CELL).map("".join))
def test_any_rows_are_read_or_reported(text):
    """Each line is in a good row or in a bad one that is reported once, in order; both passes
    agree."""
    data = b"x,y\n" + text.encode("latin-1" if "\xff" in text else "utf-8")
    found, bad = read(data, "csv")
    assert read(data, "csv") == (found, bad)
    lines = [int(place.rpartition(" ")[2]) for place, _ in bad]
    assert lines == sorted(set(lines))


def test_good_rows_behind_any_broken_one():
    broken = ['"', 'a,"b', '"a"b,c', "a", "a,b,c", '"a\n"b"', "\xff,1", '"' + "x" * 5_000_000]
    for row in broken:
        data = f"x,y\n1,2\n{row}\n3,4\n5,6\n".encode("latin-1")
        found, bad = read(data, "csv")
        assert found[0] == "1" and found[-2:] == ["3", "5"], row[:10]
        assert bad and bad[0][0] == "in.csv, line 3"


def test_hostile_quotes_take_linear_time_and_little_memory():
    data = b"x,y\n" + b'a","b","\n' * 50_000
    started = time.process_time()
    tracemalloc.start()
    try:
        bad = []
        for _ in read_items(io.BytesIO(data), "csv", bad=lambda *each: bad.append(1)):
            pass
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bad and time.process_time() - started < 30
    assert used < 50_000_000


@pytest.mark.parametrize(
    "form, line, first",
    [
        ("lines", b"\0 some/folder/%d\n", b""),
        ("jsonl", b'{"a": %d\n', b""),
        ("csv", b"%d\n", b"a,b\n"),
        ("csv", b'"%d\n', b"a,b\n"),
    ],
)
def test_memory_stays_flat_however_many_are_bad(form, line, first):
    file = io.BytesIO(first + b"".join(line % n for n in range(20_000)))
    count = 0

    def bad(place, why):
        nonlocal count
        count += 1

    tracemalloc.start()
    try:
        assert list(read_items(file, form, bad=bad, name="x")) == []
        assert count >= 19_999 and tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form, null", [("lines", False), ("lines", True), ("csv", False)])
def test_memory_stays_flat_however_long_a_line_is(monkeypatch, form, null):
    monkeypatch.setattr(sources, "MAX_LINE_LENGTH", 1_000)
    file = io.BytesIO(b"a\n" * (form == "csv") + b"x" * 20_000_000)
    tracemalloc.start()
    try:
        assert list(read_items(file, form, null, lambda *each: None)) == []
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_only_regular_files_are_opened(tmp_path):
    import os

    (tmp_path / "a").write_bytes(b"x")
    with open_file(str(tmp_path / "a")) as file:
        assert file.read() == b"x"
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("pipe", "."):
        with pytest.raises(InvalidInput, match="not a regular file"):
            open_file(str(tmp_path / name))
    assert len(os.listdir("/proc/self/fd")) == before
