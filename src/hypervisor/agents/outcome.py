"""How the run of an agent came out, by name, and what follows from that."""

from __future__ import annotations

from typing import NamedTuple

from hypervisor.queue.task import Json

# What follows. The worker makes a verdict of it.
COMPLETE, BLOCK, FAIL, RETRY, RELEASE, GIVE_UP, NOTHING = (
    "complete",
    "block",
    "fail",
    "retry",
    "release",
    "give_up",
    "nothing",
)

# name → (what follows, what it means)
OUTCOMES: dict[str, tuple[str, str]] = {
    "settled": (NOTHING, "the agent ended the claim itself"),
    "completed": (COMPLETE, "it reported the work done"),
    "blocked": (BLOCK, "it cannot go on and says why"),
    "misfit": (RELEASE, "its data does not fit the schema"),
    "refused": (FAIL, "it reported that it failed"),
    "nothing_done": (RETRY, "it ended well and reported nothing"),
    "tools_denied": (BLOCK, "the tools it needed were refused to it"),
    "hung": (RETRY, "it had said its last word, reported nothing, and did not end"),
    "mcp_dead": (RETRY, "its connection to Hypervisor did not come up"),
    "stream_error": (RELEASE, "an error inside an answer that had begun well"),
    "quota": (RELEASE, "a limit of the provider's account"),
    "overload": (RELEASE, "the provider has too much to do"),
    "auth": (GIVE_UP, "not logged in, or the key is refused"),
    "billing": (GIVE_UP, "the provider's account is out of credit"),
    "no_access": (GIVE_UP, "the account may not use this model"),
    "bad_request": (FAIL, "the provider refuses the request"),
    "server_error": (RELEASE, "the provider failed"),
    "network": (RELEASE, "no connection to the provider"),
    "max_turns": (FAIL, "it used up its turns"),
    "over_budget": (FAIL, "it used up its money"),
    "lost_session": (RELEASE, "the session to resume is gone; it starts anew"),
    "crashed": (RETRY, "the program ended badly without a word"),
    "lost_claim": (NOTHING, "its claim was ended while it worked"),
    "stopped": (NOTHING, "we stopped it"),
}


class Outcome(NamedTuple):
    """`reason`, `evidence` and `next_step` are what a blocked or failed task tells."""

    name: str
    follows: str
    reason: str = ""
    evidence: str = ""
    next_step: str = ""
    result: Json = None
