"""Pages show what is stored, as text only, and their buttons do what they say."""

from __future__ import annotations

import csv
import json
import re

import pytest

import hypervisor
from hypervisor.cli.json_form import plain
from hypervisor.queue import bulk
from hypervisor.runs.output_window import output_window, search_output
from hypervisor.web.dashboard import ansi
from hypervisor.web.dashboard.diffs import MAX_OPEN, files_of
from hypervisor.web.dashboard.pages import batches
from tests.web.dashboards import Browser

HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202e\x1b[31m</pre><script>javascript:alert(2)</script>"


@pytest.fixture
def hv(tmp_path):
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as opened:
        yield opened


@pytest.fixture
def browser(hv):
    return Browser(hv)


def put_output(hv, task, attempt, text):
    path = hv.outputs.prepare(task, attempt)
    with open(path, "wb") as file:
        file.write(text.encode())


@pytest.fixture
def task(hv):
    """A failed task with an attempt, an output and hostile text in every field."""
    hv.add([hypervisor.NewTask(HOSTILE, HOSTILE, data={HOSTILE: HOSTILE})], batch="mixed")
    (claim,) = hv.claim("w")
    hv.receipt(claim.token, HOSTILE)
    put_output(hv, claim.task.id, 1, f"{HOSTILE}\n\x1b[31mred\x1b[0m\n" + "x" * 100_000 + "\n")
    hv.fail(claim.token, HOSTILE)
    hv.add([hypervisor.NewTask("another")], batch="mixed")
    return claim.task.id


def is_plain(text):
    """Only our own elements: nothing of a hostile text became one."""
    inside = re.sub(r"<[^<>]*>", "", text)
    assert "<img" not in text and "<script>javascript" not in text
    assert "alert(1)&gt;" in inside or "alert(1)" not in inside
    assert "\x1b" not in text and "\u202e" not in text
    return True


def test_hostile_text_stays_text_on_every_page(hv, browser, task):
    for path in ("/", "/batches", "/batches/mixed", f"/tasks/{task}", f"/tasks/{task}?q=alert"):
        answer = browser.get(path)
        assert answer.status == 200, path
        assert is_plain(answer.text), path
    assert "onerror" in browser.get(f"/tasks/{task}").text  # it is shown


def test_a_part_comes_alone(hv, browser, task):
    part = browser.part("/batches/mixed", "failed")
    assert part.status == 200 and "<html" not in part.text and "onerror" in part.text
    assert browser.part("/batches/mixed", "nowhere").status == 400
    assert "<html" in browser.get("/batches/mixed?part=failed").text  # as a link, it is the page


def test_several_parts_come_in_one_answer(hv, browser, task):
    both = browser.part("/batches/mixed", "failed,progress")
    assert both.status == 200 and is_plain(both.text)
    assert re.findall(r'<hx-partial hx-target="#part-(\w+)"', both.text) == ["failed", "progress"]
    for name in ("failed", "progress"):
        assert browser.part("/batches/mixed", name).text in both.text
    for wrong in ("failed,nowhere", "failed,", '"><script>,failed'):
        refused = browser.part("/batches/mixed", wrong)
        assert refused.status == 400 and "<script" not in refused.text


def test_what_does_not_exist_is_not_found(browser):
    for path in ("/batches/none", "/tasks/none", "/nowhere"):
        assert browser.get(path).status == 404


def test_a_batch_is_paused_scaled_resumed_and_retried(hv, browser, task):
    assert browser.post("/batches/mixed/pause", {"reason": HOSTILE}).status == 200
    page = browser.get("/batches/mixed").text
    assert "Paused" in page and "/resume" in page and is_plain(page)
    assert "at most 3 workers" in browser.post("/batches/mixed/scale", {"workers": "3"}).text
    assert browser.post("/batches/mixed/scale", {"workers": "many"}).status == 400
    assert f"{task} ready" in browser.post("/batches/mixed/retry").text
    assert hv.show(task).detail.task.state == "active"
    again = browser.post("/batches/mixed/retry")
    assert again.status == 400 and "no task of this batch is failed, blocked" in again.text
    assert browser.post("/batches/mixed/cancel").status == 200
    assert hv.show(task).detail.task.state == "cancelled"


def test_tasks_of_a_batch_that_were_not_changed_are_counted_with_the_reason(
    hv, browser, monkeypatch
):
    """One of them is cancelled between the list and the change."""
    tasks = hv.add([hypervisor.NewTask(name) for name in "abc"], batch="shared").ids
    listed = bulk.oldest_first

    def meanwhile(*choice):
        chosen = listed(*choice)
        hv.cancel(tasks[1])
        return chosen

    monkeypatch.setattr(bulk, "oldest_first", meanwhile)
    answer = browser.post("/batches/shared/cancel")
    assert answer.status == 200
    assert "2 tasks: 2 cancelled; 1 task not changed: " in answer.text and tasks[1] in answer.text


def test_failures_are_grouped_by_the_message_that_was_printed(hv, browser):
    """As `hv run` groups them."""
    hv.add([hypervisor.NewTask(name) for name in ("north", "south", "west")], batch="many")
    printed = {"west": "west: out of memory"}
    for claim in hv.claim("w", limit=3):
        title = claim.task.title
        text = printed.get(title, f"{title}: could not open database")
        put_output(hv, claim.task.id, 1, f"reading\n{text}\nrow 9\n")
        hv.fail(claim.token, "exit code 2")
    part = browser.part("/batches/many", "failed").text
    said = re.findall('class="name"><bdi>(.*?)<.*?<bdi>(.*?)</bdi>', part)
    assert said == [
        ("2 ×", "exit code 2: {}: could not open database"),
        ("1 ×", "exit code 2: west: out of memory"),
    ]
    assert "row 9" in part, "the last lines"


def test_a_batch_says_how_long_it_took(hv, browser, task):
    part = browser.part("/batches/mixed", "figures").text
    assert "took" in part and "not finished" in part


def test_results_are_exported_as_hv_results_prints_them(hv, browser, task, monkeypatch):
    monkeypatch.setattr(batches, "LINES_AT_ONCE", 1)
    (claim,) = hv.claim("w")
    hv.complete(claim.token, {"verdict": "fine, really", "pages": 3})
    page = browser.get("/batches/mixed").text
    links = re.findall('href="(/batches/[^"]*/results[^"]*)"', page)
    jsonl, table = (browser.get(link) for link in links)
    expected = [plain(result) for result in hv.results("mixed")]
    assert [json.loads(line) for line in jsonl.text.splitlines()] == expected
    assert table.headers["content-type"].startswith("text/csv")
    head, *rows = csv.reader(table.text.splitlines())
    assert head[-2:] == ["result.verdict", "result.pages"] and len(rows) == 2
    assert rows[-1][-2:] == ["fine, really", "3"] and rows[0][1] == HOSTILE
    assert browser.get("/batches/none/results.csv").status == 404
    assert browser.get("/batches/mixed/results.csv", cookie=None).status == 401


def test_a_task_is_retried_and_cancelled_and_says_when_it_cannot_be(hv, browser, task):
    assert browser.post(f"/tasks/{task}/retry", {"reason": "again"}).status == 200
    assert browser.post(f"/tasks/{task}/cancel").status == 200
    stopped = browser.post(f"/tasks/{task}/stop")
    assert stopped.status == 409 and "not running" in stopped.text
    without_scripts = browser.post(f"/tasks/{task}/retry", hx_request=None)
    assert without_scripts.status == 200 and "<html" in without_scripts.text


def test_who_may_only_read_sees_no_buttons(hv, task):
    page = Browser(hv, read_only=True).get(f"/tasks/{task}").text
    assert "/retry" not in page


def test_an_output_is_read_by_windows_of_whole_lines(hv, task):
    put_output(hv, task, 1, "".join(f"line {n}\n" for n in range(1_000)))
    last = output_window(hv, task, most=100)
    assert last.is_end and last.text.startswith("line ") and last.text.endswith("line 999\n")
    first = output_window(hv, task, start=0, most=100)
    assert first.text.startswith("line 0\n") and first.text.endswith("\n") and not first.is_end
    following = output_window(hv, task, start=first.end, most=100)
    assert following.text.startswith(f"line {first.text.count(chr(10))}\n")
    matches, is_complete = search_output(hv, task, "LINE 99")
    assert [match.line for match in matches][:2] == ["line 99", "line 990"] and is_complete
    assert output_window(hv, task, start=matches[1].at, most=9).text == "line 990\n"


def test_colours_become_classes_and_other_sequences_go():
    (line,) = ansi.lines("a\x1b[1;31mb\x1b]0;title\x07c\x1b[0md\x1b[2J\n")
    assert [(s.text, s.look) for s in line.spans] == [
        ("a", ""), ("b", "bold fg-red"), ("c", "bold fg-red"), ("d", ""),
    ]  # fmt: skip
    assert ansi.lines("10 %\r100 %\r\n")[0].spans[0].text == "100 %"
    assert ansi.lines("x" * 10_000_000)[0].left_out == 10_000_000 - ansi.MAX_LINE
    assert ansi.lines("") == []


def test_a_diff_is_folded_where_it_is_long_or_a_lock_file():
    long = "".join(f"+{n}\n" for n in range(MAX_OPEN + 5))
    text = "".join(
        f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n{body}"
        for name, body in (("a.py", "-x\n+y\n"), ("package-lock.json", "+z\n"), ("b.py", long))
    )
    files = files_of(text)
    assert [(file.path, file.folded) for file in files] == [
        ("a.py", False), ("package-lock.json", True), ("b.py", True),
    ]  # fmt: skip
    assert [line.kind for line in files[0].lines] == ["hunk", "removed", "added"]
    assert not files_of(text, "b.py")[2].folded


def test_home_shows_what_a_task_asks_and_answers_it(hv, browser):
    hv.add([hypervisor.NewTask("server.py")])
    (lease,) = hv.claim("w")
    hv.block(lease.token, "no port", f"Which port, {HOSTILE}?")
    home = browser.get("/")
    assert is_plain(home.text) and "needs input" in home.text and "It asks:" in home.text
    assert f'action="/tasks/{lease.task.id}/answer"' in home.text
    assert Browser(hv, read_only=True).get("/").text.count("/answer") == 0

    refused = browser.post(f"/tasks/{lease.task.id}/answer", {"text": " "})
    assert refused.status == 400 and "the answer is empty" in refused.text
    done = browser.post(f"/tasks/{lease.task.id}/answer", {"text": HOSTILE})
    assert done.status == 200 and f"answered; {lease.task.id} continues" in done.text
    assert hv.show(lease.task.id).detail.task.state == "active"
    assert is_plain(browser.get(f"/tasks/{lease.task.id}").text)
    assert "not read yet" in browser.get(f"/tasks/{lease.task.id}").text
