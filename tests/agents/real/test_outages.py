"""A provider that is down, or needs a person to act: no task is penalised for it."""

from __future__ import annotations

import time
from contextlib import closing
from email.utils import formatdate

import pytest

import hypervisor
from hypervisor.agents.sql import cooldowns
from tests.agents.real.fleet import ITEM, AgentProject
from tests.agents.real.moves import call, refuse, result
from tests.torture.fleet import wait_for

pytestmark = pytest.mark.agents
MAIN = ("claude", "codex", "gemini")
PROVIDERS = {"claude": "anthropic", "codex": "openai", "gemini": "google"}
DONE = [call("complete_task", {"summary": "done"}), result({"status": "completed", "summary": "d"})]
TASKS = 8


def unpunished(project: AgentProject) -> None:
    assert all((task.failures, task.crashes) == (0, 0) for task in project.tasks())
    assert set(project.attempts()) <= {"done", "released"}, project.attempts()


def wait_for_events(project: AgentProject, kind: str, count: int) -> None:
    wait_for(lambda: len(project.events(kind)) >= count, f"a {kind}", 300, project.story)


def end_cooldowns(project: AgentProject) -> None:
    with closing(hypervisor.open(project.store)) as hv:
        for cooldown in hv.store.read(cooldowns.every):
            hv.end_cooldown(cooldown.account)


@pytest.mark.parametrize("agent", MAIN)
def test_a_provider_that_is_down_from_the_start_is_waited_for(
    project: AgentProject, agent: str
) -> None:
    project.model.go_down()
    project.model.script(ITEM, DONE)
    client = project.start("run", *project.words(agent), items=project.items(2))
    wait_for_events(project, "cooldown", 1)
    said = project.events("cooldown")[0].data["message"]
    assert said.startswith(f"{PROVIDERS[agent]}: provider unreachable; trying again in "), said
    wait_for(lambda: not project.agents(), "the end of the agents", 300, project.story)
    project.model.come_up()
    ended = project.ended(client, 300)
    assert ended.code == 0, ended.err + project.story()
    project.wait_until_left()
    assert project.states() == {"done": 2}
    unpunished(project)


def test_an_outage_in_the_middle_costs_no_task_anything(project: AgentProject) -> None:
    project.model.script(ITEM, DONE)
    words = project.words("claude", "--workers", "3")
    client = project.start("run", *words, items=project.items(TASKS))
    wait_for(lambda: project.states().get("done", 0) >= 2, "some done", 300, project.story)
    project.model.go_down()
    wait_for_events(project, "cooldown", 2)
    assert "failed" not in project.states(), project.story()
    project.model.come_up()
    ended = project.ended(client, 400)
    assert ended.code == 0, ended.err + project.story()
    project.wait_until_left()
    assert project.states() == {"done": TASKS}
    unpunished(project)
    rests = [event.data["until"] - event.at for event in project.events("cooldown")]
    assert rests == sorted(rests), "the rests do not grow"


@pytest.mark.parametrize("agent", MAIN)
def test_what_only_a_person_can_change_pauses_the_batch(project: AgentProject, agent: str) -> None:
    told = {
        402: ("Your credit balance is too low", "Add credit"),
        403: ("Your plan does not include this model", "--model"),
    }
    for number, (status, (words, step)) in enumerate(told.items(), 1):
        project.model.script(f"item-{status}", [refuse(status, error=words)])
        name = f"b{status}"
        line = project.words(agent, "--detach", "--name", name)
        started = project.ended(project.start("run", *line, items=[f"item-{status}"]))
        assert started.code == 0, started.err
        wait_for_events(project, "pause", number)
        reason = project.events("pause")[-1].data["reason"]
        assert step in reason and f"HTTP {status}" in reason, reason
        assert "not logged in" not in reason, reason
        wait_for(lambda: not project.agents(), "the end of the agent", 300, project.story)
        assert project.task(f"item-{status}").state == "active", project.story()
        assert project.ended(project.start("cancel", "--batch", name)).code == 0
    assert not project.events("cooldown")


@pytest.mark.parametrize("agent", MAIN)
def test_a_limit_is_waited_for_in_every_form(project: AgentProject, agent: str) -> None:
    """claude passes on a Retry-After in seconds; codex and gemini pass on none, and no agent a
    date."""
    date = formatdate(time.time() + 3600, usegmt=True)
    for item, retry_after in (("item-1", 5), ("item-2", date)):
        # Refused until we have noticed: an agent that retries by itself may be faster than we are.
        moves = [refuse(429, retry_after=retry_after, error="Too many requests")]
        project.model.script(item, moves)
        before = len(project.events("cooldown"))
        client = project.start("run", *project.words(agent, "--name", item), items=[item])
        wait_for_events(project, "cooldown", before + 1)
        moves[:] = DONE
        cooldown = project.events("cooldown")[before]
        rest = cooldown.data["until"] - cooldown.at
        if (agent, item) == ("claude", "item-1"):
            assert 5_000 <= rest <= 8_000, rest
        else:
            assert 25_000 <= rest <= 35_000, rest
            end_cooldowns(project)
        assert project.ended(client, 300).code == 0, project.story()
    project.wait_until_left()
    unpunished(project)
