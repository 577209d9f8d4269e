"""The pages for tasks, events, the merge queue, agents, the hive, learning, notifications, hosts
and new runs: with nothing, with something, and with hostile text."""

from __future__ import annotations

import json
import re

import pytest

import hypervisor
from hypervisor import NewTask
from hypervisor.web.dashboard.site import MENU, PAGES
from tests.web.dashboards import Browser

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m&\"'"
PLAIN = [page for page in PAGES if "{" not in page.path]


@pytest.fixture
def hv(tmp_path):
    with hypervisor.open(tmp_path / ".hypervisor" / "store.db", relaxed=True) as opened:
        yield opened


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: page.path)
def test_a_page_of_an_empty_store_says_so(hv, page):
    browser = Browser(hv)
    answer = browser.get(page.path)
    assert answer.status == 200, answer.text[:400]
    assert "<main" in answer.text
    for part in page.parts:
        assert browser.part(page.path, part).status == 200


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: page.path)
def test_hostile_text_is_shown_as_text(hv, page):
    hv.add([NewTask(HOSTILE, body=HOSTILE, type="t<i>", key=HOSTILE)], "batch")
    hv.add(NewTask("other"), "<b>bold</b>")
    for _ in range(2):
        [lease] = hv.claim("<i>worker</i>", limit=1)
        hv.block(lease.token, HOSTILE, unblock=HOSTILE)
    hv.remember(HOSTILE, topic="<i>topic</i>")
    hv.add_rule("rule", ["failed"], ["notify", HOSTILE.replace("\x1b", "")])
    hv.learn_parallelization("t<i>", 0.5, HOSTILE)
    text = (
        Browser(hv)
        .get(f"{page.path}?text=%3Cscript%3E&type=%3Cscript%3E&command=%3Cscript%3E")
        .text
    )
    assert "<script>" not in text.replace("<script src", "")
    for tag in ("<i>topic", "<b>bold", "<i>worker", "\x1b"):
        assert tag not in text


def test_the_menu_leads_to_pages():
    paths = {page.path for page in PAGES}
    assert {entry.path for entry in MENU} <= paths


def test_tasks_are_paged_by_their_ids(hv):
    hv.add([NewTask(f"task {n}") for n in range(250)], "many")
    browser, path, seen = Browser(hv), "/tasks?batch=many", []
    while path:
        text = browser.get(path).text
        seen += re.findall(r"task (\d+)</bdi>", text)
        hv.add(NewTask("newer"), "many")  # pages are not moved by it
        older = re.search(r'href="(/tasks\?[^"]*)" rel="next"', text)
        path = older.group(1).replace("&amp;", "&") if older else ""
    assert sorted(map(int, seen)) == list(range(250))


def test_tasks_are_filtered(hv):
    hv.add([NewTask("apple", type="fruit"), NewTask("carrot", type="root")])
    [lease] = hv.claim("me", limit=1)
    hv.fail(lease.token, "rotten")
    browser = Browser(hv)

    def shown(query):
        return set(re.findall(r"<bdi>(apple|carrot)</bdi>", browser.get(f"/tasks?{query}").text))

    assert shown("text=APP") == {"apple"} and shown("type=root") == {"carrot"}
    assert shown("state=failed") == {"apple"} and shown("state=ready") == {"carrot"}
    assert browser.get("/tasks?state=nonsense").status == 400
    assert browser.get("/tasks?before=%00").status in (200, 400)


def test_events_are_filtered_and_newest_first(hv):
    hv.add("one")
    [lease] = hv.claim("ann")
    hv.complete(lease.token)
    text = Browser(hv).get("/events").text
    assert text.index("complete") < text.index("add<") or text.index(">complete") < text.rindex(
        "add"
    )
    only = Browser(hv).part("/events?kind=claim", "list").text
    assert only.count("data-row") == 1 and "ann" in only


def test_a_reader_cannot_start_or_change_anything(hv):
    browser = Browser(hv, read_only=True)
    for path in ("/new/start", "/notifications/retry", "/agents/end-rate-limit"):
        assert browser.post(path, {"command": "true", "items": "a"}).status == 403
    assert "Check</button>" not in browser.get("/new").text


def test_notifications_are_removed(hv):
    hv.add_rule("bell", ["failed"], ["true"])
    browser = Browser(hv)
    assert "bell" in browser.get("/notifications").text
    assert browser.post("/notifications/rules/bell/remove").status == 200
    assert hv.rules() == ()
    assert browser.post("/notifications/rules/bell/remove").status == 404


def test_programs_read_metrics_with_the_token(hv):
    hv.add("one")
    browser = Browser(hv)
    bearer = {"cookie": None, "authorization": f"Bearer {browser.access.token}"}
    answer = browser.send("GET", "/metrics", b"", bearer)
    assert answer.status == 200 and 'state="active"} 1' in answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert browser.send("GET", "/metrics", b"", {"cookie": None}).status == 401
    assert json.loads(browser.get("/metrics.json?minutes=10").text)["at"] == []


def test_findings_are_reviewed_on_the_page_of_the_hive(hv, tmp_path):
    (tmp_path / ".hypervisor" / "config.toml").write_text("[hive]\nreview = true\n")
    one = hv.remember(HOSTILE, "main", by_agent=True).id
    two = hv.remember("a planted fact", "main", by_agent=True).id
    browser = Browser(hv)
    shown = browser.part("/hive", "review").text
    assert "a planted fact" in shown and "<script>" not in shown and "Approve" in shown
    assert browser.post(f"/hive/{one}/approve").status == 200
    assert browser.post(f"/hive/{two}/reject").status == 200
    assert "To review" not in browser.part("/hive", "review").text
    assert [known.finding.trust for known in hv.recall()] == ["reviewed"]
