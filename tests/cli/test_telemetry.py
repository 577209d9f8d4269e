"""Traces of real runs, received over OTLP/HTTP."""

from __future__ import annotations

import os
import signal

import pytest

from hypervisor.resources.process_table import environment, snapshot
from tests.cli.conftest import _command_line as command_line
from tests.cli.conftest import until
from tests.support.otlp_receiver import OtlpReceiver, attributes


@pytest.fixture
def receiver():
    made = OtlpReceiver()
    yield made
    made.close()


@pytest.fixture
def hv(project, receiver):
    project.equip("sk-planted-4711")
    project.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver.url
    project.env["OTEL_EXPORTER_OTLP_HEADERS"] = "x-key=of-the-receiver"
    project.env["OTEL_SERVICE_NAME"] = "nightly"
    return project


def test_an_agents_run_is_one_trace_down_to_its_tools(hv, receiver):
    agent = ("--agent", "fake-claude", "--prompt", "act-edits", "--workspace", "project")
    done = hv("run", *agent, "--item", "secret item", "--name", "secret name", "--quiet")
    assert done.code == 0, done
    until(lambda: receiver.named("batch"), "the span of the batch")
    [batch], [task] = receiver.named("batch"), receiver.named("task")
    [attempt], tools = receiver.named("attempt"), receiver.named("execute_tool")
    assert task.parent_span_id == batch.span_id and attempt.parent_span_id == task.span_id
    assert tools and {tool.parent_span_id for tool in tools} == {attempt.span_id}
    for tool in tools:
        assert attempt.start_time_unix_nano <= tool.start_time_unix_nano
        assert tool.start_time_unix_nano <= tool.end_time_unix_nano
        assert tool.end_time_unix_nano <= attempt.end_time_unix_nano
    used = attributes(attempt)
    assert used["gen_ai.agent.name"] == "fake-claude" and used["gen_ai.usage.output_tokens"] > 0
    told = "".join(map(str, receiver.spans))
    for secret in ("secret", "act-edits", "sk-planted", "of-the-receiver"):
        assert secret not in told
    assert receiver.headers[0]["path"] == "/v1/traces"
    assert receiver.headers[0]["x-key"] == "of-the-receiver"
    assert receiver.resources[0]["service.name"] == "nightly"


def senders(hv):
    """Recognized by a variable that is set only here."""
    mark = f"XDG_RUNTIME_DIR={hv.runtime}".encode()
    pids = [process.pid for process in snapshot().values() if process.lives]
    return [
        pid for pid in pids if b"\0telemetry\0" in command_line(pid) and mark in environment(pid)
    ]


def test_a_killed_sender_loses_nothing_and_the_next_one_sends_the_same(hv, receiver):
    receiver.answering.clear()
    assert hv("run", "--item", "a", "--quiet", "--", "true").code == 0
    until(lambda: receiver.headers, "a request that waits")
    [pid] = senders(hv)
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid not in senders(hv), "its death")
    receiver.answering.set()  # what it sent arrives, but it can no longer note that
    assert hv("run", "--item", "b", "--quiet", "--", "true").code == 0
    until(lambda: len({span.span_id for span in receiver.named("task")}) == 2, "both tasks")
    spans = {(span.span_id, span.start_time_unix_nano) for span in receiver.named("task")}
    assert len(spans) == 2


def test_a_receiver_that_refuses_everything_does_not_touch_the_work(hv, receiver):
    receiver.answers = [400] * 1_000
    done = hv("run", "--item", "a", "--item", "b", "--quiet", "--", "true")
    assert done.code == 0, done
    until(lambda: receiver.headers, "an attempt to send")
    assert receiver.spans == []
    receiver.answers = []
    assert hv("run", "--item", "c", "--quiet", "--", "true").code == 0
    until(lambda: len(receiver.named("task")) == 3, "what was refused before")
    ids = [span.span_id for span in receiver.spans]
    assert len(set(ids)) == len(ids)
