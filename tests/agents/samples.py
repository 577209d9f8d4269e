"""The recorded streams of the real programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from hypervisor.agents.stream_state import StreamState
from hypervisor.agents.streams import parser
from hypervisor.queue.attempt import Ended

FOLDER = Path(__file__).parents[1] / "fixtures" / "streams"
NAMES = sorted(str(path.relative_to(FOLDER))[: -len(".jsonl")] for path in FOLDER.glob("*/*.jsonl"))


class Sample(NamedTuple):
    agent: str
    head: dict[str, Any]
    lines: list[str]

    @property
    def ended(self) -> Ended:
        code = self.head["exit"]
        if code is None:  # the recording was cut off: the program would have continued
            return Ended(None, 15, 0, 0)
        return Ended(code, None, 0, 0) if code >= 0 else Ended(None, -code, 0, 0)

    @property
    def dealt(self) -> tuple[int, int, int]:
        dealt = self.head["dealt"]
        return dealt["input"], dealt["output"], dealt["cached"]

    def state(self, state: StreamState = StreamState()) -> StreamState:  # noqa: B008 (never changes)
        return state_after(self.agent, state, *self.lines)


def state_after(stream: str, state: StreamState, *lines: str) -> StreamState:
    parse = parser(stream)
    for line in lines:
        state = parse(state, line).state
    return state


def sample(name: str) -> Sample:
    head, *rest = (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
    return Sample(
        name.partition("/")[0], json.loads(head), [json.loads(line)["line"] for line in rest]
    )
