"""The outcomes of an agent's session, and what the worker does about each."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from hypervisor.core.records import NamedTuple
from hypervisor.queue.task import Json


class Action(StrEnum):
    """What the worker does about an outcome."""

    COMPLETE = "complete"
    BLOCK = "block"
    FAIL = "fail"
    RETRY = "retry"  # count a failure, and retry if allowed
    RELEASE = "release"  # put back without counting a failure
    GIVE_UP = "give_up"  # and pause the batch
    NOTHING = "nothing"


OutcomeName = Literal[
    "settled",
    "completed",
    "blocked",
    "misfit",
    "noted",
    "failed",
    "nothing_done",
    "tools_denied",
    "hung",
    "mcp_dead",
    "stream_error",
    "quota",
    "overload",
    "auth",
    "billing",
    "no_access",
    "bad_request",
    "server_error",
    "network",
    "max_turns",
    "over_budget",
    "lost_session",
    "crashed",
    "lost_claim",
    "stopped",
    "attached",
]
# name → (action, meaning)
OUTCOMES: dict[OutcomeName, tuple[Action, str]] = {
    "settled": (Action.NOTHING, "the agent ended the claim itself"),
    "completed": (Action.COMPLETE, "it reported the work done"),
    "blocked": (Action.BLOCK, "it cannot continue and gives the reason"),
    "misfit": (Action.RELEASE, "its data does not match the schema"),
    "noted": (Action.RELEASE, "a note arrived that it had not read; it continues with it"),
    "failed": (Action.FAIL, "it reported that it failed"),
    "nothing_done": (Action.RETRY, "it exited with 0 but reported no result"),
    "tools_denied": (Action.BLOCK, "the tools it needed were denied"),
    "hung": (Action.RETRY, "it sent its last message, reported no result and did not exit"),
    "mcp_dead": (Action.RETRY, "it could not connect to Hypervisor"),
    "stream_error": (Action.RELEASE, "an error in the middle of an answer"),
    "quota": (Action.RELEASE, "a rate limit of the account"),
    "overload": (Action.RELEASE, "the provider is overloaded"),
    "auth": (Action.GIVE_UP, "not logged in, or the key was rejected"),
    "billing": (Action.GIVE_UP, "the provider's account is out of credit"),
    "no_access": (Action.GIVE_UP, "the account may not use this model"),
    "bad_request": (Action.FAIL, "the provider rejected the request"),
    "server_error": (Action.RELEASE, "the provider failed"),
    "network": (Action.RELEASE, "no connection to the provider"),
    "max_turns": (Action.FAIL, "it reached its maximum number of turns"),
    "over_budget": (Action.FAIL, "it reached its budget"),
    "lost_session": (Action.RELEASE, "the session to resume no longer exists; a new one starts"),
    "crashed": (Action.RETRY, "the program failed without an error message"),
    "lost_claim": (Action.NOTHING, "its claim ended while it was working"),
    "stopped": (Action.NOTHING, "stopped by Hypervisor"),
    "attached": (Action.NOTHING, "a person continued the session in a terminal"),
}


class Outcome(NamedTuple):
    """`reason`, `evidence` and `next_step` describe a blocked or failed task."""

    name: OutcomeName
    action: Action
    reason: str = ""
    evidence: str = ""
    next_step: str = ""
    result: Json = None
