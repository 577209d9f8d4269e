"""What a look at an agent program on this host gave: where it is, how it would be started."""

from __future__ import annotations

from typing import NamedTuple

from hypervisor.agents.stream_state import Tokens


class Found(NamedTuple):
    """`path` is "" if the program is not there. `problem` says why it cannot work, "" if nothing
    is known to be wrong."""

    path: str = ""
    version: str = ""
    problem: str = ""


class Preview(NamedTuple):
    """How an attempt would be started: nothing in it is secret."""

    argv: tuple[str, ...]
    prompt: str
    cwd: str
    variables: tuple[str, ...] = ()  # the names of those it gets
    sandbox: str = ""


class Probed(NamedTuple):
    """What came of one turn with the real program. `outcome` is a name of OUTCOMES."""

    ok: bool
    outcome: str
    said: str
    milliseconds: int
    tokens: Tokens = Tokens()
    cost_micros: int | None = None
    estimated: bool = False
