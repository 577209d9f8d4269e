"""hv show"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypervisor.batches.command_line import command_line
from hypervisor.cli.output import block, clock, colour, duration, one_line, respond
from hypervisor.cli.render import cost_text
from hypervisor.core.records import NamedTuple
from hypervisor.queue.agent_session import AgentSession
from hypervisor.queue.context import Context
from hypervisor.queue.lifecycle import BLOCKED, REVIEW
from hypervisor.queue.message import question_of, shown_state
from hypervisor.queue.queries import TaskOverview, show
from hypervisor.queue.task import Attempt, Message, Task

if TYPE_CHECKING:
    from hypervisor.git.queue_status import LandedTask

EXAMPLE = "hv show 1q12deyb"


class Work(NamedTuple):
    """What became of the work in a clone: where it was merged, or the end of what the verification
    printed that it failed; `unchanged` if there was none."""

    merged: LandedTask | None = None
    verification: Sequence[str] = ()
    unchanged: bool = False


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="id of the task, or a unique part of it")


def run(hv: Context, args: argparse.Namespace) -> int:
    shown = show(hv, args.task)
    command = command_line(hv, shown.detail.task, shown.batch)
    work = _work(hv, shown)
    more = {"command": command, "exit_code": _exit_code(shown), **work._asdict()}
    more["question"] = question_of(shown.detail.task)
    answer = {**shown._asdict(), **more}
    return respond(args, answer, lambda: _print(shown, command, work), hv=hv)


def _work(hv: Context, shown: TaskOverview) -> Work:
    spec, task = shown.batch.spec if shown.batch else None, shown.detail.task
    if not isinstance(spec, dict) or spec.get("workspace") != "clone":
        return Work()
    from hypervisor.git.queue_status import changed_nothing, failed_output, landed_tasks

    [landed] = landed_tasks(hv, [task.id])
    merged = landed if landed.commit else None
    return Work(merged, failed_output(hv, task), changed_nothing(hv, task))


def _print(shown: TaskOverview, command: Sequence[str], work: Work) -> None:
    detail = shown.detail
    task = detail.task
    print(f"{task.id}  {colour(shown_state(task), task.state)}  {one_line(task.title)}")
    fields = {"command": shlex.join(command), **_fields(shown)}
    if work.merged:
        note = "" if work.merged.verified else " (NOT VERIFIED)"
        fields["merged"] = f"{work.merged.commit[:12]} on {work.merged.target}{note}"
    fields["changed"] = "nothing" if work.unchanged else ""
    for name, value in fields.items():
        if value:
            print(f"  {name:<12}{one_line(value)}")
    if task.body:
        print("\n" + block(task.body))
    sections = {
        "the failed verification printed": [one_line(line) for line in work.verification],
        "attempts": [_attempt(attempt) for attempt in detail.attempts],
        "agent sessions": [_session(session) for session in shown.sessions],
        "messages": [_message(message) for message in shown.messages],
        "receipts": [
            f"{clock(r.at)}  {one_line(r.actor)}  {one_line(r.text)}" for r in shown.receipts
        ],
    }
    for title, lines in sections.items():
        if lines:
            print("\n  ".join([f"\n{title}", *lines]))


def _fields(shown: TaskOverview) -> dict[str, str]:
    detail, task = shown.detail, shown.detail.task
    return {
        "type": task.type,
        "priority": task.priority,
        "batch": f"{task.batch}  {shown.batch.name}" if shown.batch else task.batch,
        "branch": task.branch,
        "assignee": task.assignee,
        "requires": ", ".join(task.requires),
        "key": task.key or "",
        "exclusive": ", ".join(detail.exclusive),
        "after": ", ".join(detail.after),
        "waits for": ", ".join(detail.waits_for),
        "not before": clock(task.start_at),
        "lease until": clock(task.lease_until),
        "exit code": "" if (code := _exit_code(shown)) is None else str(code),
        "reason": task.reason or "",
        "asks": question_of(task),
        "unblock": "" if task.unblock == question_of(task) else task.unblock or "",
        "next": _next_steps(task),
        "created": clock(task.created_at),
        "tries": _tries(task),
        "data": json.dumps(task.data, ensure_ascii=False) if task.data is not None else "",
        "result": json.dumps(task.result, ensure_ascii=False) if task.result is not None else "",
    }


def _next_steps(task: Task) -> str:
    """The commands that decide about a task that waits for a person."""
    if task.state == BLOCKED:
        return f"hv answer {task.id} 'TEXT' or hv retry {task.id}"
    if task.state != REVIEW:
        return ""
    return f"hv approve {task.id}, hv reject {task.id} or hv retry {task.id}"


def _exit_code(shown: TaskOverview) -> int | None:
    """The exit code of the last attempt; None if it was stopped."""
    attempts = shown.detail.attempts
    return attempts[-1].exit_code if attempts else None


def _session(session: AgentSession) -> str:
    """Attempt, agent, outcome, cost, and the agent's id of the session."""
    tokens = sum(session.tokens)
    cost = session.cost_micros
    parts = [
        session.outcome or "running",
        f"{tokens:,} tokens" if tokens else "",
        cost_text(cost, session.estimated) if cost else "",
        f"refused tools: {' '.join(session.denied)}" if session.denied else "",
        f"resumes {session.resumes}" if session.resumes else session.session,
    ]
    return one_line(f"{session.attempt}  {session.agent}: {', '.join(p for p in parts if p)}")


def _message(message: Message) -> str:
    """When, who, what, and whether an attempt has been given it."""
    given = "not read yet" if message.attempt is None else f"given to attempt {message.attempt}"
    return one_line(
        f"{clock(message.at)}  {message.actor}  {message.kind} ({given}): {message.text}"
    )


def _tries(task: Task) -> str:
    if not task.attempts:
        return ""
    left = max(task.retries + 1 - task.failures, 0)
    parts = [
        str(task.attempts),
        f"{task.failures} failed" if task.failures else "",
        f"{task.crashes} crashed" if task.crashes else "",
        f"{left or 'no'} {'retry' if left == 1 else 'retries'} left"
        if task.failures and task.retries
        else "",
    ]
    return ", ".join(filter(None, parts))


def _attempt(attempt: Attempt) -> str:
    took = duration(attempt.ended_at - attempt.claimed_at) if attempt.ended_at else "running"
    why = f": {one_line(attempt.reason)}" if attempt.reason else ""
    outcome = attempt.outcome or "in progress"
    head = f"{attempt.number}  {clock(attempt.claimed_at)}  {one_line(attempt.worker)}"
    return f"{head}  {outcome} ({took}){why}"
