"""Agents approve and reject work only where the operator allowed it."""

from __future__ import annotations

import pytest

from hypervisor.core.errors import InvalidInput
from hypervisor.git.review import decide_as_agent
from tests.git.whole_runs import runs, submit, wait


@pytest.mark.parametrize("allowed", [False, True])
def test_agents_decide_only_where_that_is_allowed(tmp_path, allowed):
    config = "\n[merge]\nagents_may_approve = true\n" if allowed else ""
    with runs(tmp_path, config) as (repo, hv):
        submit(hv, repo, "echo x > out-{}.txt", ["a", "b"], data={"files": ["elsewhere"]})
        a, b = (task.id for _, task in sorted(wait(hv, 2).items()))
        if not allowed:
            for decision in ("approve", "reject"):
                with pytest.raises(InvalidInput, match=f"only a person may {decision}"):
                    decide_as_agent(hv, a, decision)
            assert {task.state for task in hv.list_tasks()} == {"review"}
            assert repo.tip("hv/edits") is None
            return
        assert decide_as_agent(hv, b, "reject", "no").state == "failed"
        assert decide_as_agent(hv, a, "approve", "fine").state == "merging"
        wait(hv, 2)
        assert repo.read("hv/edits", "out-a.txt") and not repo.read("hv/edits", "out-b.txt")
