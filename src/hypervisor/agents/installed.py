"""What is known about an agent program on this host."""

from __future__ import annotations

from typing import Literal

from hypervisor.core.records import NamedTuple
from hypervisor.queue.agent_session import Tokens

# How a model is called: through the gateway, with a key that the gateway could keep, by a login
# that stays with the program, or in a way that only the program knows.
Calls = Literal["gateway", "key", "login", ""]


class InstalledAgent(NamedTuple):
    """`path` is "" if the program was not found. `problem` says why it cannot work; "" if there is
    no known problem."""

    path: str = ""
    version: str = ""
    problem: str = ""


class Preview(NamedTuple):
    """How an attempt would be started, without secrets."""

    argv: tuple[str, ...]
    prompt: str
    cwd: str
    variables: tuple[str, ...] = ()  # the names of those it gets
    sandbox: str = ""
    calls: Calls = ""  # how its model is called
    calls_text: str = ""  # the same in words, with the reason


class ProbeResult(NamedTuple):
    """The result of one turn with the real program. `outcome` is one of OUTCOMES."""

    ok: bool
    outcome: str
    message: str
    milliseconds: int
    tokens: Tokens = Tokens()
    cost_micros: int | None = None
    estimated: bool = False
