"""What is known about an agent program on this host."""

from __future__ import annotations

from typing import NamedTuple

from hypervisor.queue.agent_session import Tokens


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


class ProbeResult(NamedTuple):
    """The result of one turn with the real program. `outcome` is one of OUTCOMES."""

    ok: bool
    outcome: str
    message: str
    milliseconds: int
    tokens: Tokens = Tokens()
    cost_micros: int | None = None
    estimated: bool = False
