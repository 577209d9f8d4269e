"""hv show"""

import argparse
import json

from hypervisor.agents.session import AgentSession
from hypervisor.cli.output import block, clock, colour, duration, one_line, respond
from hypervisor.cli.render import money_text
from hypervisor.queue.context import Context
from hypervisor.queue.look import Shown, show
from hypervisor.queue.task import Attempt, Task

EXAMPLE = "hv show 1q12deyb"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="its id, or the beginning of it")


def run(hv: Context, args: argparse.Namespace) -> int:
    shown = show(hv, args.task)
    return respond(args, shown, lambda: _print(shown))


def _print(shown: Shown) -> None:
    detail = shown.detail
    task = detail.task
    print(f"{task.id}  {colour(task.state, task.state)}  {one_line(task.title)}")
    for name, value in _fields(shown).items():
        if value:
            print(f"  {name:<12}{one_line(value)}")
    if task.body:
        print("\n" + block(task.body))
    sections = {
        "attempts": [_attempt(attempt) for attempt in detail.attempts],
        "sessions of agents": [_session(session) for session in shown.sessions],
        "receipts": [
            f"{clock(r.at)}  {one_line(r.actor)}  {one_line(r.text)}" for r in shown.receipts
        ],
    }
    for title, lines in sections.items():
        if lines:
            print("\n  ".join([f"\n{title}", *lines]))


def _fields(shown: Shown) -> dict[str, str]:
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
        "reason": task.reason or "",
        "unblock": task.unblock or "",
        "created": clock(task.created_at),
        "tries": _tries(task),
        "data": json.dumps(task.data, ensure_ascii=False) if task.data is not None else "",
        "result": json.dumps(task.result, ensure_ascii=False) if task.result is not None else "",
    }


def _session(session: AgentSession) -> str:
    """Which attempt, which agent, how it came out, what it cost, and its own name for it."""
    tokens = sum(session.tokens)
    cost = session.cost_micros
    parts = [
        session.outcome or "running",
        f"{tokens:,} tokens" if tokens else "",
        money_text(cost, session.estimated) if cost else "",
        f"refused tools: {' '.join(session.denied)}" if session.denied else "",
        f"resumes {session.resumes}" if session.resumes else session.session,
    ]
    return one_line(f"{session.attempt}  {session.agent}: {', '.join(p for p in parts if p)}")


def _tries(task: Task) -> str:
    if not task.attempts:
        return ""
    bad = f", {task.failures} failed of {task.retries + 1}" if task.failures else ""
    return f"{task.attempts}{bad}" + (f", {task.crashes} crashed" if task.crashes else "")


def _attempt(attempt: Attempt) -> str:
    took = duration(attempt.ended_at - attempt.claimed_at) if attempt.ended_at else "running"
    why = f": {one_line(attempt.reason)}" if attempt.reason else ""
    outcome = attempt.outcome or "in progress"
    head = f"{attempt.number}  {clock(attempt.claimed_at)}  {one_line(attempt.worker)}"
    return f"{head}  {outcome} ({took}){why}"
