"""Traces: which spans are made of what has ended, sent once, in whatever order things fail."""

from __future__ import annotations

import pytest

import hypervisor
from hypervisor import NewTask
from hypervisor.agents.stream_events import Message, ToolCall, ToolResult
from hypervisor.agents.tool_times import ToolTime, ToolTimes, tool_times
from hypervisor.core.errors import InvalidInput, StoreUnavailable
from hypervisor.monitoring.telemetry import sender as sender_module
from hypervisor.monitoring.telemetry import sql
from hypervisor.monitoring.telemetry.progress import sent
from hypervisor.monitoring.telemetry.sender import TraceSender
from hypervisor.monitoring.telemetry.starter import TelemetryStarter
from hypervisor.runs.config import settings_from
from hypervisor.runs.telemetry_settings import TelemetrySettings, telemetry_of
from tests.support.otlp_receiver import OtlpReceiver, attributes

OTEL = "OTEL_EXPORTER_OTLP_ENDPOINT"
SECRET = "the secret plan"


@pytest.fixture
def receiver():
    made = OtlpReceiver()
    yield made
    made.close()


@pytest.fixture
def hv(tmp_path, receiver):
    (tmp_path / "config.toml").write_text(f'[telemetry]\nendpoint = "{receiver.url}/v1/traces"\n')
    with hypervisor.open(tmp_path / "store.db", relaxed=True) as opened:
        sent(opened)  # from here on
        yield opened


def send(hv):
    """As a process does that is started once."""
    made = TraceSender(hv, {})
    assert made._connect()
    before = None
    while before != (before := sent(hv)) and made.send_page(before):
        pass


def settle(hv, verdict="complete", **more):
    [lease] = hv.claim("ann")
    getattr(hv, verdict)(lease.token, **more)
    return lease


def work(hv):
    """A batch of two tasks: one is done at the second attempt, one fails."""
    hv.add([NewTask(SECRET, type="sort")], batch="the name")
    settle(hv, "release", reason=SECRET)
    settle(hv, result={"answer": SECRET})
    hv.add([NewTask("another", type="sort")], batch="the name")
    settle(hv, "fail", reason=SECRET)


def test_a_batch_is_a_trace_of_tasks_and_attempts(hv, receiver):
    work(hv)
    send(hv)
    [batch] = receiver.named("batch")
    tasks, attempts = receiver.named("task sort"), receiver.named("attempt")
    assert {span.trace_id for span in receiver.spans} == {batch.trace_id}
    assert batch.parent_span_id == b"" and {t.parent_span_id for t in tasks} == {batch.span_id}
    assert [attributes(t)["hypervisor.task.state"] for t in tasks] == ["done", "failed"]
    parents = [task.span_id for task in tasks for _ in range(2)][:3]
    assert sorted(a.parent_span_id for a in attempts) == sorted(parents)
    outcomes = [attributes(a)["hypervisor.attempt.outcome"] for a in attempts]
    assert outcomes == ["released", "done", "failed"]
    assert [a.status.code for a in attempts] == [0, 1, 2]  # neither, ok, error
    for span in receiver.spans:
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    assert receiver.resources[0]["service.name"] == "hypervisor"
    assert receiver.headers[0]["path"] == "/v1/traces"


def test_nothing_is_said_about_the_work_unless_it_is_asked_for(hv, receiver, tmp_path):
    work(hv)
    send(hv)
    told = str([str(span) for span in receiver.spans])
    assert SECRET not in told and "the name" not in told and "another" not in told
    config = tmp_path / "config.toml"
    config.write_text(config.read_text() + "content = true\n")
    with hypervisor.open(tmp_path / "store.db") as again:
        again.add([NewTask(SECRET)], batch="the name")
        settle(again, "fail", reason="because")
        send(again)
    told = str([str(span) for span in receiver.spans])
    assert SECRET in told and "the name" in told and "because" in told


def test_a_restart_neither_loses_nor_repeats_spans(hv, receiver):
    work(hv)
    send(hv)
    before = len(receiver.spans)
    send(hv)
    assert len(receiver.spans) == before == 6
    hv.add("alone")
    settle(hv)
    send(hv)
    assert [span.name for span in receiver.spans[before:]] == ["attempt", "task task"]
    ids = [span.span_id for span in receiver.spans]
    assert len(set(ids)) == len(ids)


def test_after_a_crash_the_same_spans_have_the_same_ids(hv, receiver, monkeypatch):
    work(hv)
    with monkeypatch.context() as patch:
        patch.setattr(sender_module, "save", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            send(hv)
    first = [(s.trace_id, s.span_id, s.name, s.end_time_unix_nano) for s in receiver.spans]
    send(hv)
    again = [(s.trace_id, s.span_id, s.name, s.end_time_unix_nano) for s in receiver.spans]
    assert again == first * 2


def test_what_was_not_accepted_is_sent_later(hv, receiver):
    work(hv)
    receiver.answers = [400]
    place = sent(hv)
    send(hv)
    assert receiver.spans == [] and sent(hv) == place
    send(hv)
    assert len(receiver.spans) == 6


def test_a_receiver_that_is_gone_or_a_broken_store_ends_the_sender_only(hv, receiver, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    receiver.close()
    work(hv)
    place = sent(hv)
    TraceSender(hv, {}).run()
    assert sent(hv) == place

    def broken(*_):
        raise StoreUnavailable("gone")

    monkeypatch.setattr(sender_module, "sent", broken)
    TraceSender(hv, {}, export=lambda spans: True).run()


def test_many_events_are_sent_in_pages_and_a_batch_only_when_it_is_over(hv, receiver, monkeypatch):
    monkeypatch.setattr(sender_module, "PAGE", 10)
    hv.add([NewTask(str(n)) for n in range(30)], batch="many")
    for _ in range(20):
        settle(hv)
    send(hv)
    assert len(receiver.named("task")) == 20 and not receiver.named("batch")
    assert sent(hv).open
    for _ in range(10):
        settle(hv)
    send(hv)
    assert len(receiver.named("task")) == 30 and len(receiver.named("batch")) == 1
    assert sent(hv).open == ()


def test_what_ended_before_traces_were_wanted_is_not_sent(tmp_path, receiver):
    with hypervisor.open(tmp_path / "other.db", relaxed=True) as hv:
        work(hv)
        environment = {OTEL: receiver.url}
        made = TraceSender(hv, environment, export=lambda spans: pytest.fail(str(spans)))
        assert made.send_page(sent(hv))


# The tools of an agent


def test_tool_calls_are_spans_below_their_attempt(hv, receiver, monkeypatch):
    hv.add("agent's work")
    [lease] = hv.claim("ann")
    task = lease.task.id
    path = hv.outputs.tools_path(task, 1)
    times = ToolTimes(path)
    at = hv.now()
    times.note([Message("hello"), ToolCall("Bash", {"command": SECRET})], at)
    times.note([ToolResult(SECRET, True), ToolCall("Read", SECRET)], at + 5)
    hv.complete(lease.token)
    monkeypatch.setattr(sql, "_attempt", _by_an_agent(sql._attempt))
    send(hv)
    tools, [attempt] = receiver.named("execute_tool"), receiver.named("attempt")
    assert [span.name for span in tools] == ["execute_tool Bash", "execute_tool Read"]
    assert {span.parent_span_id for span in tools} == {attempt.span_id}
    assert tools[0].end_time_unix_nano - tools[0].start_time_unix_nano == 5_000_000
    assert tools[0].status.code == 2 and SECRET not in str(tools)
    assert attributes(attempt)["gen_ai.agent.name"] == "claude"


def _by_an_agent(made):
    return lambda row, kind: made(row, kind)._replace(agent="claude")


def test_the_file_of_tool_times_is_read_even_if_it_is_cut_off(tmp_path):
    text = '[1, "a"]\n[2, "b"]\n[3, false]\nnonsense\n[4, true]\n[5, "c"]\n[6, '
    assert tool_times(text) == [
        ToolTime("a", 1, 3, False),
        ToolTime("b", 2, 4, True),
        ToolTime("c", 5, None),
    ]
    ToolTimes(str(tmp_path / "no" / "folder")).note([ToolCall("x", None)], 1)  # is ignored


# Settings, and the supervisor's part


@pytest.mark.parametrize(
    ("table", "environment", "wanted"),
    [
        ({}, {}, False),
        ({"endpoint": "http://127.0.0.1:4318/v1/traces"}, {}, True),
        ({}, {OTEL: "http://127.0.0.1:4318"}, True),
        ({"traces": True}, {}, True),
        ({"traces": False}, {OTEL: "http://127.0.0.1:4318"}, False),
        ({"traces": True}, {"OTEL_SDK_DISABLED": "true"}, False),
        ({"traces": True}, {"OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_when_traces_are_sent(table, environment, wanted):
    settings = settings_from({"telemetry": table}).telemetry
    assert (telemetry_of(settings, environment) is not None) == wanted


@pytest.mark.parametrize("endpoint", ["ftp://x", "x", 1, "https://me:password@example.org/"])
def test_an_endpoint_is_a_url_without_a_password(endpoint):
    with pytest.raises(InvalidInput, match=r"telemetry\.endpoint"):
        settings_from({"telemetry": {"endpoint": endpoint}})


class Launcher:
    def __init__(self):
        self.started = 0

    def start_telemetry(self):
        self.started += 1


def test_the_sender_is_started_when_something_happened_and_seldom_if_it_gets_nowhere(hv):
    hv.launcher = launcher = Launcher()
    starter, now = TelemetryStarter(hv, {}), hv.now()
    starter.tick(now)
    assert launcher.started == 0
    hv.add("one")
    for second in range(0, 1200):
        starter.tick(now + second * 1000)
    assert 5 <= launcher.started <= 12  # 2, 4, 8 … seconds, then every 5 minutes
    started = launcher.started
    starter.last_look()
    assert launcher.started == started + 1
    send(hv)
    for second in range(1200, 1800):
        starter.tick(now + second * 1000)
    assert launcher.started == started + 1


def test_without_settings_nothing_is_read_or_started(tmp_path, monkeypatch):
    launcher = Launcher()
    with hypervisor.open(tmp_path / "plain.db", relaxed=True) as hv:
        monkeypatch.setattr(hv, "launcher", launcher)
        TelemetryStarter(hv, {}).tick(hv.now())
        TelemetryStarter(hv, {}).last_look()
    assert launcher.started == 0
    assert telemetry_of(TelemetrySettings(), {}) is None
