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


def test_proposed_changes_are_shown_before_the_decision(hv, tmp_path):
    task = work_of(hv)
    proposals = [{"do": "task", "title": HOSTILE, "body": HOSTILE}, {"do": HOSTILE}]
    reviewing.amend(hv, task, {"actions": proposals})
    page = Browser(hv).get(PAGE).text
    assert "Proposed changes (1)" in page and "Refused (1)" in page and is_plain(page)
    assert 'name="planned"' in page and 'form="form-approve"' in page
    assert "/apply" not in page, "it is not approved yet"


def test_every_item_is_shown_page_by_page(hv, monkeypatch):
    monkeypatch.setattr("hypervisor.web.dashboard.pages.review.ITEMS_AT_ONCE", 2)
    browser = Browser(hv)
    assert "item-" not in browser.get(PAGE).text, "only on demand"
    first = browser.get(f"{PAGE}?items=1").text
    assert is_plain(first)
    (after,) = re.findall(r"after=(\w+)#part-items", first)
    second = browser.get(f"{PAGE}?items=1&after={after}").text
    seen = re.findall(r'id="item-(\w+)"', first + second)
    assert len(seen) == len(set(seen)) == 3 and "More items" not in second
    assert "None." in browser.get(f"{PAGE}?category=none+of+these").text
    for query in ("category=%F0%9F%98%80", "after=%27%3B--", "state=nothing", "from=x"):
        assert browser.get(f"{PAGE}?{query}").status in (200, 400)


def corrected(hv, form):
    browser, task = Browser(hv), work_of(hv)
    page = browser.get(f"{PAGE}/{task}")
    assert page.status == 200 and is_plain(page.text), page.text
    return browser.post(f"{PAGE}/{task}/correct", {"shown": shown(page.text), **form})


def result_of(hv):
    from hypervisor.queue.queries import show

    return show(hv, work_of(hv)).detail.task.result


def test_a_result_is_corrected_in_a_form(hv):
    answer = corrected(hv, {"member.category": '"mine"'})  # its characters are shown as JSON
    assert answer.status == 200 and "1 field" in answer.text
    assert result_of(hv) == {"category": "mine", "rationale": HOSTILE}
    assert corrected(hv, {"member.category": "mine"}).status == 400, "nothing differs"
    assert corrected(hv, {"member.rationale": ""}).status == 200
    assert result_of(hv) == {"category": "mine"}


def test_a_correction_of_what_has_changed_since_is_refused(hv):
    browser, task = Browser(hv), work_of(hv)
    assert browser.post(f"{PAGE}/{task}/correct", {"member.category": "x"}).status == 400
    digest = shown(browser.get(f"{PAGE}/{task}").text)
    reviewing.amend(hv, task, {"category": "theirs"})
    form = {"shown": digest, "member.category": "mine"}
    refused = browser.post(f"{PAGE}/{task}/correct", form)
    assert refused.status == 409 and "has changed since it was shown" in refused.text
    assert result_of(hv)["category"] == "theirs"
    assert browser.get(f"/review/b/2/{task}").status == 404, "it is in another chunk"


def test_one_item_is_retried_with_a_note(hv):
    task = work_of(hv)
    answer = Browser(hv).post(f"{PAGE}/{task}/retry", {"note": "look closer"})
    assert answer.status == 200 and task in answer.text
    assert reviewing.chunks(hv, "b")[0].unfinished == 1


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
    assert browser.post(f"{PAGE}/retry", {"note": "look closer"}).status == 400
    digest = shown(browser.get(PAGE).text)
    answer = browser.post(f"{PAGE}/retry", {"note": "look closer", "shown": digest})
    assert "3 tasks of chunk 1" in answer.text
    assert "still running" in browser.get(PAGE).text
    assert "/approve" not in browser.get(PAGE).text
