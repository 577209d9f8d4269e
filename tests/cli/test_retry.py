"""`hv retry`: tasks of a run are run again; others wait for a claim."""

from tests.cli.conftest import until
from tests.cli.running import run


def answer(project, *args):
    """What a person sees."""
    terminal = project.terminal(*args, columns=160)
    assert terminal.wait() == 0
    return terminal.screen.text


def test_retrying_the_tasks_of_a_run_runs_them(project):
    """Nobody supervises any more: the run has ended."""
    options = ["--name", "my run", "--shell", "--", "test -e fixed || exit 3"]
    run(project, *options, items=["a", "b"], code=9)
    until(lambda: project.supervisor() is None, "the supervisor leaves")
    (project.folder / "fixed").touch()

    text = answer(project, "retry", "my run")
    assert "running in the background; to follow: hv status 'my run' --watch" in text
    until(lambda: {task["state"] for task in project.tasks("my run")} == {"done"}, "both are done")


def test_nothing_to_retry(project):
    project.add("by hand", "--batch", "b")
    assert "no tasks match; nothing was changed" in answer(project, "retry", "b")


def test_a_task_that_is_claimed_by_hand_needs_no_supervisor(project):
    task = project.add("by hand", "--batch", "b")
    project.ok("fail", project.claim(), "why")
    text = answer(project, "retry", task)
    assert f"{task} ready" in text
    assert "background" not in text
    assert project.supervisor() is None
