"""New run in a browser, with a real supervisor: checked, started, finished."""

from __future__ import annotations

import shlex
import subprocess
import time

import pytest

from tests.support import standin
from tests.web.browser.conftest import DEADLINE

pytestmark = pytest.mark.web

OPEN = ("active", "waiting", "in_progress", "merging")


@pytest.fixture
def agents(project, tmp_path_factory):
    """Stand-ins for agents, with their key in the environment of the dashboard."""
    text = standin.config(tmp_path_factory.mktemp("agents"))
    (project.folder / ".hypervisor" / "config.toml").write_text(text)
    project.env["STANDIN_KEY"] = "key"


@pytest.fixture
def repository(project):
    (project.folder / "a.txt").write_text("first\n")
    author = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    for words in (("init", "-qb", "main"), ("add", "a.txt"), (*author, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=project.folder, check=True)


def check(page):
    page.click("#new-run [type=submit]")
    page.wait_for_selector("#checked .verdict")
    return page.text_content("#checked .verdict").strip()


def start(page, project):
    """The tasks of the batch that the browser is led to, when they have ended."""
    page.click("#checked form [type=submit]")
    page.wait_for_url("**/batches/*")
    batch = page.url.rpartition("/")[2]
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        tasks = project.json("ls", "--batch", batch)
        if tasks and not any(task["state"] in OPEN for task in tasks):
            break
        time.sleep(0.1)
    return tasks


def test_a_command_is_checked_changed_checked_again_and_run(project, tab):
    (project.folder / "one.txt").write_text("1")
    (project.folder / "two words.txt").write_text("2")
    page = tab("/new")
    page.fill("[name=command]", "no-such-program {}")
    page.fill("[name=files]", "*.txt")
    assert check(page) == "command not found: no-such-program"
    assert page.query_selector("#checked form") is None
    page.fill("[name=command]", "cp {} {}.copy")
    assert page.inner_html("#checked") == ""  # it was about another command
    page.fill("[name=name]", "it's")
    assert check(page) == "2 to do"
    shell = page.get_attribute("#checked [data-copy]", "data-copy")
    assert shell == """hv run --name 'it'"'"'s' --items '*.txt' -- cp {} {}.copy"""
    assert [task["state"] for task in start(page, project)] == ["done", "done"]
    assert (project.folder / "two words.txt.copy").read_text() == "2"
    # The command that was shown is the same run: there is nothing left to do.
    program = "import sys; from hypervisor.app import main; main()"
    hv = f"hv() {{ {shlex.quote(project._command()[0])} -I -c '{program}' \"$@\"; }}"
    again = subprocess.run(
        ["bash", "-c", f"{hv}; {shell} && hv status --json it\\'s"], cwd=project.folder,
        env=project.env, capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip
    assert "2 already done, skipped" in again.stdout + again.stderr


def test_an_agent_works_in_clones_and_its_work_is_verified_and_merged(
    agents, repository, project, tab
):
    page = tab("/new?kind=agent")
    page.select_option("[name=agent]", "fake-claude")
    page.fill("[name=prompt]", "act-edits\nall of it")
    page.fill("[name=items]", "the first")
    page.fill("[name=budget]", "5")
    page.fill("[name=name]", "edits")
    page.click("text=Workspace and merging")
    page.select_option("[name=merge]", "branch")
    page.fill("[name=verify]", "test -f new.txt")
    assert check(page) == "1 to do"
    assert "fake claude" in page.inner_text("#checked .facts")
    assert [task["state"] for task in start(page, project)] == ["done"]
    shown = subprocess.run(
        ["git", "show", "hv/edits:new.txt"], cwd=project.folder, capture_output=True, text=True
    )
    assert shown.stdout == "made by the agent\n"
    assert not (project.folder / "new.txt").exists()
    spec = project.json("status", "edits")["batch"]["spec"]
    assert spec["budget"] == 5 and spec["git_verify"] == ["test -f new.txt"]


def test_a_skill_is_chosen_and_run(project, tab):
    tasks = project.folder / "tasks"
    tasks.mkdir()
    (tasks / "one.md").write_text("---\nid: one\nstatus: open\n---\n# Water the plants\n")
    page = tab("/new?kind=skill")
    page.click("text=triage")
    page.fill("[name=path]", "/etc")
    assert "outside" in check(page)
    page.fill("[name=path]", "tasks")
    assert check(page) == "1 to do"
    (task,) = start(page, project)
    assert (task["state"], task["type"]) == ("done", "triage")


def test_a_function_over_many_lines(project, tab):
    page = tab("/new?kind=function")
    page.fill("[name=function]", "os.path:basename")
    page.fill("[name=items]", "\n".join(f"folder/{n}" for n in range(7)))
    assert check(page) == "7 to do"
    assert [task["state"] for task in start(page, project)] == ["done"] * 7


def test_the_form_fits_a_phone_and_can_be_read_aloud(agents, project, tab):
    from axe_playwright_python.sync_playwright import Axe

    page = tab("/new")
    for width, path in (
        (360, "/new?kind=agent"),
        (360, "/new?kind=skill&skill=review-files"),
        (1400, "/new?kind=skill"),
    ):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(project.address + path)
        if page.query_selector("#new-run"):
            page.select_option("[name=agent]", "fake-claude")
            page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
            check(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        serious = [
            (problem["id"], problem["nodes"][0]["html"])
            for problem in Axe().run(page).response["violations"]
            if problem["impact"] in ("serious", "critical")
        ]
        assert serious == [], path
