"""Workspaces are set up before an attempt and torn down after it, as a phase that people see."""

from __future__ import annotations

import time
from pathlib import Path

from hypervisor.git.slots import FIRST_PORT, PORTS_EACH
from tests.git.whole_runs import runs, submit, wait


def said(hv, kind):
    return [event.data["message"] for event in hv.events(limit=1000) if event.kind == kind]


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_setup_and_teardown_surround_the_attempt(tmp_path):
    config = """
[workspace]
include = [".env"]
setup = "cat .env > ready; echo $HV_SLOT $HV_PORT_BASE $COMPOSE_PROJECT_NAME"
teardown = "test -e seen && echo torn down"
"""
    with runs(tmp_path, config) as (repo, hv):
        repo.commit({".gitignore": ".env\nready\n"}, "ignore")
        (repo.folder / ".env").write_text("secret\n")
        submit(hv, repo, "cat ready > seen", [1], merge="")
        [task] = wait(hv, 1).values()
        assert task.state == "done" and "+secret" in hv.diff(task.id).text
        output = Path(hv.outputs.setup_path(task.id, 1)).read_text()
        slot, port, name = output.splitlines()[1].split()  # other stores have slots, too
        assert int(port) == FIRST_PORT + int(slot) * PORTS_EACH
        assert name == f"hv-{task.id.lower()}"
        assert output.endswith("torn down\n")
        phases = said(hv, "setup")
        assert phases[0].startswith("setting up: cat .env") and phases[1].startswith("set up in")


def test_a_failing_setup_pauses_the_batch_and_blames_no_task(tmp_path):
    with runs(tmp_path, '\n[workspace]\nsetup = "echo no network; exit 7"\n') as (repo, hv):
        submit(hv, repo, "true", [1], workers=1, merge="")
        [pause] = until(lambda: hv.status("edits").pauses)
        assert "setting up failed: `echo no network; exit 7` exited with 7" in pause.reason
        [task] = hv.list_tasks()
        assert task.state == "active" and task.failures == 0
        assert f"hv logs {task.id} --setup" in pause.reason
        assert "no network" in Path(hv.outputs.setup_path(task.id, 1)).read_text()


def test_a_task_is_cancelled_while_it_is_set_up(tmp_path):
    with runs(tmp_path, '\n[workspace]\nsetup = "sleep 600"\n') as (repo, hv):
        submit(hv, repo, "true", [1], merge="")
        attempts = until(lambda: [a for a in hv.status("edits").attempts if a.last_line])
        assert attempts[0].last_line == "setting up its workspace"
        hv.cancel(attempts[0].task)
        [task] = wait(hv, 1).values()
        assert task.state == "cancelled"
