"""What came of an agent's run, from evidence, the surest first.

1. What the ledger says about the claim: whoever ended it has spoken.
2. The structured report, unless the stream shows that nothing could have been done.
3. Trouble that the stream told and that was not overcome.
4. The last line of the agent's last message.
5. The exit code. It proves nothing when it is 0: agents end so after being refused
   every tool, after SIGTERM, and with an error in the middle of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypervisor.domain.agents import heard as kinds
from hypervisor.domain.agents.heard import Heard, Trouble
from hypervisor.domain.agents.outcome import OUTCOMES, Outcome
from hypervisor.domain.agents.report import (
    BLOCKED,
    COMPLETED,
    EMPTY,
    FAILED,
    report_in,
    structured_in,
)
from hypervisor.domain.attempt import Ended

BY_TROUBLE = {
    kinds.QUOTA: "quota",
    kinds.OVERLOAD: "overload",
    kinds.AUTH: "auth",
    kinds.REQUEST: "bad_request",
    kinds.SERVER: "server_error",
    kinds.NETWORK: "network",
    kinds.STREAM: "stream_error",
    kinds.TURNS: "max_turns",
    kinds.BUDGET: "over_budget",
    kinds.RESUME: "lost_session",
}
NEXT_STEPS = {
    "tools_denied": "Allow them with --allow TOOL, or give the batch --permissions full.",
    "auth": "Log in to the agent, or set its key in the environment; `hv agents` tells which.",
    "max_turns": "Give it more with --turns, or make the task smaller.",
    "over_budget": "Give it more with --task-budget, or make the task smaller.",
    "bad_request": "Look at the output: a wrong model's name is the usual cause.",
}
LONGEST = 2_000


def judge(
    heard: Heard,
    ended: Ended,
    ledger: str | None,
    wants_report: bool = True,
    stopped: bool = False,
    hung: bool = False,
    codes: Mapping[int, str] | None = None,
) -> Outcome:
    """The outcome of a run that has ended.

    `ledger` is how the attempt ended there, None if it has not. `stopped`: we ended it because
    somebody wanted that, not because of what the stream told. `hung`: we ended it because it
    went on after its last word. `codes` are the profile's exit codes. Without `wants_report`
    (a run that claims by itself, a probe) an end without one is fine."""
    if ledger is not None:
        return _outcome("settled", f"it ended the claim as {ledger}")
    if stopped:
        return _outcome("stopped", "it was stopped")
    structured = structured_in(heard)
    if structured is not None:
        return _reported(structured, heard)
    if heard.trouble is not None:
        return _troubled(heard.trouble, heard, ended)
    report = report_in(heard)
    if report is not None and not (report["status"] == EMPTY and wants_report):
        return _reported(report, heard)
    return _silent(heard, ended, wants_report, hung, codes or {})


def _reported(report: dict[str, Any], heard: Heard) -> Outcome:
    status = report["status"]
    result = {name: value for name, value in report.items() if name != "status"}
    if all_denied(heard):  # whatever it says of that
        return _denied(heard, report.get("reason", ""))
    if status in (COMPLETED, EMPTY):
        return _outcome("completed", result=result)
    name = {BLOCKED: "blocked", FAILED: "refused"}[status]
    return _outcome(
        name,
        report.get("reason") or report.get("summary") or f"it reported {status} without a reason",
        report.get("evidence", ""),
        report.get("next_step", ""),
        result,
    )


def all_denied(heard: Heard) -> bool:
    """Whether tools were refused and none was ever carried out."""
    return bool(heard.denied) and heard.tools <= 0


def _troubled(trouble: Trouble, heard: Heard, ended: Ended) -> Outcome:
    name = BY_TROUBLE.get(trouble.kind)
    if name is None:
        name = "stream_error" if ended.ok else "crashed"
    status = f" (HTTP {trouble.status})" if trouble.status else ""
    text = " ".join(trouble.text.split())
    return _outcome(name, f"{OUTCOMES[name][1]}{status}", text or _last_word(heard))


def _silent(
    heard: Heard, ended: Ended, wants_report: bool, hung: bool, codes: Mapping[int, str]
) -> Outcome:
    """Neither a report nor trouble: what is left is how the program ended."""
    kind = codes.get(ended.exit_code) if ended.exit_code else None
    if kind is not None and not hung:
        return _troubled(Trouble(kind, f"exit code {ended.exit_code}"), heard, ended)
    if heard.mcp == "dead":
        return _outcome("mcp_dead", evidence=_last_word(heard))
    if all_denied(heard):
        return _denied(heard)
    if hung:
        return _after_closing("hung", heard, wants_report)
    if not ended.ok:
        return _outcome("crashed", f"the agent ended badly: {ended.reason()}", _last_word(heard))
    if heard.closes and not heard.ended:
        # Some end with 0 when they are killed; what they never do then is to close their stream.
        return _outcome("crashed", "the agent ended without its closing word", _last_word(heard))
    return _after_closing("nothing_done", heard, wants_report)


def _after_closing(name: str, heard: Heard, wants_report: bool) -> Outcome:
    if not wants_report and heard.ok is not False:
        return _outcome("completed", result={"summary": _last_word(heard)})
    return _outcome(name, evidence=_last_word(heard))


def _denied(heard: Heard, told: str = "") -> Outcome:
    names = ", ".join(dict.fromkeys(heard.denied))
    said = told or " ".join(heard.said.split())
    return _outcome("tools_denied", f"every tool it asked for was refused: {names}", said)


def _last_word(heard: Heard) -> str:
    denied = ", ".join(dict.fromkeys(heard.denied))
    said = " ".join(heard.said.split())[-LONGEST:]
    return f"{said} (refused: {denied})".strip() if denied else said


def _outcome(
    name: str, reason: str = "", evidence: str = "", next_step: str = "", result: Any = None
) -> Outcome:
    follows, meaning = OUTCOMES[name]
    return Outcome(
        name, follows, (reason or meaning)[:LONGEST], evidence[:LONGEST],
        next_step or NEXT_STEPS.get(name, ""), result,
    )  # fmt: skip
