"""The outcomes of an agent's run by name, and what the worker does about each."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from hypervisor.queue.task import Json


class Action(StrEnum):
    """What the worker does about an outcome."""

    COMPLETE = "complete"
    BLOCK = "block"
    FAIL = "fail"
    RETRY = "retry"  # a failure, tried again if it may be
    RELEASE = "release"  # put back unpunished
    GIVE_UP = "give_up"  # and pause the batch
    NOTHING = "nothing"


# name → (action, meaning)
OUTCOMES: dict[str, tuple[Action, str]] = {
    "settled": (Action.NOTHING, "the agent ended the claim itself"),
    "completed": (Action.COMPLETE, "it reported the work done"),
    "blocked": (Action.BLOCK, "it cannot go on and says why"),
    "misfit": (Action.RELEASE, "its data does not fit the schema"),
    "refused": (Action.FAIL, "it reported that it failed"),
    "nothing_done": (Action.RETRY, "it ended well and reported nothing"),
    "tools_denied": (Action.BLOCK, "the tools it needed were refused to it"),
    "hung": (Action.RETRY, "it had said its last word, reported nothing, and did not end"),
    "mcp_dead": (Action.RETRY, "its connection to Hypervisor did not come up"),
    "stream_error": (Action.RELEASE, "an error inside an answer that had begun well"),
    "quota": (Action.RELEASE, "a limit of the provider's account"),
    "overload": (Action.RELEASE, "the provider has too much to do"),
    "auth": (Action.GIVE_UP, "not logged in, or the key is refused"),
    "billing": (Action.GIVE_UP, "the provider's account is out of credit"),
    "no_access": (Action.GIVE_UP, "the account may not use this model"),
    "bad_request": (Action.FAIL, "the provider refuses the request"),
    "server_error": (Action.RELEASE, "the provider failed"),
    "network": (Action.RELEASE, "no connection to the provider"),
    "max_turns": (Action.FAIL, "it used up its turns"),
    "over_budget": (Action.FAIL, "it used up its money"),
    "lost_session": (Action.RELEASE, "the session to resume is gone; it starts anew"),
    "crashed": (Action.RETRY, "the program ended badly without a word"),
    "lost_claim": (Action.NOTHING, "its claim was ended while it worked"),
    "stopped": (Action.NOTHING, "we stopped it"),
}


class Outcome(NamedTuple):
    """`reason`, `evidence` and `next_step` are what a blocked or failed task tells."""

    name: str
    action: Action
    reason: str = ""
    evidence: str = ""
    next_step: str = ""
    result: Json = None
