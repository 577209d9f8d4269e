"""An outage of a provider costs no task anything, and work continues when it is over."""

from __future__ import annotations

import pytest

from hypervisor.agents.sql import cooldowns
from tests.torture.agents import Agents
from tests.torture.fleet import wait_for

KINDS = ("claude", "codex", "gemini")
TASKS = 20


def unpunished(agents: Agents) -> None:
    for task in agents.tasks().values():
        outcomes = [each.outcome for each in agents.attempts(task.id)]
        assert (task.failures, task.crashes) == (0, 0), outcomes
        assert set(outcomes) <= {"released", "done"}, outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_a_provider_that_is_down_from_the_start_is_waited_for(project, kind):
    """codex would wait for the network forever: this is detected, and its worker is freed."""
    agents = Agents(project)
    (agents.provider / "down").touch()
    client = project.start(
        "run", *agents.words(kind, "--workers", "3"), items=["act-ok", "act-ok 2"]
    )
    wait_for(lambda: len(project.events("cooldown")) >= 2, "a second look", story=project.story)
    assert len(agents.notes("unreached")) <= 3, "not one at a time"
    assert not {"failed", "done"} & set(project.states()), project.story()
    (agents.provider / "down").unlink()
    ended = project.ended(client, 120)
    assert ended.code == 0, ended.err + project.story()
    unpunished(agents)
    assert f"standin-{kind}: provider unreachable; trying again in " in ended.out
    first, second, *_ = project.events("cooldown")
    rests = [each.data["until"] - each.at for each in (first, second)]
    assert rests[0] <= 5_500 and 9_900 <= rests[1] <= 11_000, "the rests do not grow"
    with project.open() as hv:
        assert hv.store.read(cooldowns.every) == [], "it is forgotten once an answer came"


def test_an_outage_in_the_middle_costs_no_task_anything(project):
    agents = Agents(project)
    agents.start("claude", "--workers", "4", acts=["slow-4"] * TASKS)
    wait_for(lambda: project.states().get("done", 0) >= 3, "some done", story=project.story)
    (agents.provider / "down").touch()
    wait_for(lambda: len(project.events("cooldown")) >= 2, "a second look", story=project.story)
    (agents.provider / "down").unlink()
    wait_for(lambda: project.states() == {"done": TASKS}, "all tasks", story=project.story)
    agents.wait_until_reported()
    unpunished(agents)
    outcomes = [run.outcome for run in agents.sessions()]
    assert set(outcomes) == {"completed", "network"}
    assert outcomes.count("network") <= 4 + len(project.events("cooldown")) - 1, "not one at a time"
    project.wait_until_left()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("act", ["status-500", "status-503", "errorinstream", "network"])
def test_whatever_the_provider_does_wrong_costs_no_task_anything(project, kind, act):
    agents = Agents(project)
    agents.start(kind, acts=[act])
    wait_for(lambda: project.events("cooldown"), "the brake", story=project.story)
    wait_for(lambda: project.states() == {"active": 1}, "the release", story=project.story)
    agents.wait_until_reported()
    unpunished(agents)
    assert "; trying again in " in project.events("cooldown")[0].data["message"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("act, step", [("status-402", "Add credit"), ("status-403", "--model")])
def test_what_only_a_person_can_change_pauses_the_batch(project, kind, act, step):
    agents = Agents(project)
    agents.start(kind, acts=[act])
    wait_for(lambda: project.events("pause"), "the pause", story=project.story)
    reason = project.events("pause")[0].data["reason"]
    assert step in reason and "not logged in" not in reason
    wait_for(lambda: not project.workers(), "the worker's end", story=project.story)
    assert project.states() == {"active": 1} and not project.events("cooldown")
    unpunished(agents)
