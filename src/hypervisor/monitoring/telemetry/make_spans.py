"""From what has ended to spans. Attributes say what happened, never what the work is about, unless
`content` asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypervisor.agents.tool_times import ToolTime
from hypervisor.monitoring.telemetry.span import (
    Span,
    Value,
    attempt_span_id,
    batch_span_id,
    task_span_id,
    tool_span_id,
    trace_id,
)
from hypervisor.monitoring.telemetry.sql import TracedAttempt
from hypervisor.queue.lifecycle import CANCELLED, DONE, FAILED, state_name
from hypervisor.queue.task import Batch

GOOD, BAD = ("done",), ("failed", "crashed", "blocked")
MAX_TEXT = 500


def attempt_span(attempt: TracedAttempt, content: bool) -> Span:
    assert attempt.ended_at is not None
    outcome = attempt.outcome or ""
    attributes: dict[str, Value] = {
        **_task_attributes(attempt),
        "hypervisor.attempt.number": attempt.number,
        "hypervisor.attempt.outcome": outcome,
        "host.name": attempt.host,
    }
    if attempt.cpu_ms is not None:
        attributes["hypervisor.attempt.cpu_seconds"] = attempt.cpu_ms / 1000
    if attempt.peak_kb is not None:
        attributes["hypervisor.attempt.peak_memory_bytes"] = attempt.peak_kb * 1024
    if content and attempt.reason:
        attributes["hypervisor.attempt.reason"] = attempt.reason[:MAX_TEXT]
    return Span(
        trace_id(attempt.batch, attempt.task),
        attempt_span_id(attempt.task, attempt.number),
        task_span_id(attempt.task),
        "attempt",
        attempt.claimed_at,
        attempt.ended_at,
        True if outcome in GOOD else False if outcome in BAD else None,
        attributes | _agent_attributes(attempt),
        outcome if outcome in BAD else "",
    )


def _agent_attributes(attempt: TracedAttempt) -> dict[str, Value]:
    """By the conventions for generative AI, as of version 1.36."""
    if not attempt.agent:
        return {}
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": attempt.agent,
    }
    if used := attempt.used:
        attributes["gen_ai.usage.input_tokens"] = used.input_tokens
        attributes["gen_ai.usage.output_tokens"] = used.output_tokens
        attributes["hypervisor.agent.turns"] = used.turns
        if used.cost_micros is not None:
            attributes["hypervisor.agent.cost_usd"] = used.cost_micros / 1_000_000
    return attributes


def tool_spans(attempt: TracedAttempt, calls: Sequence[ToolTime]) -> Iterator[Span]:
    """A call without a result lasted until the end of its attempt, as far as is known."""
    assert attempt.ended_at is not None
    for number, call in enumerate(calls, 1):
        yield Span(
            trace_id(attempt.batch, attempt.task),
            tool_span_id(attempt.task, attempt.number, number),
            attempt_span_id(attempt.task, attempt.number),
            f"execute_tool {call.name}",
            call.started_at,
            max(call.ended_at or attempt.ended_at, call.started_at),
            None if call.ended_at is None else not call.failed,
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name},
        )


def task_span(attempts: Sequence[TracedAttempt], state: str, at: int, title: str = "") -> Span:
    """From when the task was added to its end. `title`: only if content is wanted."""
    last = attempts[-1]
    attributes: dict[str, Value] = {
        **_task_attributes(last),
        "hypervisor.task.state": state_name(state),
        "hypervisor.task.attempts": len(attempts),
    }
    if title:
        attributes["hypervisor.task.title"] = title[:MAX_TEXT]
    return Span(
        trace_id(last.batch, last.task),
        task_span_id(last.task),
        batch_span_id(last.batch) if last.batch else 0,
        f"task {last.type}",
        last.created_at,
        max(at, last.created_at),
        {DONE: True, FAILED: False}.get(state),
        attributes,
        state_name(state) if state == FAILED else "",
    )


def batch_span(batch: Batch, states: dict[str, int], at: int, content: bool) -> Span:
    """From when the batch was made to the end of its last attempt."""
    attributes: dict[str, Value] = {
        "hypervisor.batch.id": batch.id,
        **{
            f"hypervisor.batch.{state}": states.get(state, 0) for state in (DONE, FAILED, CANCELLED)
        },
    }
    if content:
        attributes["hypervisor.batch.name"] = batch.name
    return Span(
        trace_id(batch.id, ""),
        batch_span_id(batch.id),
        0,
        "batch",
        batch.created_at,
        max(at, batch.created_at),
        not states.get(FAILED),
        attributes,
        "failed" if states.get(FAILED) else "",
    )


def _task_attributes(attempt: TracedAttempt) -> dict[str, Value]:
    attributes: dict[str, Value] = {
        "hypervisor.task.id": attempt.task,
        "hypervisor.task.type": attempt.type,
    }
    return attributes | ({"hypervisor.batch.id": attempt.batch} if attempt.batch else {})
