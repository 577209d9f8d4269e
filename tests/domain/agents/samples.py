"""The recorded streams of the real programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from hypervisor.domain.agents.heard import Heard
from hypervisor.domain.agents.streams import hearing
from hypervisor.domain.attempt import Ended

FOLDER = Path(__file__).parents[2] / "fixtures" / "streams"
NAMES = sorted(str(path.relative_to(FOLDER))[: -len(".jsonl")] for path in FOLDER.glob("*/*.jsonl"))


class Sample(NamedTuple):
    agent: str
    head: dict[str, Any]
    lines: list[str]

    @property
    def ended(self) -> Ended:
        code = self.head["exit"]
        if code is None:  # the recording was cut off: the program would have gone on
            return Ended(None, 15, 0, 0)
        return Ended(code, None, 0, 0) if code >= 0 else Ended(None, -code, 0, 0)

    @property
    def dealt(self) -> tuple[int, int, int]:
        dealt = self.head["dealt"]
        return dealt["input"], dealt["output"], dealt["cached"]

    def heard(self, heard: Heard = Heard()) -> Heard:  # noqa: B008 (never changes)
        hear = hearing(self.agent)
        for line in self.lines:
            heard = hear(heard, line)
        return heard


def sample(name: str) -> Sample:
    head, *rest = (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
    return Sample(
        name.partition("/")[0], json.loads(head), [json.loads(line)["line"] for line in rest]
    )
