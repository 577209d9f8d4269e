"""The workers of a batch over time: bounded, zoomed, with pauses cut out."""

from __future__ import annotations

import json

import pytest

import hypervisor
from hypervisor.batches import timeline_window as windows
from hypervisor.batches.timeline import Attempts, read_attempts
from hypervisor.batches.timeline_window import timeline_window
from hypervisor.core import ids
from hypervisor.queue.history import AttemptLine
from hypervisor.web.dashboard.pages import timeline
from tests.support.given import NOW
from tests.web.dashboards import Browser

HOUR = 3_600_000


@pytest.fixture
def hv(tmp_path):
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as opened:
        yield opened


def made(*rows):
    """Attempts of (worker, start, end, outcome)."""
    attempts = Attempts(NOW + 10**9)
    for number, (worker, start, end, outcome) in enumerate(rows):
        task = ids.encode(number)
        line = AttemptLine(task, 1, worker, worker, NOW + start, NOW + end, outcome, 1, 1)
        attempts.add(line)
    attempts.separate()
    return attempts


def shown(hv, *asked, **options):
    window = timeline_window(hv, *asked, **options)
    assert window is not None
    return window


def test_a_part_of_the_time_has_its_attempts_alone(hv):
    attempts = made(("a", 0, 1_000, "done"), ("a", 2_000, 3_000, "failed"), ("b", 0, 9_000, "done"))
    window = shown(hv, attempts, NOW + 1_500, NOW + 4_000)
    assert (window.start, window.end) == (NOW + 1_500, NOW + 4_000)
    assert window.whole == (NOW, NOW + 9_000) and window.attempts == 2
    assert [(lane.worker, len(lane.segments)) for lane in window.lanes] == [("a", 1), ("b", 1)]
    nothing = shown(hv, attempts, NOW + 4_000, NOW + 4_001)
    assert [len(lane.segments) for lane in nothing.lanes] == [0, 1], "rows stay in their places"
    assert timeline_window(hv, made()) is None
    odd = shown(hv, attempts, 10**17, 5)
    assert odd.whole[0] <= odd.start < odd.end, "a window that cannot be"


def test_pauses_are_cut_out_of_a_part(hv):
    attempts = made(("a", 0, 60_000, "done"), ("a", 9 * HOUR, 9 * HOUR + 60_000, "done"))
    assert shown(hv, attempts).stretches == (
        (NOW, NOW + 60_000), (NOW + 9 * HOUR, NOW + 9 * HOUR + 60_000),
    )  # fmt: skip
    part = shown(hv, attempts, NOW + 30_000, NOW + 9 * HOUR + 10)
    assert part.stretches == ((NOW + 30_000, NOW + 60_000), (NOW + 9 * HOUR, NOW + 9 * HOUR + 10))
    inside = shown(hv, attempts, NOW + HOUR, NOW + 2 * HOUR)
    assert inside.stretches == ((NOW + HOUR, NOW + 2 * HOUR),)


def test_a_hundred_thousand_attempts_become_as_many_cells_as_fit(hv):
    turns = [(n, n // 80 * 2_000) for n in range(100_000)]
    outcomes = ("done", "done", "failed")
    attempts = made(*((f"w{n % 80}", at, at + 1_000 + n % 900, outcomes[n % 3]) for n, at in turns))
    window = shown(hv, attempts, cells=10_000)
    assert not window.single and window.attempts == 100_000
    assert len(window.lanes) == windows.MAX_ROWS and window.hidden == 80 - windows.MAX_ROWS
    assert all(len(lane.segments) <= windows.MAX_CELLS + 1 for lane in window.lanes)
    counted = sum(segment.attempts for lane in window.lanes for segment in lane.segments)
    assert counted == 100_000 * windows.MAX_ROWS // 80, "none is lost"
    answer = timeline._answer(hv, attempts, (0, 0, 300))
    assert len(answer) < 1_500_000
    near = shown(hv, attempts, NOW + 100_000, NOW + 104_000)
    assert near.single and near.attempts < 1_000


def test_a_browser_gets_places_and_titles(hv, tmp_path):
    title = "<b>one</b>\u202e"
    hv.add([hypervisor.NewTask(title), hypervisor.NewTask("two")], batch="b")
    for claim in hv.claim("w", limit=2):
        hv.fail(claim.token, "no")
    browser = Browser(hv)
    answer = browser.get("/batches/b/timeline.json")
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    data = json.loads(answer.text)
    assert data["single"] and data["attempts"] == 2 and not data["running"]
    assert sorted(name for _, name in data["tasks"]) == sorted([title, "two"])
    ((_, bars),) = data["lanes"]
    assert {data["outcomes"][bar[4]] for bar in bars} == {"failed"}
    assert all(0 <= bar[0] <= bar[0] + bar[1] <= 1000.1 for bar in bars)
    assert browser.get("/batches/b/timeline.json?from=x").status == 400
    assert browser.get("/batches/none/timeline.json").status == 404
    assert browser.get("/batches/b/timeline.json", cookie=None).status == 401
    hv.add([hypervisor.NewTask("new")], batch="new")
    assert browser.get("/batches/new/timeline.json").text == "null"


def test_zooming_reads_the_attempts_once_and_a_huge_batch_is_left_to_the_report(hv, monkeypatch):
    hv.add([hypervisor.NewTask("a"), hypervisor.NewTask("b")], batch="b")
    hv.claim("w", limit=2)
    browser, reads = Browser(hv), []

    def counted(*asked):
        reads.append(asked)
        return read_attempts(*asked)

    monkeypatch.setattr(timeline, "read_attempts", counted)
    for path in ("", "?from=1&to=2", "?cells=20", ""):
        assert json.loads(browser.get(f"/batches/b/timeline.json{path}").text)["running"]
    assert len(reads) == 1
    monkeypatch.setattr(timeline, "MAX_DRAWN", 1)
    hv.add([hypervisor.NewTask("a"), hypervisor.NewTask("b")], batch="large")
    answer = browser.get("/batches/large/timeline.json")
    assert answer.status == 400 and "hv report" in answer.text
