"""The prompt of a retry says what the agent finds: the files of the last attempt, or the base."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from hypervisor.agents.agent_worker import agent_worker
from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.context import AgentContext
from hypervisor.agents.prompts import FOLDER, Prompts
from hypervisor.batches.pipeline_names import batches_of
from hypervisor.git.attempt_workspaces import AttemptWorkspaces
from hypervisor.queue.attempt import Ended
from hypervisor.queue.sql import steer
from hypervisor.selftest.repositories import Repo
from tests.agents.agent_bench import ACCOUNT, DONE, AgentBench
from tests.support.benches import WELL
from tests.support.specs import run_spec

FAILED = DONE._replace(result={"status": "failed", "summary": "not yet"})
AGAIN = "It starts from there again, without the files of the earlier attempt."
CONTINUES = "The files are as the last attempt left them."


class CloneBench(AgentBench):
    """Scripted agents in real clones, with real prompts."""

    def __init__(self, folder: Path, repo: Repo, **spec: Any) -> None:
        self._repo = repo
        super().__init__(folder, **spec)
        self.hv.make_workspaces = AttemptWorkspaces

    def described(self, **spec: Any) -> Any:
        more = {"agents": ("claude",), "workspace": "clone", **spec}
        return run_spec(str(self._repo.folder), agent="claude", **more)

    def worker(self, name: str = "claude") -> Any:
        prompts = Prompts(self.spec, FOLDER)
        context = self.context(agent=name)
        accounts = {"claude": ACCOUNT}
        agent = AgentContext(context, self.runner, BUILTIN[name], accounts, self.homes, prompts)
        return agent_worker(agent, cast(Any, batches_of))

    def leave(self) -> tuple[Any, Ended]:
        Path(self.runner.folder, "left.txt").write_text("left\n")
        return FAILED, WELL

    def look(self) -> tuple[Any, Ended]:
        self.seen = Path(self.runner.folder, "left.txt").exists()
        return DONE, WELL


@pytest.mark.parametrize(
    "continues, sentence, other", [(False, AGAIN, CONTINUES), (True, CONTINUES, AGAIN)]
)
def test_a_retry_is_told_what_it_finds(tmp_path, continues, sentence, other):
    repo = Repo(tmp_path / "project")
    first = repo.commit({"a.txt": "a\n"}, "first")
    (tmp_path / "data").mkdir()
    bench = CloneBench(tmp_path / "data", repo, git_continues=continues, git_base=first)
    try:
        task = bench.item("a.txt", home=False)
        bench.in_turn("a.txt", [bench.leave], [bench.look])
        bench.work()
        now = bench.store.now()
        bench.store.write(steer.reopen_all, [task], "retry", "me", now)
        bench.work()
        assert bench.task(task).state == "done", bench.task(task).reason
        before, again = (brief[0] for brief in bench.runner.briefs)
        assert f"starts at commit {first[:12]}" in before
        assert sentence not in before and other not in before
        assert sentence in again and other not in again
        assert bench.seen is continues, "the sentence is true"
    finally:
        bench.store.close()
