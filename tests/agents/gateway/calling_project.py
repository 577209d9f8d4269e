"""A project whose agent calls a scripted model as often as it is told to."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.agents.real.model_server import ModelServer
from tests.support.ungoverned import UNGOVERNED
from tests.torture.fleet import Project, wait_for

KEY = "sk-planted-5e0b77d1c2"
AGENT = Path(__file__).parents[2] / "support" / "calling_agent.py"
ITEM = r"item-[0-9]+"
CALL = 1200  # tokens
CONFIG = """
[agents.caller]
like = "claude"
program = "{program}"
attach = ["attach", "{{session}}"]
env = {{ CALLS = "{calls}", PAUSE = "{pause}" }}
"""


class CallingProject(Project):
    """A project whose agent makes this many calls per task."""

    def __init__(self, folder: Path, model: ModelServer, calls: int, pause: float = 0) -> None:
        program = folder / "caller"
        program.write_text(
            f'#!/bin/sh\nexec {shlex.join([sys.executable, "-I", str(AGENT)])} "$@"\n'
        )
        program.chmod(0o755)
        config = CONFIG.format(program=program, calls=calls, pause=pause)
        super().__init__(folder, UNGOVERNED + config)
        self.env |= {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": KEY}

    def work(self, items: int, *args: str) -> list[str]:
        words = ["--agent", "caller", "--quiet", "--prompt", "Look at the item.", *args]
        return ["run", *words, *(f"--item=item-{number:03d}" for number in range(items))]

    def gateway(self) -> int:
        with self.open() as hv:
            lock = Path(hv.places.runtime, "gateway.lock")
        wait_for(lambda: lock.exists() and lock.read_text().isdigit(), "a gateway", 60, self.story)
        return int(lock.read_text())

    def by_task(self) -> list[tuple[int, int]]:
        """Tokens and calls of each task."""
        (rows,) = self.query(
            "SELECT sum(input_tokens + output_tokens + cached_tokens), sum(calls) FROM sessions "
            "GROUP BY task"
        )
        return rows
