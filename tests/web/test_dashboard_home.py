"""Home: every reason why nothing starts, what runs, and what has finished since the last visit."""

from __future__ import annotations

import re

import pytest

import hypervisor
from hypervisor import NewTask
from hypervisor.agents.cooldown import Cooldown
from hypervisor.monitoring import finished as finishing
from hypervisor.monitoring.held_back import held_back
from hypervisor.monitoring.status import quick_status
from hypervisor.queue.agent_session import Spent
from hypervisor.queue.sql import agent_sessions
from tests.web.dashboards import Browser

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def hv(tmp_path):
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as opened:
        yield opened


def reasons(hv, **changed):
    now = hv.now()
    status = quick_status(hv, now=now)._replace(**changed)
    return {reason.kind: reason for reason in held_back(hv, status, now)}


def test_all_reasons_are_named_not_only_the_first(hv, monkeypatch):
    spec = hypervisor.RunSpec(".", hypervisor.CommandSpec(("true",)))
    batch = hv.submit(spec, [NewTask("a")], "run").batch
    hv.pause("run", reason="lunch")
    settings = hv.agent_settings._replace(day_budget=5_000_000)
    monkeypatch.setattr(hv.parts, "agent_settings", settings)
    spent = Spent(1_000, 9_000_000, False, 0)
    monkeypatch.setattr(agent_sessions, "spent", lambda *_, **__: spent)
    host = {
        "message": "nothing new is started: RAM at 91 % (danger)",
        "zone": "danger",
        "target": 1,
    }
    cooldown = Cooldown("anthropic:x", hv.now() + 60_000, 1, "too many requests", hv.now())
    held = reasons(hv, host=host, supervisor=7, cooldowns=(cooldown,), trouble="the disk is full")
    assert held["disk"].text == "the disk is full"
    assert held["pause"].batch == batch.id and held["pause"].text.endswith(": lunch")
    assert "anthropic" in held["rate_limit"].text
    assert held["budget"].text.startswith("today's budget is used up")
    assert held["load"].text == "RAM at 91 %"
    idle = {"message": "", "zone": "safe", "target": 0}
    assert "capability" in reasons(hv, host=idle, supervisor=7)["requirements"].text
    assert reasons(hv)["supervisor"].command == "hv supervise --detach"


def test_home_shows_the_reasons_and_where_they_come_from(hv):
    spec = hypervisor.RunSpec(".", hypervisor.CommandSpec(("true",)))
    batch = hv.submit(spec, [NewTask("a")], HOSTILE).batch
    hv.pause(HOSTILE, reason=HOSTILE)
    hv.pause(reason="the network is down")
    part = Browser(hv).part("/", "waiting").text
    assert "Why nothing starts" in part and "<img" not in part
    assert f'href="/batches/{batch.id}"' in part
    assert "everything is paused by" in part and "the network is down" in part
    assert part.count(">Pause<") == 2 and ">Supervisor<" in part
    assert "hv supervise --detach" in part


def test_tasks_that_wait_for_a_claim_need_no_supervisor(hv):
    hv.add([NewTask("a")], batch="claimed by others")
    part = Browser(hv).part("/", "waiting").text
    assert "<h2>Queue</h2>" in part and "supervisor" not in part


def test_what_has_finished_since_the_last_visit_is_counted(hv, monkeypatch):
    hv.add([NewTask(name) for name in "abcd"])
    first, second, third, _ = hv.claim("w", limit=4)
    hv.complete(first.token)
    visit = hv.show(first.task.id).detail.task.updated_at
    hv.complete(second.token, now=visit + 5)
    hv.fail(third.token, "no", now=visit + 6)
    browser = Browser(hv)
    since = browser.part(f"/?since={visit}", "since").text
    assert re.findall("data-since>(.*?)</p>", since) == ["1 done, 1 failed since your last visit"]
    assert "last visit" not in browser.part("/", "since").text
    assert "last visit" not in browser.part(f"/?since={visit + 50}", "since").text
    monkeypatch.setattr(finishing, "MAX_READ", 1)
    cut = browser.part(f"/?since={visit - 1}", "since").text
    assert "at least 1 failed since your last visit" in cut
    assert browser.part("/?since=x", "since").status == 400


def test_running_attempts_say_who_works_on_them(hv):
    hv.add([NewTask(HOSTILE)], batch="b")
    hv.claim("w")
    for path in ("/", "/batches/b"):
        part = Browser(hv).part(path, "running").text
        assert "&lt;img" in part and 'class="age"' in part and "narrow" in part
