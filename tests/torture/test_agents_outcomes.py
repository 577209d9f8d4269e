"""Whatever an agent does and however it ends, its task gets the right outcome."""

from __future__ import annotations

import pytest

from hypervisor.queue.sql import agent_sessions, queries
from hypervisor.runs import sql
from tests.torture.agents import Agents
from tests.torture.fleet import wait_for

# act → the state of the task, the outcome of the session
EXPECTED = {
    "ok": ("done", "completed"),
    "denied": ("blocked", "tools_denied"),
    "nothing": ("failed", "nothing_done"),
    "blocked": ("blocked", "blocked"),
    "failed": ("failed", "failed"),
    "mcpdead": ("failed", "mcp_dead"),
    "hang": ("done", "completed"),
    "hangsilent": ("failed", "hung"),
    "status-400": ("failed", "bad_request"),
    "crash": ("failed", "crashed"),
    "mute": ("failed", "crashed"),
    "completes": ("done", "settled"),
    "mcp": ("done", "settled"),
}
OTHERWISE = {
    # It does not tell that a tool was refused.
    "codex": {"denied": ("failed", "nothing_done")},
    "gemini": {"denied": ("failed", "nothing_done")},
}


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini"])
def test_every_way_to_end_has_its_name(project, kind):
    agents = Agents(project)
    agents.run(kind, "--workers", "4", acts=EXPECTED)
    tasks = agents.tasks()
    outcomes = {run.task: run.outcome for run in agents.sessions()}
    found = {act: (task.state, outcomes[task.id]) for act, task in tasks.items()}
    assert found == {**EXPECTED, **OTHERWISE.get(kind, {})}, project.story()
    blocked = tasks["blocked"]
    assert blocked.reason == "no key" and blocked.unblock == "give it one"
    with project.open() as hv:
        assert "file a.py line 3" in [each.text for each in hv.receipts(blocked.id)]
    hung = {event.task for event in project.events("leftovers")}
    assert {tasks["hang"].id, tasks["hangsilent"].id} <= hung
    assert tasks["completes"].result == {"summary": "by itself"}
    # Unfinished tasks may be resumed later; nothing is kept of the others.
    unfinished = {task.id for task in tasks.values() if task.state == "blocked"}
    assert set(agents.homes()) == unfinished
    project.wait_until_left()


def test_one_that_works_on_after_its_verdict_is_stopped(project):
    agents = Agents(project)
    agents.start("claude", acts=["goeson"])
    wait_for(lambda: project.states() == {"blocked": 1}, "its verdict", story=project.story)
    over = lambda: [run.outcome for run in agents.sessions()] == ["blocked"]  # noqa: E731
    wait_for(over, "the end of the agent", 45, project.story)
    (task,) = agents.tasks().values()
    wait_for(lambda: agents.attempts(task.id)[0].cpu_ms, "what it cost", 45, project.story)
    (attempt,) = agents.attempts(task.id)
    assert attempt.outcome == "blocked" and attempt.cpu_ms >= 200


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini"])
def test_the_last_line_of_a_very_long_answer_counts(project, kind):
    agents = Agents(project)
    agents.run(kind, acts=["novel"])
    (task,) = agents.tasks().values()
    assert (task.state, task.result) == ("done", {"summary": "read it"}), project.story()


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini"])
def test_data_must_fit_the_schema(project, kind):
    """Sent back once, in a report or over MCP; corrected it counts, otherwise the task fails."""
    agents = Agents(project)
    schema = project.folder / "schema.json"
    schema.write_text('{"type": "object", "properties": {"count": {"type": "integer"}}}')
    acts = ["misfits", "misfits-twice", "misfits-mcp", "misfits-mcptwice"]
    agents.run(kind, "--workers", "2", "--schema", str(schema), acts=acts)
    tasks = agents.tasks()
    states = {act: task.state for act, task in tasks.items()}
    assert states == dict(zip(acts, ["done", "failed"] * 2, strict=True)), project.story()
    why = "the data does not match the schema: data.count: 'three' is not of type 'integer'"
    for act in acts:
        task = tasks[act]
        if task.state == "done":
            assert task.result["data"] == {"count": 3} and task.failures == 0
        else:
            assert task.reason == why
    assert [each.outcome for each in agents.attempts(tasks["misfits"].id)] == ["released", "done"]
    first, second = [run for run in agents.sessions() if run.task == tasks["misfits"].id]
    assert (first.outcome, second.outcome) == ("misfit", "completed")
    assert second.resumes == first.session
    refusals = [
        words[2] for words in agents.notes("answers") if "complete_the_task_again" in words[2]
    ]
    assert len(refusals) == 2


def test_what_failed_is_tried_again_in_the_same_session(project):
    """A run that reported nothing is resumed once, but not a second time."""
    agents = Agents(project)
    agents.run("claude", "--retries", "1", acts=["crash"])
    (task,) = agents.tasks().values()
    first, second = agents.sessions()
    assert task.state == "failed"
    assert (first.outcome, second.outcome) == ("crashed", "crashed")
    assert second.resumes == first.session == second.session


def test_figures_are_those_of_the_stream(project):
    agents = Agents(project)
    agents.run("claude", "--workers", "2", acts=["ok-1", "ok-3"])
    figures = sorted((run.turns, *run.tokens, run.cost_micros) for run in agents.sessions())
    assert figures == [(1, 1000, 20, 0, 100_000), (3, 3000, 60, 0, 300_000)]
    with project.open() as hv:
        assert (
            hv.store.read(agent_sessions.spent, hv.store.read(queries.batch, "b").id).cost_micros
            == 400_000
        )
        assert (hv.store.read(sql.memory_peak, agent="fake-claude") or 0) > 0
        for task in hv.list_tasks():
            assert b"permission_denials" in hv.output(task.id)


def test_a_program_that_is_not_there_pauses_the_batch(project):
    agents = Agents(project)
    agents.start("claude", "--workers", "2", acts=["slow-30"])
    config = project.folder / ".hypervisor" / "config.toml"
    config.write_text(config.read_text().replace("bin/fake-codex", "bin/gone"))
    ended = project.run("--agent", "fake-codex", "--name", "c", "-q", items=["act-ok"])
    assert ended.code == 11 and "not installed" in ended.err


def test_scratch_copies_keep_the_project_as_it_is(project):
    (project.folder / "a.txt").write_text("as it was\n")
    agents = Agents(project)
    agents.run("claude", "--scratch", acts=["edits"])
    (task,) = agents.tasks().values()
    assert task.state == "done", project.story()
    assert (project.folder / "a.txt").read_text() == "as it was\n"
    assert not (project.folder / "new.txt").exists()
    (event,) = project.events("patch")
    patch = open(event.data["path"]).read()  # noqa: SIM115
    assert "+changed by the agent" in patch and "b/new.txt" in patch
