"""Reviewing in the browser: a decision is about what was shown, and about nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hypervisor.batches import review as reviewing
from hypervisor.batches.files import BatchFiles
from hypervisor.queue.context import Context
from hypervisor.runs.outputs.files import Outputs
from tests.batches.test_review import start, work
from tests.support.parts import parts
from tests.support.submitted_runs import FakeHost, FakeLauncher
from tests.web.dashboards import Browser
from tests.web.test_dashboard_pages import HOSTILE, is_plain

PAGE = "/review/b/1"


@pytest.fixture
def hv(ledger, tmp_path):
    """A batch of three chunks; the first is finished and waits for a decision."""
    launcher: Any = FakeLauncher()
    given = parts(
        launcher=launcher,
        outputs=Outputs(str(tmp_path)),
        batch_files=BatchFiles(str(tmp_path)),
        secret=lambda name: (name, "s" * 40),
    )
    context = Context(ledger, FakeHost(), "ann", parts=given)
    start(context)
    work(context, [{"category": HOSTILE, "rationale": HOSTILE}])
    return context


def shown(text):
    """The digest that the buttons of a page carry."""
    (digest,) = set(re.findall(r'name="shown" value="([0-9a-f]+)"', text))
    return digest


def test_a_chunk_is_shown_as_text_and_approved(hv):
    browser = Browser(hv)
    assert "/review/" in browser.get("/review").text
    batch = browser.get("/batches/b").text
    assert re.search('href="/review/[^"]*/1">Waiting for your decision: <bdi>chunk 1', batch)
    page = browser.get(PAGE)
    assert page.status == 200 and is_plain(page.text)
    answer = browser.post(f"{PAGE}/approve", {"shown": shown(page.text), "note": HOSTILE})
    assert answer.status == 200 and "approved; 1 chunk released" in answer.text
    assert [chunk.state for chunk in reviewing.chunks(hv, "b")] == ["approved", "open", "held"]
    decided = browser.get(PAGE).text
    assert is_plain(decided)
    assert 'id="do-reject"' in decided and 'id="do-approve"' not in decided, "it can be changed"


def test_proposed_changes_are_counted_before_the_decision(hv):
    task = work_of(hv)
    reviewing.amend(
        hv, task, {"actions": [{"do": "move", "path": "a", "to": "b"}, {"do": HOSTILE}]}
    )
    page = Browser(hv).get(PAGE).text
    assert "Proposed changes: 1 <bdi>move</bdi>" in page and is_plain(page)


def test_a_decision_about_something_else_is_refused(hv):
    browser = Browser(hv)
    digest = shown(browser.get(PAGE).text)
    task = work_of(hv)
    reviewing.amend(hv, task, {"category": "other"})
    for action in ("approve", "reject"):
        refused = browser.post(f"{PAGE}/{action}", {"shown": digest})
        assert refused.status == 409 and "has changed since it was shown" in refused.text
        assert browser.post(f"{PAGE}/{action}").status == 400
    assert reviewing.chunks(hv, "b")[0].state == "open"
    assert browser.post(f"{PAGE}/reject", {"shown": shown(browser.get(PAGE).text)}).status == 200


def work_of(hv):
    from hypervisor.queue.queries import list_tasks

    return next(task.id for task in list_tasks(hv, ("done",), "b"))


def test_of_two_people_who_decide_at_once_the_second_is_told(hv):
    browser = Browser(hv)
    digest = shown(browser.get(PAGE).text)
    assert browser.post(f"{PAGE}/approve", {"shown": digest}).status == 200
    second = browser.post(f"{PAGE}/reject", {"shown": digest})
    assert second.status == 409
    assert reviewing.chunks(hv, "b")[0].state == "approved"


def test_a_chunk_is_retried_with_a_note(hv):
    browser = Browser(hv)
    answer = browser.post(f"{PAGE}/retry", {"note": "look closer"})
    assert "3 tasks of chunk 1" in answer.text
    assert "still running" in browser.get(PAGE).text
    assert "/approve" not in browser.get(PAGE).text
