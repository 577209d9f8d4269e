"""New run: from the form to the words of `hv run`, its paths, its check and its start."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import hypervisor
from hypervisor.core.errors import InvalidInput
from hypervisor.web.dashboard.own_commands import CommandAnswer
from hypervisor.web.dashboard.run_command import command_of, inside, quoted
from tests.web.dashboards import Browser

SKILL = """---
name: shout
description: say it loudly
run:
  command: [echo, "{}"]
retries: 2
limits:
  timeout: 15m
---
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("")
    (tmp_path / "review.md").write_text("look at {}")
    return tmp_path


@pytest.fixture
def hv(project):
    with hypervisor.open(project / ".hypervisor" / "store.db", relaxed=True) as opened:
        yield opened


def words(project, **form):
    return command_of(form, str(project)).arguments("run")


def test_a_command_and_its_options(project):
    form = {"command": "convert {} {.}.png", "items": "a b\n\n c", "name": "-x", "workers": "2"}
    command = command_of({**form, "rerun": "again", "fail_fast": "1"}, str(project))
    assert command.shell() == (
        "hv run --name=-x --workers 2 --again --fail-fast --item 'a b' --item ' c' "
        "-- convert {} {.}.png"
    )
    script = words(project, **{"command": "echo $x | wc", "shell": "1", "items": "a"})
    assert script == ["run", "--shell", "--item", "a", "--", "echo $x | wc"]


def test_many_items_are_the_standard_input(project):
    lines = "\n".join(f"item {n}" for n in range(6))
    command = command_of({"command": "true", "items": lines}, str(project))
    assert command.arguments("run") == ["run", "--", "true"]
    assert command.stdin == lines + "\n"
    assert command.shell().startswith("printf '%s\\n' 'item 0' 'item 1'")
    both = command_of({"command": "true", "items": lines, "files": "src/*.py"}, str(project))
    assert both.words == ("--items", "-", "--items", "src/*.py")


def test_an_agent_with_all_that_people_need(project):
    form = {
        "kind": "agent",
        "agent": "claude",
        "prompt": "fix\nit",
        "files": "src/**/*.py",
        "permissions": "edit",
        "budget": "5",
        "merge": "branch",
        "verify": "make lint\nmake test",
    }
    assert words(project, **form) == [
        "run", "--agent", "claude", "--prompt", "fix\nit", "--permissions", "edit", "--budget", "5",
        "--merge", "branch", "--verify", "make lint", "--verify", "make test",
        "--items", "src/**/*.py",
    ]  # fmt: skip


def test_a_skill_has_its_path_and_only_what_was_changed(project):
    form = {"kind": "skill", "skill": "review-files", "path": "src", "retries": "3"}
    assert words(project, **form) == ["run", "review-files", "src", "--retries", "3"]


@pytest.mark.parametrize("char", ["'", "\\", "\n", "\t", "\x1b", "\u202e", "é", "$(id)", "`id`"])
def test_what_is_copied_into_a_shell_is_what_was_asked_for(char):
    for word in (char, f"{{}}{char}{char} x"):
        command = ["bash", "-c", f"printf %s {quoted(word)}"]
        env = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
        assert subprocess.run(command, capture_output=True, env=env).stdout.decode() == word
        assert quoted(word).isprintable()


@pytest.mark.parametrize(
    "form",
    [
        {"command": "true", "files": "/etc/passwd"},
        {"command": "true", "files": "../*.py"},
        {"command": "true", "files": "src/../../x"},
        {"command": "true", "files": "~/x"},
        {"command": "true", "files": "/*"},
        {"command": "true", "files": "link/*"},
        {"kind": "agent", "agent": "claude", "items": "a", "prompt": "/etc/passwd"},
        {"kind": "agent", "agent": "claude", "items": "a", "prompt_file": "link/passwd"},
        {"kind": "skill", "skill": "triage", "path": "/etc"},
        {"kind": "skill", "skill": "triage", "path": ".", "copy": "/tmp/copy"},
    ],
)
def test_paths_stay_in_the_project(project, form):
    (project / "link").symlink_to("/etc")
    with pytest.raises(InvalidInput, match="outside"):
        command_of(form, str(project))


def test_paths_in_the_project_may_be_named_in_any_way(project):
    for path in ("src", "./src", "src/**/*.py", str(project / "src"), ".", "not-there"):
        assert inside(str(project), path) == path
    assert inside(str(project), "-") == "./-"


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"command": "'"},
        {"command": "true"},
        {"kind": "nonsense"},
        {"kind": "agent", "items": "a"},
        {"kind": "skill"},
        {"kind": "skill", "skill": "no-such-skill"},
        {"command": "true", "items": "a", "gate": "sometimes"},
        {"command": "true", "items": "x\n" * 5_001},
    ],
)
def test_what_is_missing_or_wrong_is_said_and_nothing_starts(hv, form):
    browser = Browser(hv)
    checked = browser.post("/new/check", form)
    assert checked.status in (200, 400)
    if checked.status == 200:
        assert "verdict bad" in checked.text and "/new/start" not in checked.text
    assert browser.post("/new/start", form).status == 400
    assert hv.batches() == ()


def test_a_check_shows_the_preflight_and_changes_nothing(hv, project):
    form = {"command": "wc -c {}", "files": "src/*.py", "name": "sizes"}
    text = Browser(hv).post("/new/check", form).text
    assert "1 to do" in text and "wc -c src/a.py" in text and "Start 1 task" in text
    assert "hv run --name sizes --items &#39;src/*.py&#39; -- wc -c {}" in text
    assert hv.batches() == ()


def test_a_check_says_what_hv_run_says(hv):
    for form, message in (
        ({"command": "no-such-program {}", "items": "a"}, "command not found: no-such-program"),
        ({"kind": "agent", "agent": "nobody", "items": "a"}, "nobody"),
        ({"command": "true", "items": "a", "timeout": "soon"}, "invalid duration"),
    ):
        text = Browser(hv).post("/new/check", form).text
        assert "verdict bad" in text and message in text, text


def test_a_prompt_is_shown_line_by_line_and_only_as_text(hv, monkeypatch):
    found = {"headline": "1 to do", "clear": True, "items": 1, "to_do": 1, "new": 1, "complete": 0}
    found |= {"findings": [], "order": [], "advice": "", "estimate": {"cost": None}}
    first = {"batch": "b", "prompt": "one <b>\n\u202eowt\x1b[31m\n"}
    asked = found, first, ()
    monkeypatch.setattr("hypervisor.web.dashboard.pages.new_run._asked", lambda *given: asked)
    text = Browser(hv).post("/new/check", {"command": "true", "items": "a"}).text
    assert "<bdi>one &lt;b&gt;</bdi>\n<bdi>" in text
    assert "\u202e" not in text and "\x1b" not in text and "owt" in text


def test_starting_is_hv_run_and_leads_to_the_batch(hv, project, monkeypatch):
    asked = []

    def run_hv(hv, arguments, folder, stdin=""):
        asked.append((list(arguments), folder, stdin))
        return CommandAnswer({"batch": "try", "id": "b1", "to_do": 1}, ())

    monkeypatch.setattr("hypervisor.web.dashboard.pages.new_run.run_hv", run_hv)
    form = {"command": "true", "items": "a"}
    answer = Browser(hv).post("/new/start", form)
    assert (answer.status, answer.headers["hx-redirect"]) == (204, "/batches/b1")
    arguments = ["run", "--item", "a", "--detach", "--json", "--", "true"]
    assert asked == [(arguments, str(project), "")]
    plain = Browser(hv).post("/new/start", form, hx_request=None)
    assert (plain.status, plain.headers["location"]) == (303, "/batches/b1")


def test_the_form_of_a_skill_shows_what_the_skill_says(hv, project):
    folder = project / ".hypervisor" / "skills" / "shout"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    browser = Browser(hv)
    assert "say it loudly" in browser.get("/new?kind=skill").text
    text = browser.get("/new?kind=skill&skill=shout").text
    assert 'placeholder="2 (the skill&#39;s)"' in text and "15m (the skill&#39;s)" in text
    assert 'name="budget"' not in text  # it has no agent
    assert "shout (the skill" not in text
    shutil.rmtree(folder)
    assert "shout" not in browser.get("/new?kind=skill").text


def test_a_form_can_be_linked_to(hv):
    text = Browser(hv).get("/new?kind=agent&prompt=one%0Atwo&budget=5&merge=branch").text
    assert ">one\ntwo</textarea>" in text and 'name="budget" value="5"' in text
    assert '<option value="branch" selected>' in text
