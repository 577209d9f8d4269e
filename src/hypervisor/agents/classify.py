"""Classifies how an agent's session ended, by this evidence, the most reliable first.

1. The ledger: how the claim was ended, if it was.
2. The structured report, unless the stream shows that nothing could have been done.
3. An error that the stream reported and the agent did not overcome.
4. The last line of the agent's last message.
5. The exit code. 0 proves nothing: agents exit with 0 after all tools were refused, after SIGTERM,
   and after an error in the middle of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hypervisor.agents import stream_state as kinds
from hypervisor.agents.final_report import (
    BLOCKED,
    COMPLETED,
    EMPTY,
    report_in,
    structured_in,
)
from hypervisor.agents.outcome import OUTCOMES, Action, Outcome, OutcomeName
from hypervisor.agents.stream_state import ErrorKind, StreamError, StreamState
from hypervisor.queue.attempt import Ended
from hypervisor.queue.message import question_in, unblock_text

if TYPE_CHECKING:
    from hypervisor.agents.gateway.admission import Refusal, RefusalKind

BY_ERROR: Mapping[ErrorKind, OutcomeName] = {
    kinds.QUOTA: "quota",
    kinds.OVERLOAD: "overload",
    kinds.AUTH: "auth",
    kinds.BILLING: "billing",
    kinds.ACCESS: "no_access",
    kinds.REQUEST: "bad_request",
    kinds.SERVER: "server_error",
    kinds.NETWORK: "network",
    kinds.STREAM: "stream_error",
    kinds.TURNS: "max_turns",
    kinds.BUDGET: "over_budget",
    kinds.RESUME: "lost_session",
}
COOLDOWN_KINDS = {BY_ERROR[kind]: kind for kind in (kinds.QUOTA, *kinds.OUTAGES)}  # by outcome
NEXT_STEPS: Mapping[OutcomeName, str] = {
    "tools_denied": "Allow them with --allow TOOL, or give the batch --permissions full.",
    "auth": "Log in to the agent, or set its key in the environment; `hv agents` shows which.",
    "billing": "Add credit at the provider, or use the key of another account.",
    "no_access": "Choose another model with --model, or ask the provider for access.",
    "max_turns": "Raise --turns, or make the task smaller.",
    "over_budget": "Raise --task-budget, or make the task smaller.",
    "bad_request": "Check the output: the usual cause is a wrong model name.",
}
MAX_LENGTH = 2_000
BY_REFUSAL: Mapping[RefusalKind, tuple[OutcomeName, Action]] = {
    "task": ("over_budget", Action.FAIL),
    "batch": ("over_budget", Action.RELEASE),
    "day": ("over_budget", Action.RELEASE),
    "quota": ("quota", Action.RELEASE),
    "overload": ("overload", Action.RELEASE),
}


def classify(
    state: StreamState,
    ended: Ended,
    ledger: str | None,
    *,
    wants_report: bool = True,
    hung: bool = False,
    codes: Mapping[int, ErrorKind] | None = None,
    refusal: Refusal | None = None,
) -> Outcome:
    """The outcome of an ended session.

    `ledger` is how the attempt ended in the store, None if it has not. `hung`: it was stopped
    because it kept running after its end event. `codes` are the profile's exit codes. Without
    `wants_report` (pull agents, probes) no report is expected. `refusal`: the gateway refused its
    last call."""
    if ledger == "released" and refusal is not None and refusal.kind == "claim":
        return _outcome("lost_claim", "another process ended its claim")
    if ledger is not None:
        return _outcome("settled", f"it ended the claim as {ledger}")
    structured = structured_in(state)
    if structured is not None:
        return _from_report(structured, state)
    if refusal is not None and refusal.kind in BY_REFUSAL and not (state.ok and ended.ok):
        return _from_refusal(refusal)
    if state.error is not None:
        return _from_error(state.error, state, ended)
    report = report_in(state)
    if report is not None and not (report["status"] == EMPTY and wants_report):
        return _from_report(report, state)
    return _from_exit(state, ended, wants_report, hung, codes or {})


def _from_report(report: dict[str, Any], state: StreamState) -> Outcome:
    status = report["status"]
    result = {name: value for name, value in report.items() if name != "status"}
    if all_denied(state):  # whatever it reports
        return _denied(state, report.get("reason", ""))
    if status in (COMPLETED, EMPTY):
        return _outcome("completed", result=result)
    name: OutcomeName = "blocked" if status == BLOCKED else "failed"
    unblock = unblock_text(report.get("next_step", ""), report.get("question", ""))
    if status == BLOCKED and not question_in(unblock):
        unblock = " ".join(filter(None, (unblock, _permission_question(state))))
    return _outcome(
        name,
        report.get("reason") or report.get("summary") or f"it reported {status} without a reason",
        report.get("evidence", ""),
        unblock,
        result,
    )


def all_denied(state: StreamState) -> bool:
    """Whether tools were refused and none was run."""
    return bool(state.denied) and state.tools <= 0


def _from_error(error: StreamError, state: StreamState, ended: Ended) -> Outcome:
    name = BY_ERROR.get(error.kind) or ("stream_error" if ended.ok else "crashed")
    status = f" (HTTP {error.status})" if error.status else ""
    text = " ".join(error.text.split())
    outcome = _outcome(name, f"{OUTCOMES[name][1]}{status}", text or _last_message(state))
    # An unknown error may never go away.
    return outcome if error.kind in BY_ERROR else outcome._replace(action=Action.RETRY)


def _from_refusal(refusal: Refusal) -> Outcome:
    """Only the task's own budget is the task's fault."""
    name, action = BY_REFUSAL[refusal.kind]
    return _outcome(name, refusal.reason)._replace(action=action, next_step="")


def cooldown_error(outcome: Outcome, error: StreamError | None, reason: str) -> StreamError | None:
    """The error that starts a cooldown of the account; None if there is none."""
    kind = COOLDOWN_KINDS.get(outcome.name)
    if kind is None or outcome.action is not Action.RELEASE:
        return None
    return error if error is not None and error.kind == kind else StreamError(kind, reason)


def _from_exit(
    state: StreamState, ended: Ended, wants_report: bool, hung: bool, codes: Mapping[int, ErrorKind]
) -> Outcome:
    """Without a report or an error, the exit status decides."""
    kind = codes.get(ended.exit_code) if ended.exit_code else None
    if kind is not None and not hung:
        return _from_error(StreamError(kind, f"exit code {ended.exit_code}"), state, ended)
    if state.mcp == "dead":
        return _outcome("mcp_dead", evidence=_last_message(state))
    if all_denied(state):
        return _denied(state)
    if hung:
        return _without_report("hung", state, wants_report)
    if not ended.ok:
        return _outcome("crashed", f"the agent failed: {ended.reason()}", _last_message(state))
    if state.closes and not state.ended:
        # Some exit with 0 when they are killed, but then they never close their stream.
        return _outcome("crashed", "the agent exited without a final report", _last_message(state))
    return _without_report("nothing_done", state, wants_report)


def _without_report(name: OutcomeName, state: StreamState, wants_report: bool) -> Outcome:
    if not wants_report and state.ok is not False:
        return _outcome("completed", result={"summary": _last_message(state)})
    return _outcome(name, evidence=_last_message(state))


def _permission_question(state: StreamState) -> str:
    if not state.grantable:
        return ""
    from hypervisor.agents.grants import permission_question  # only over ACP

    return permission_question(state)


def _denied(state: StreamState, reason: str = "") -> Outcome:
    names = ", ".join(dict.fromkeys(state.denied))
    evidence = reason or " ".join(state.message.split())
    reason = f"every tool it asked for was refused: {names}"
    return _outcome("tools_denied", reason, evidence, _permission_question(state))


def _last_message(state: StreamState) -> str:
    denied = ", ".join(dict.fromkeys(state.denied))
    message = " ".join(state.message.split())[-MAX_LENGTH:]
    return f"{message} (refused: {denied})".strip() if denied else message


def _outcome(
    name: OutcomeName,
    reason: str = "",
    evidence: str = "",
    next_step: str = "",
    result: Any = None,
) -> Outcome:
    action, meaning = OUTCOMES[name]
    return Outcome(
        name,
        action,
        (reason or meaning)[:MAX_LENGTH],
        evidence[:MAX_LENGTH],
        next_step or NEXT_STEPS.get(name, ""),
        result,
    )
