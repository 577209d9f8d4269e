"""What a scripted model does: moves, the turn it answers, and scripts that choose the next move.

A script never keeps a position of its own: how far a conversation is can be read from its history,
so a resumed session continues where it was. Only faults, which leave no trace there, are counted.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple


class Offered(NamedTuple):
    """A tool that the program offers to the model."""

    name: str
    space: str = ""
    fields: tuple[str, ...] = ()


class Call(NamedTuple):
    """A tool call in the history, with its answer if there is one."""

    name: str
    args: dict[str, Any]
    answer: str | None


class Turn(NamedTuple):
    """One request to the model, over any wire."""

    wire: str
    model: str
    text: str
    replies: int
    calls: tuple[Call, ...]
    tools: tuple[Offered, ...]
    stream: bool
    schema: bool = False

    def tool(self, suffix: str) -> Offered | None:
        """The offered tool of that name, whatever the program put before it."""
        exact = [tool for tool in self.tools if tool.name == suffix]
        ends = [tool for tool in self.tools if re.search(rf"(^|[^a-z]){suffix}$", tool.name)]
        return next(iter(exact or ends), None)

    @property
    def last(self) -> str:
        """The answer to the last call, empty if there was none."""
        return (self.calls[-1].answer or "") if self.calls else ""


class Move(NamedTuple):
    """What the model does in one turn. A fault occurs `times` times, then it is skipped."""

    text: str = ""
    tool: str = ""
    args: dict[str, Any] = {}  # noqa: RUF012 - never changed
    status: int = 0
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    error: str = ""
    body: dict[str, Any] | None = None
    drop: bool = False
    broken: bool = False
    garbled: bool = False
    hang: float = 0
    delay: float = 0
    times: int = 1
    tokens: tuple[int, int, int] = (1000, 20, 0)

    @property
    def fault(self) -> bool:
        return bool(self.status or self.drop or self.broken or self.garbled or self.hang)


FOR_EVER = 10**6


def say(text: str, **more: Any) -> Move:
    return Move(text=text, **more)


def call(tool: str, args: dict[str, Any] | None = None, **more: Any) -> Move:
    """Calls the offered tool whose name ends so."""
    return Move(tool=tool, args=args or {}, **more)


def shell(command: str, **more: Any) -> Move:
    """Runs a shell command with the program's own tool for it."""
    return Move(tool="shell", args={"command": command}, **more)


def result(data: dict[str, Any], **more: Any) -> Move:
    """A structured result: through the tool made for it where there is one, else as text."""
    return Move(tool="StructuredOutput", args=data, text=json.dumps(data), **more)


def refuse(status: int, retry_after: float | str | None = None, **more: Any) -> Move:
    """An HTTP error, forever or `times` times. Retry-After is in seconds or a date."""
    after = f"{retry_after:g}" if isinstance(retry_after, int | float) else retry_after
    headers = {} if after is None else {"retry-after": after}
    return Move(status=status, **{"times": FOR_EVER, "headers": headers, **more})


def drop(times: int = 1) -> Move:
    """The connection ends in the middle of the answer."""
    return Move(drop=True, times=times)


def broken(times: int = 1) -> Move:
    """An error event inside an answer that began with 200."""
    return Move(broken=True, times=times)


def garbled(times: int = 1) -> Move:
    """An answer that began with 200 and is not JSON."""
    return Move(garbled=True, times=times)


def hang(times: int = FOR_EVER, seconds: float = 600) -> Move:
    """No answer at all."""
    return Move(hang=seconds, times=times)


Answering = Callable[[Turn], Move]


class Script:
    """Moves for the conversations whose text matches; what matched is the conversation's key."""

    def __init__(self, match: str, moves: list[Move] | Answering) -> None:
        self.match = re.compile(match)
        self.moves = moves
        self._played: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def key(self, turn: Turn) -> str | None:
        found = self.match.search(turn.text)
        return found[0] if found else None

    def next(self, turn: Turn, key: str) -> Move:
        if callable(self.moves):
            return self.moves(turn)
        with self._lock:
            return self._from_list(self.moves, turn, key)

    def _from_list(self, moves: list[Move], turn: Turn, key: str) -> Move:
        answered = 0
        for number, move in enumerate(moves):
            if move.fault:
                if answered == turn.replies and self._played[key, number] < move.times:
                    self._played[key, number] += 1
                    return move
            elif answered == turn.replies:
                return move
            else:
                answered += 1
        answers = [move for move in moves if not move.fault]
        return answers[-1] if answers else say("nothing to do")


def number_in(pattern: str, text: str) -> str:
    """The first group of the pattern in a tool's answer, empty if it is not there."""
    found = re.search(pattern, text)
    return found[1] if found else ""
