"""Neither keys nor claim tokens appear anywhere, even if the agent prints them."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from tests.agents.real.fleet import ITEM, KEY, AgentProject, all_files
from tests.agents.real.moves import Move, Turn, call, result, shell

pytestmark = pytest.mark.agents
TOKEN = re.compile(r"\b[0-9a-z]{12}\.[0-9]+\.[0-9a-z]{4,}\b")
PRINT_ALL = "env; cat $HOME/mcp.json $HOME/.gemini/settings.json $HOME/.codex/config.toml; true"


class Lookout(threading.Thread):
    """Records the command lines of all processes, in a separate thread."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[bytes] = set()
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.seen.add(path.read_bytes())
                except OSError:
                    continue


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_secrets_are_in_no_file_and_no_command_line(project: AgentProject, agent: str) -> None:
    known: set[str] = set()

    def moves(turn: Turn) -> Move:
        if not turn.calls:
            return shell(PRINT_ALL)
        if len(turn.calls) == 1:
            known.update(TOKEN.findall(turn.last))
            return call("append_receipt", {"text": f"saw {KEY} of {sorted(known)}"})
        return result({"status": "completed", "summary": f"the key is {KEY}, of {sorted(known)}"})

    project.model.script(ITEM, moves)
    lookout = Lookout()
    lookout.start()
    ended = project.work(agent, 2, "--permissions", "full")
    project.wait_until_left()
    lookout.over.set()
    lookout.join()
    assert ended.code == 0, ended.err + project.story()
    assert project.states() == {"done": 2}
    assert known, "the agent never saw its token, so this proves nothing"
    for secret in (KEY, *known):
        found = [
            str(path) for path in all_files(project.home) if secret.encode() in path.read_bytes()
        ]
        assert not found, f"{secret} stands in {found}"
        assert not any(secret.encode() in line for line in lookout.seen), (
            f"{secret} stood in a command line"
        )
        assert secret not in ended.out + ended.err
