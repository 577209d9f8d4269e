"""`hv review` as a person or a script uses it, with real runs behind it."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import until

SAY = (
    "import json, os, sys; n = int(sys.argv[1]); "
    'print("working"); '
    'print(json.dumps({"category": "even" if n % 2 == 0 else "odd", '
    '"rationale": os.environ.get("HV_NOTE", "plain"), "receipts": ["saw %d" % n]}))'
)


@pytest.fixture
def hv(project):
    return project


def start(hv, *options, items=range(1, 7), code=10):
    given = "".join(f"{item}\n" for item in items)
    done = hv(
        "run",
        "--name",
        "b",
        "--chunk-size",
        "2",
        "--gate",
        "each",
        "--result",
        "json",
        "--workers",
        "2",
        *options,
        "--",
        "python3",
        "-c",
        SAY,
        stdin=given,
    )
    assert done.code == code, done
    return done.out


def chunks(hv):
    return [(each["state"], each["tasks"]) for each in hv.json("review", "b", "--list")]


def test_a_run_stops_at_a_checkpoint_and_continues_when_told(hv):
    out = start(hv)
    assert "2 done · 4 waiting for the checkpoint" in out
    assert "hv review b" in out and "chunk 1 has finished" in out
    assert "chunk 1" in hv.ok("review")
    assert "chunk 1 is waiting for a decision: hv review b" in hv.ok("status", "b")
    shown = hv.ok("review", "b")
    assert "odd" in shown and "even" in shown and "chunk 2 with 2 tasks would run next" in shown
    assert "chunk 2 runs now" in hv.ok("review", "b", "--approve", "--note", "fine")
    until(lambda: chunks(hv)[1] == ("open", {"done": 2}), "chunk 2 has ended")
    assert chunks(hv)[2] == ("held", {"waiting": 2})
    assert start(hv).startswith("batch b: 6 items (4 already done, skipped; 2 still open)")
    assert hv.json("review", "b", "--approve-rest")["opened"] == [3]
    until(lambda: chunks(hv)[2] == ("free", {"done": 2}), "chunk 3 has ended")
    assert hv.ok("review") == "nothing is waiting for a decision\n"
    assert "6 items (6 already done, skipped)" in start(hv, code=0)
    texts = [line["text"] for line in hv.json("receipt", "ls", "b")]
    assert texts.count("chunk 1 approved: fine") == 1
    assert sorted(text for text in texts if text.startswith("saw")) == [
        f"saw {n}" for n in range(1, 7)
    ]
    assert "all valid" in hv.ok("receipt", "verify")


def test_nobody_is_asked_of_the_only_chunk_where_only_the_first_is_to_be_looked_at(hv):
    done = hv(
        "run", "--name", "b", "--quiet", "--gate", "first", "--", "echo", "{}", stdin="a\nb\n"
    )
    assert done.code == 0, done
    told = hv.ok("review", "b")
    assert "needs no decision" in told and "samples" in told
    assert "(none)" not in told  # no category was given


def test_a_retry_reaches_the_worker_and_an_item_can_be_corrected(hv):
    start(hv)
    task = hv.tasks("b")[0]["id"]
    assert "1 task will be retried" in hv.ok(
        "review", "b", "--retry", "--task", task, "--note", "be kind"
    )
    until(lambda: hv.json("review") != [], "it waits again")
    result = hv.json("show", task)["detail"]["task"]["result"]
    assert result["rationale"] == "be kind"
    assert hv.json("review", "b", "--set", task, "category=prime", "rationale=")["category"] == (
        "prime"
    )
    assert hv.json("review", "b")["categories"]["prime"] == 1
    actions = [{"do": "create", "path": "x", "text": "y"}]
    pair = f"actions:={json.dumps(actions)}"
    assert hv.json("review", "b", "--set", task, pair)["actions"] == actions
    (item,) = hv.json("review", "b", "--items", "--category", "prime")
    assert (item["task"], item["corrected"], item["categories"]) == (task, True, ["prime"])
    assert hv.ok("review", "b", "--items").count("done") == 2
    summary = hv.json("summary", "b")
    assert summary["categories"]["prime"] == 1
    assert [chunk["state"] for chunk in summary["chunks"]] == ["open", "held", "held"]


def test_the_files_of_a_chunk_say_what_came_of_it(hv):
    start(hv)
    hv.ok("review", "b")
    folder = hv.folder / ".hypervisor" / "batches" / "b"
    summary = json.loads((folder / "chunk-01-summary.json").read_text())
    assert (summary["processed"], summary["categories"]) == (2, {"odd": 1, "even": 1})
    assert "- rationale: plain" in (folder / "chunk-01-details.md").read_text()


def test_half_a_character_in_what_a_worker_prints_stops_nobody(hv):
    say = r"""printf '{"category": "a\\ud800", "receipts": ["x\\ud800y", "\\u0000"]}'"""
    done = hv(
        "run", "--name", "b", "--result", "json", "--quiet", "--", "sh", "-c", say, stdin="1\n"
    )
    assert done.code == 0, done
    [line] = hv.json("receipt", "ls", "b")
    assert line["text"] == "x?y"
    assert hv("run", "--name", "c", "--quiet", "--", "true", stdin="1\n").code == 0


def test_a_result_that_is_none_is_a_failure(hv):
    for text in ("no json", '{"n": NaN}', "", "[" * 5000):
        done = hv(
            "run",
            "--result",
            "json",
            "--quiet",
            "--retries",
            "0",
            "--name",
            f"b{len(text)}",
            "--",
            "echo",
            text,
            "#",
            stdin="1\n",
        )
        assert done.code == 9, (text, done)


def test_a_dependency_on_a_later_chunk_is_refused(hv):
    rows = [
        {"item": "a", "date": "2026-01-01", "id": "A", "depends_on": ["B"]},
        {"item": "b", "date": "2026-02-01", "id": "B", "depends_on": []},
    ]
    (hv.folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = hv("run", "--items", "t.jsonl", "--chunk", "month", "--gate", "each", "--", "true")
    assert (done.code, "later chunk" in done.err) == (2, True), done


def test_a_copy_is_made_once_and_nothing_else_is_touched(hv):
    inbox, other = hv.folder / "inbox", hv.folder / "other"
    for folder in (inbox, other):
        folder.mkdir()
        (folder / "a.md").write_text("---\nproject: Web\n---\nrename it\n")
    for target in ("other", "inbox", "inbox/below", ".", ""):
        assert hv("run", "triage", "inbox", "--copy", target).code == 2, target
    assert (inbox / "a.md").read_text() == (other / "a.md").read_text()
    assert hv("run", "triage", "inbox", "--copy", "new", "--quiet").code == 0
    assert hv("run", "triage", "inbox", "--copy", "new", "--quiet").code == 0
    assert (inbox / "a.md").read_text() == (other / "a.md").read_text()
    assert "[[Web]]" in (hv.folder / "new" / "a.md").read_text()


def test_one_task_can_stand_for_a_whole_chunk(hv):
    given = "".join(f"{n}\n" for n in range(5))
    read = "import sys; print(sum(1 for _ in open(sys.argv[1])))"
    args = [
        "run",
        "--name",
        "b",
        "--per",
        "chunk",
        "--chunk-size",
        "2",
        "--quiet",
        "--",
        "python3",
        "-c",
        read,
    ]
    assert hv(*args, stdin=given).code == 0
    assert [hv.ok("logs", task["id"]) for task in hv.tasks("b")] == ["2\n", "2\n", "1\n"]
    assert "3 already done" in hv(*args, stdin=given).err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["review", "--approve"], 2),
        (["review", "nothing"], 4),
        (["review", "b", "--approve", "--chunk", "9"], 4),
        (["review", "b", "--approve", "--chunk", "2"], 5),
        (["review", "b", "--approve", "--task", "x"], 2),
        (["review", "b", "--set", "x", "category"], 2),
        (["review", "b", "--set", "x", "actions:=["], 2),
        (["review", "b", "--category", "x"], 2),
        (["run", "--chunk", "month", "--chunk-size", "2", "--", "true"], 2),
        (["run", "--chunk-size", "0", "--", "true"], 2),
        (["run", "--copy", "x", "--", "true"], 2),
        (["run", "triage"], 2),
    ],
)
def test_what_makes_no_sense_is_refused(hv, args, code):
    start(hv)
    assert hv(*args, stdin="1\n").code == code
