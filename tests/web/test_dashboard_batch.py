"""The page of a batch: its parts, and buttons that do what `hv` would do."""

from __future__ import annotations

import html
import re
import shlex

import pytest

import hypervisor
from hypervisor import NewTask
from hypervisor.batches import summary
from hypervisor.cli.commands_table import COMMANDS
from hypervisor.cli.main import make_parser
from hypervisor.queue.queries import list_tasks
from hypervisor.web.dashboard.pages import batches
from hypervisor.web.dashboard.site import PAGES
from tests.web.dashboards import Browser

NAME = "it's a batch; $(x)"


@pytest.fixture
def hv(tmp_path):
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as opened:
        yield opened


@pytest.fixture
def browser(hv):
    return Browser(hv)


def finish(hv, batch, *results):
    hv.add([NewTask(f"task {n}") for n in range(len(results))], batch=batch)
    for claim, result in zip(hv.claim("w", limit=len(results)), results, strict=True):
        hv.complete(claim.token, result)


def states(hv, batch):
    return sorted(task.state for task in list_tasks(hv, (), batch))


def test_every_command_to_copy_can_be_typed(hv, browser):
    """On every page, those of the dialogs included."""
    hv.add([NewTask("a"), NewTask("b"), NewTask("c")], batch=NAME)
    (claim,) = hv.claim("w")
    hv.block(claim.token, "stuck", "a hand")
    (running,) = hv.claim("w")
    pages = [page.path for page in PAGES if "{" not in page.path]
    batch = list_tasks(hv, ())[0].batch
    pages += [f"/batches/{batch}", f"/tasks/{claim.task.id}", f"/tasks/{running.task.id}"]
    seen = set()
    for path in pages:
        for text in re.findall('data-copy="([^"]*)"', browser.get(path).text):
            program, name, *words = shlex.split(html.unescape(text))
            parser, _ = make_parser(COMMANDS[name])
            args = parser.parse_args(words)
            assert program == "hv" and args is not None
            seen.add(name)
            for field in ("batch", "task"):
                given = getattr(args, field, None) if "/batches/" in path else None
                if given and name != "retry":
                    assert given in (NAME, [NAME]), text
    assert {"pause", "scale", "retry", "cancel", "results", "report", "kill"} <= seen


def test_a_batch_is_started_again_with_what_succeeded(hv, browser):
    finish(hv, "b", 1, 2)
    hv.add([NewTask("left")], batch="b")
    page = browser.get("/batches/b").text
    assert "hv retry --batch b --state done --state failed" in page
    answer = browser.post("/batches/b/again", {"reason": "new model"})
    assert answer.status == 200 and "2 tasks: 2 ready" in answer.text
    assert states(hv, "b") == ["active"] * 3
    assert browser.post("/batches/b/again").status == 400
    assert Browser(hv, read_only=True).post("/batches/b/again").status == 403


def test_work_without_a_supervisor_can_be_started(hv, browser, monkeypatch):
    hv.add([NewTask("a")], batch="claimed by others")
    assert "/start" not in browser.get("/batches/claimed by others").text
    spec = hypervisor.RunSpec(".", hypervisor.CommandSpec(("true",)))
    hv.submit(spec, [NewTask("a")], "run")
    assert "hv supervise --detach" in browser.get("/batches/run").text
    started: list[object] = []
    monkeypatch.setattr(batches, "supervise", started.append)
    assert browser.post("/batches/run/start").status == 200 and started == [hv]


def test_results_are_counted_by_category(hv, browser, monkeypatch):
    finish(hv, "b", {"category": "spam"}, {"category": "<i>news"}, {"category": "spam"})
    part = browser.part("/batches/b", "categories").text
    assert re.findall("<bdi>(.*?)</bdi>", part) == ["spam", "&lt;i&gt;news"]
    assert re.findall("<b>(.*?)</b>", part) == ["2", "1"] and "first" not in part
    monkeypatch.setattr(summary, "PAGE", 1)
    monkeypatch.setattr(summary, "MAX_COUNTED", 2)
    assert summary.categories(hv, "b").counts == {"spam": 1, "<i>news": 1}
    assert "Of the first" in browser.part("/batches/b", "categories").text
    finish(hv, "plain", 1)
    assert browser.part("/batches/plain", "categories").text.strip() == ""


def test_what_was_learned_about_its_type_is_drawn(hv, browser):
    spec = hypervisor.RunSpec(".", hypervisor.CommandSpec(("true",)))
    hv.submit(spec, [NewTask("a", type="resize")], "run")
    hv.learn_parallelization("resize", 0.6)
    assert "<svg" not in browser.part("/batches/run", "learned").text, "only claimed, not seen"
    card = browser.get("/learning").text
    assert "parallel saves 60 %" in card
