"""Many tasks at once: from lines, globs, JSONL, CSV; duplicates reported; nothing half added."""

import json

import pytest

import hypervisor
from hypervisor.core.errors import InvalidInput, StoreFull
from hypervisor.inputs.sources import BadLine
from hypervisor.queue import add as adding


def titles(hv):
    return [task["title"] for task in hv.json("ls")][::-1]


def test_lines_from_stdin_with_duplicates_reported(hv):
    code, out, err = hv("add", "--from", "-", "--title", "Review {}", stdin="a.py\nb.py\n\na.py\n")

    assert (code, out) == (0, "2 added\n")
    assert err.startswith("1 already in the batch, e.g. a.py (")
    assert titles(hv) == ["Review a.py", "Review b.py"]
    task = hv.json("ls")[0]
    assert (task["key"], task["data"]) == ("b.py", {"item": "b.py"})
    again = json.loads(hv("add", "--from", "-", "--json", stdin="a.py\nc.py\n").out)
    assert len(again["ids"]) == 1 and [d["key"] for d in again["duplicates"]] == ["a.py"]


def test_a_title_without_a_place_for_the_item_gets_it_at_the_end(hv):
    hv.ok("add", "--from", "-", "--title", "Look at", stdin="x\n")
    assert titles(hv) == ["Look at x"]


def test_lines_keep_what_the_options_say(hv):
    hv.ok("add", "--from", "-", "--type", "t", "--batch", "b", "--data", '{"a": 1}', stdin="x\n")
    (task,) = hv.json("ls", "--batch", "b", "--type", "t")
    assert task["data"] == {"a": 1, "item": "x"}


@pytest.mark.parametrize("text", ["\ufeffa\r\nb c\r\n", "a\n\n \t\nb c", "a\nb c\n\n\n"])
def test_byte_order_marks_line_ends_and_blank_lines(hv, text):
    hv.ok("add", "--from", "-", stdin=text)
    assert [task["key"] for task in hv.json("ls")] == ["b c", "a"]


def test_items_ended_by_nul_may_contain_anything_else(hv):
    items = ["with\nline break", " with spaces ", "quote's \"", "-dash", "{}"]
    hv.ok("add", "--from", "-", "-0", stdin="\0".join(items) + "\0")
    assert [task["key"] for task in hv.json("ls")][::-1] == items


def test_a_file_is_read_by_its_name(hv):
    (hv.folder / "tasks.jsonl").write_text('{"title": "from jsonl"}\n"from a string"\n')
    (hv.folder / "tasks.csv").write_text("title,priority\nfrom csv,high\n")
    (hv.folder / "list of things.txt").write_text("from lines\n")
    for name in ("tasks.jsonl", "tasks.csv", "list of things.txt"):
        hv.ok("add", "--from", name)
    assert titles(hv) == ["from jsonl", "from a string", "from csv", "from lines"]
    assert hv.json("ls")[1]["priority"] == "high"


def test_a_glob_makes_a_task_of_each_path(hv):
    for name in ("b.py", "a b.py", "new\nline.py", "deep/er/c.py", "d.txt"):
        path = hv.folder / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert hv.ok("add", "--glob", "src/**/*.py", "--batch", "py") == "4 added\n"
    keys = [task["key"] for task in hv.json("ls")][::-1]
    assert keys == ["src/a b.py", "src/b.py", "src/deep/er/c.py", "src/new\nline.py"]
    assert hv("add", "--glob", "src/**/*.py", "--batch", "py").out == "0 added\n"
    assert hv.ok("add", "--glob", "nothing/*") == "0 added\n"


def test_a_glob_takes_files_only(hv):
    (hv.folder / "src" / "folder.py").mkdir(parents=True)
    (hv.folder / "src" / "file.py").touch()
    hv.ok("add", "--glob", "src/**")
    assert [task["key"] for task in hv.json("ls")] == ["src/file.py"]


def test_jsonl_rows_are_tasks_and_what_is_not_a_field_is_data(hv):
    rows = [
        {"title": "one", "key": "k1", "requires": "git", "more": [1, None]},
        {"title": "two", "after": ["k1"], "data": {"x": 1}, "y": 2, "inbox": False, "type": None},
        {"path": "src/a.py"},
    ]
    text = "\n".join(map(json.dumps, rows))
    hv.ok("add", "--from", "-", "--format", "jsonl", "--batch", "b", stdin=text)
    three, two, one = hv.json("ls")
    assert (one["requires"], one["data"]) == (["git"], {"more": [1, None]})
    assert (two["state"], two["data"]) == ("waiting", {"x": 1, "y": 2})
    assert (three["title"], three["data"]) == ("src/a.py", {"path": "src/a.py"})


def test_csv_cells_are_fields_lists_and_numbers(hv):
    text = (
        "\ufefftitle,requires,retries,inbox,size,body\r\n"
        'one,git; docker,2,yes,12,"two\r\nlines, quoted ""so"""\r\n'
        "two,,,,,\r\n"
    )
    hv.ok("add", "--from", "-", "--format", "csv", stdin=text)
    two, one = hv.json("ls")
    assert (one["requires"], one["retries"], one["state"]) == (["docker", "git"], 2, "inbox")
    assert (one["data"], one["body"]) == ({"size": "12"}, 'two\r\nlines, quoted "so"')
    assert (two["requires"], two["retries"], two["data"]) == ([], 0, None)


def test_a_large_cell_is_kept(hv):
    body = "x" * 1_000_000
    hv.ok("add", "--from", "-", "--format", "csv", stdin=f"title,body\nt,{body}\n")
    assert hv.json("ls")[0]["body"] == body


@pytest.mark.parametrize("form", ["lines", "jsonl", "csv"])
@pytest.mark.parametrize("text", ["", "\n", "\ufeff", "\r\n\r\n"])
def test_nothing_in_nothing_added(hv, form, text):
    assert hv.ok("add", "--from", "-", "--format", form, stdin=text) == "0 added\n"


def test_a_header_alone_adds_nothing(hv):
    assert hv.ok("add", "--from", "-", "--format", "csv", stdin="title,body\n") == "0 added\n"


GOOD = '{"title": "fine"}\n'


@pytest.mark.parametrize(
    "form, text, line",
    [
        ("jsonl", GOOD + "{", "line 2: not valid JSON"),
        ("jsonl", GOOD + "5", "line 2: expected a JSON object or string"),
        ("jsonl", GOOD + "null", "line 2: expected"),
        ("jsonl", GOOD + "[" * 100_000, "line 2: not valid JSON"),
        ("jsonl", GOOD + '{"title": ""}', "line 2: the title is empty"),
        ("jsonl", GOOD + '{"title": 5}', "line 2: the title must be text"),
        ("jsonl", GOOD + '{"title": "x", "priority": []}', "line 2: unknown priority '[]'"),
        ("jsonl", GOOD + '{"title": "x", "priority": "HIGH"}', "line 2: unknown priority 'HIGH'"),
        ("jsonl", GOOD + '{"title": "x", "retries": 1.5}', "line 2: retries must be a whole"),
        ("jsonl", GOOD + '{"title": "x", "retries": true}', "line 2: retries must be a whole"),
        ("jsonl", GOOD + '{"title": "x", "retries": 1e999}', "line 2: retries must be a whole"),
        ("jsonl", GOOD + '{"title": "x", "start_at": "soon"}', "line 2: invalid time 'soon'"),
        ("jsonl", GOOD + '{"title": "x", "inbox": "no"}', "line 2: inbox must be true or false"),
        ("jsonl", GOOD + '{"title": "x", "requires": 5}', "line 2: requires must be a list"),
        ("jsonl", GOOD + '{"title": "x", "requires": ["a b"]}', "line 2: requires: 'a b' must"),
        ("jsonl", GOOD + '{"title": "x", "requires": [[]]}', "line 2: requires: must be text"),
        ("jsonl", GOOD + '{"title": "x", "data": 5, "y": 1}', "line 2: data must be an object"),
        ("jsonl", GOOD + '{"title": "x", "data": NaN}', "line 2: data cannot be kept as JSON"),
        ("jsonl", GOOD + '{"title": "x", "y": Infinity}', "line 2: data cannot be kept as JSON"),
        ("jsonl", GOOD + '{"title": "x\\u0000"}', "line 2: the title contains a NUL"),
        ("jsonl", GOOD + '{"title": "\\ud800"}', "line 2: the title is not valid Unicode"),
        ("jsonl", GOOD + '{"title": "x", "key": 5}', "line 2: the key must be text"),
        ("jsonl", GOOD + '{"title": "x", "y": %s}' % ("[" * 101 + "]" * 101), "too deeply"),
        ("csv", "title,body\na,b\nc\n", "line 3: 1 column instead of 2"),
        ("csv", "title,body\na,b,c\n", "line 2: 3 columns instead of 2"),
        ("csv", 'title\na\n"open', "line 3: not valid CSV"),
        ("csv", "title,retries\na,--5\n", "line 2: retries must be a whole number"),
        ("csv", "title,retries\na,9999999\n", "line 2: retries must be between"),
        ("csv", "title,retries\na," + "9" * 5000 + "\n", "line 2: retries must be a whole number"),
        ("csv", "title,body\n,b\na\0,b\n", "line 3: the title contains a NUL"),
        ("csv", "title,priority\na,urgent\n", "line 2: unknown priority 'urgent'"),
        ("csv", "title,data,more\na,text,1\n", "line 2: data must be an object"),
        ("lines", "fine\n" + "x" * 10_000_000, "line 2: the key is too long: 10,000,000"),
        ("lines", "fine\nnul\0inside", "line 2: the key contains a NUL"),
        ("lines", b"fine\n\xff\xfe", "line 2: not valid UTF-8"),
        ("jsonl", GOOD.encode() + b'"\xff"', "line 2: not valid UTF-8"),
        ("csv", b"title\nfine\n\xff\n", "not valid UTF-8"),
        ("lines", "fine\n".encode("utf-16"), "line 1: not valid UTF-8"),
    ],
)
def test_one_bad_line_and_nothing_is_added(hv, form, text, line):
    said = hv.refused(2, "add", "--from", "-", "--format", form, stdin=text)
    assert line in said and "Nothing was added" in said


@pytest.mark.parametrize("option", ["--from", "--body"])
def test_files_that_cannot_be_read(hv, option):
    (hv.folder / "a folder").mkdir()
    (hv.folder / "binary").write_bytes(bytes(range(255, 0, -1)))
    title = [] if option == "--from" else ["x"]
    at = "@" if option == "--body" else ""
    assert "Is a directory" in hv.refused(2, "add", option, f"{at}a folder", *title)
    assert "No such file" in hv.refused(2, "add", option, f"{at}no such\n\x1b[31mfile", *title)
    assert "not valid UTF-8" in hv.refused(2, "add", option, f"{at}binary", *title)
    hv.refused(2, "add", option, at.encode() + b"\xff\xfe", *title)


def test_a_rehearsal_changes_nothing(hv):
    before = hv.store.read_bytes()
    text = "".join(f"item {n}\n" for n in range(12))
    out = hv.ok("add", "--from", "-", "--batch", "new", "--dry-run", stdin=text)
    assert out.splitlines()[-1] == (
        "12 would be added, 2 of them not shown (dry run: nothing was changed)"
    )
    rows = hv.json("add", "--from", "-", "--dry-run", stdin=text)
    assert len(rows) == 12 and rows[0]["key"] == "item 0"
    assert hv.store.read_bytes() == before


def test_a_refused_add_leaves_no_new_batch_behind(hv):
    hv.refused(4, "add", "x", "--batch", "new", "--after", "zzzzzzzzzzzz")


def test_links_within_one_list_and_their_mistakes(hv):
    rows: list[dict[str, object]] = [
        {"title": "a", "key": "a", "after": ["b"]},
        {"title": "b", "key": "b"},
    ]

    def add(*tasks, batch):
        text = "\n".join(map(json.dumps, tasks))
        return ("add", "--from", "-", "--format", "jsonl", "--batch", batch), text

    args, text = add(*rows, batch="good")
    hv.ok(*args, stdin=text)
    assert [task["state"] for task in hv.json("ls")] == ["active", "waiting"]
    args, text = add(rows[0], {**rows[1], "after": ["a"]}, batch="good2")
    hv.ok("add", "x", "--batch", "good2")
    assert "cycle: a → b → a." in hv.refused(5, *args, stdin=text)
    args, text = add({"title": "c", "after": ["no such key"]}, batch="good")
    assert "has that key, and none has that id" in hv.refused(4, *args, stdin=text)


@pytest.mark.parametrize("after", ["no key, no id", "zz", "zzzzzzzzzzzz"])
def test_waiting_for_what_is_not_there(hv, after):
    line = hv.refused(4, "add", "x", "--after", after)
    assert repr(after) in line and "has that key, and none has that id" in line


def test_a_body_may_begin_with_an_at_sign(hv):
    task = hv.add("x", "--body", "@@everyone: look")
    assert hv.task(task)["body"] == "@everyone: look"
    hv.ok("update", task, "--body", "@@@")
    assert hv.task(task)["body"] == "@@"


def test_a_pattern_for_titles_alone_is_not_a_task(hv):
    assert "--title works only with" in hv.refused(2, "add", "--title", "Fix it")
    assert "give one of: a TITLE" in hv.refused(2, "add")


def test_a_chunk_is_data_like_any_other_word(hv):
    rows = ['{"title": "a", "chunk": [1]}', '{"title": "b", "chunk": 99999999999999999999999}']
    hv.ok("add", "--from", "-", "--format", "jsonl", stdin="\n".join(rows))
    hv.ok("add", "--from", "-", "--format", "csv", stdin="title,chunk\nc,north\n")
    assert [task["data"] for task in hv.json("ls")] == [
        {"chunk": "north"},
        {"chunk": 99999999999999999999999},
        {"chunk": [1]},
    ]


def test_an_inbox_cell_says_yes_or_no(hv):
    answer = hv("add", "--from", "-", "--format", "csv", stdin="title,inbox\na,no\nb,maybe\n")
    assert answer.code == 2 and "line 3: inbox must be yes or no, not 'maybe'" in answer.err
    assert hv.json("ls") == []


def test_a_list_that_does_not_go_in_as_a_whole_says_how_much_did(tmp_path, monkeypatch):
    monkeypatch.setattr(adding, "SLICE", 2)
    with hypervisor.open(tmp_path / "store.db") as hv:
        really_write, calls = hv.store.write, []

        def full(*args, **options):
            calls.append(args)
            if len(calls) == 3:
                raise StoreFull("no space left. Nothing was changed; free some space.")
            return really_write(*args, **options)

        monkeypatch.setattr(hv.store, "write", full)
        with pytest.raises(StoreFull) as caught:
            hv.add([hypervisor.NewTask(str(n)) for n in range(7)])
        assert "Nothing was changed" not in str(caught.value)
        assert "The first 4 tasks were added" in str(caught.value)
        assert len(hv.list_tasks()) == 4


@pytest.mark.parametrize("column", ["at", "start_at"])
def test_a_column_has_the_time_before_which_a_task_does_not_start(hv, column):
    rows = f"title,{column}\na,2090-02-01T09:00+00:00\nb,3789536400000\nc,\nd,17:00\n"
    hv.ok("add", "--from", "-", "--format", "csv", stdin=rows)
    line = json.dumps({"title": "e", column: "2090-02-01T09:00+00:00"})
    hv.ok("add", "--from", "-", "--format", "jsonl", stdin=line)
    tasks = {task["title"]: task for task in hv.json("ls")}
    late = 3_789_622_800_000
    assert [tasks[title]["start_at"] for title in "abce"] == [late, 3_789_536_400_000, None, late]
    assert 0 < tasks["d"]["start_at"] - tasks["d"]["created_at"] <= 25 * 3_600_000
    assert {task["data"] is None for task in tasks.values()} == {True}


def test_two_columns_with_a_start_time_are_refused(hv):
    row = json.dumps({"title": "x", "at": "17:00", "start_at": "18:00"})
    code, _, err = hv("add", "--from", "-", "--format", "jsonl", stdin=row)
    assert code == 2 and "line 1: give at or start_at, not both." in err


def test_a_dash_reads_standard_input(hv):
    assert hv.ok("add", "-", "--batch", "b", stdin="one\ntwo\n") == "2 added\n"
    assert {task["title"] for task in hv.json("ls", "--batch", "b")} == {"one", "two"}
    hv.refused(2, "add", "-", "--glob", "*", stdin="x\n")


def test_a_long_list_is_read_twice_and_not_held_in_memory(hv, tmp_path):
    """All rows are checked before one is added, from a file and from a pipe."""
    good = "".join(f"item {number}\n" for number in range(2_500))
    path = tmp_path / "items"
    path.write_bytes(good.encode() + b"\xff\n")
    assert "Nothing was added" in hv.refused(2, "add", "--from", str(path))
    assert hv.json("ls") == []
    path.write_text(good)
    assert hv.ok("add", "--from", str(path), "--batch", "b") == "2500 added\n"
    answer = hv("add", "--from", "-", "--batch", "b", stdin=good + "one more\n")
    assert answer.out == "1 added\n"
    assert answer.err.startswith("2500 already in the batch, e.g. item 0 (")
    assert len(hv.json("add", "--from", str(path), "--batch", "c")["ids"]) == 2_500


def test_a_file_that_changes_between_the_two_passes_says_what_was_added(tmp_path, monkeypatch):
    monkeypatch.setattr(adding, "SLICE", 2)

    def rows():
        yield from (hypervisor.NewTask(str(number)) for number in range(4))
        raise BadLine(5, "it is not text.")

    with hypervisor.open(tmp_path / "store.db") as hv:
        with pytest.raises(InvalidInput) as caught:
            list(adding.add_in_slices(hv, rows(), None))
        assert str(caught.value).startswith(
            "line 5: it is not text. The rest was not added. The first 4 tasks were added."
        )
        assert len(hv.list_tasks()) == 4
