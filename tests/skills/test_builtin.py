"""The built-in skills as they ship: valid, and run with a stand-in for the agents."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from hypervisor.agents.prompt import PLACEHOLDER
from hypervisor.selftest.repositories import Repo
from hypervisor.skills.folders import BUILT_IN, built_in_folder, read_folder
from tests.cli.conftest import until

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = Path(built_in_folder())
AGENTS = ("code-audit", "refactor-module", "review-files", "summarize")
NAMES = (*AGENTS, "mail-classify", "triage")
PLACES = {"item", "path", "look_for", "topic"}


@pytest.fixture
def hv(project):
    project.equip()
    return project


def run(hv, *words, code=0):
    done = hv("run", *words, "--quiet")
    assert done.code == code, done
    found = re.search(r"batch (\S+):", done.err)
    assert found is not None, done
    return found[1]


def told(hv):
    """The prompts of the stand-ins, by the title of the task."""
    files = (hv.folder / "agents" / "provider").glob("told-*")
    return {
        hv.task(file.name.removeprefix("told-"))["title"]: json.loads(file.read_text())
        for file in files
    }


class TestAsTheyShip:
    def test_all_are_there(self):
        assert {path.parent.name for path in FOLDER.glob("*/SKILL.md")} == set(NAMES)

    @pytest.mark.parametrize("name", NAMES)
    def test_it_can_be_read_and_uses_every_file_of_its_folder(self, name):
        skill = read_folder(str(FOLDER / name), BUILT_IN)
        assert skill.description.isprintable() and len(skill.description) <= 150
        files = {path.name for path in (FOLDER / name).iterdir()} - {"SKILL.md"}
        assert files - set(skill.files) <= {f"{name}.toml"}  # rules that its function reads

    @pytest.mark.parametrize("name", AGENTS)
    def test_agents_are_told_what_to_report_and_what_not_to_do(self, name):
        skill = read_folder(str(FOLDER / name), BUILT_IN)
        prompts = [skill.options["prompt"], *([skill.reduce.prompt] if skill.reduce else [])]
        for file in prompts:
            text = (FOLDER / name / file).read_text()
            assert set(PLACEHOLDER.findall(text)) <= PLACES, file
            assert "`category`" in text and "`rationale`" in text and "`data" in text
            assert "hange nothing" in text or "stays" in text
        schema = json.loads((FOLDER / name / skill.options["schema"]).read_text())
        assert set(schema["required"]) == set(schema["properties"])
        for member in schema["properties"]:
            assert f"`data.{member}`" in (FOLDER / name / prompts[0]).read_text()

    @pytest.mark.parametrize("name", sorted({*AGENTS} - {"refactor-module"}))
    def test_reviewing_skills_may_only_read(self, name):
        options = read_folder(str(FOLDER / name), BUILT_IN).options
        assert options["permissions"] == "read-only" and not options.get("allow")

    def test_a_refactoring_is_merged_into_a_branch_and_waits_for_a_decision(self):
        options = read_folder(str(FOLDER / "refactor-module"), BUILT_IN).options
        assert (options["merge"], options["gate"]) == ("branch", "each")


def test_code_audit_searches_three_times_and_reports_once(hv):
    shutil.copytree(EXAMPLES / "flawed", hv.folder / "act-tells")
    batch = run(hv, "code-audit", "act-tells", "--agent", "fake-claude")
    prompts = told(hv)
    searches = [each["title"] for each in hv.tasks(batch) if each["title"] != "reduce"]
    assert len(searches) == 3 and set(searches) < set(prompts)
    for title in searches:
        asked = prompts[title]["prompt"]
        assert f"Audit the code at `act-tells` for one kind of weakness: `{title}`" in asked
        assert "store it with the tool `remember`" in asked and not PLACEHOLDER.findall(asked)
        assert (
            "may only read: change nothing" in asked and "--json-schema" in prompts[title]["argv"]
        )
        assert "severity" in " ".join(prompts[title]["argv"])
    (last,) = set(prompts) - set(searches)
    assert "stream-json" in prompts[last]["argv"]  # the same agent, since it was named
    asked = prompts[last]["prompt"]
    assert (
        "Combine their findings into one report" in asked
        and "may only read: change nothing" in asked
    )
    path = re.search(r"are in the file `([^`]+)`", asked)
    assert path is not None
    lines = [json.loads(line) for line in Path(path[1]).read_text().splitlines()]
    assert {(line["title"], line["state"]) for line in lines} == {(n, "done") for n in searches}
    assert {task["branch"] for task in map(hv.task, _ids(hv, batch))} == {"code-audit"}

    run(hv, "code-audit", "act-tells", "--agent", "fake-claude")  # all of it is done already
    assert {task["attempts"] for task in hv.tasks(batch)} == {1}


def _ids(hv, batch):
    return [each["id"] for each in hv.tasks(batch)]


def test_review_files_looks_at_each_file_and_asks_after_the_first_ten(hv):
    folder = hv.folder / "src"
    folder.mkdir()
    for number in range(12):
        (folder / f"f{number:02}.py").write_text("x = 1\n")
    (folder / "notes.txt").write_text("act-tells")
    batch = run(hv, "review-files", "src", "--agent", "fake-codex", code=10)
    assert hv.json("stats", "--batch", batch)["states"]["done"] == 10
    assert hv.ok("review", batch, "--approve")
    run(hv, "review-files", "src", "--agent", "fake-codex")
    assert [each["title"] for each in hv.tasks(batch)] == [f"src/f{n:02}.py" for n in range(12)]

    (folder / "act-tells.ts").write_text("let x = 1\n")
    run(hv, "review-files", "src/*.ts", "--agent", "fake-claude", "--gate", "none")
    (asked,) = told(hv).values()
    assert "Review the file `src/act-tells.ts`" in asked["prompt"]
    assert not PLACEHOLDER.findall(asked["prompt"])


@pytest.mark.parametrize("skill", ["summarize", "summarise"])
def test_summarize_makes_one_of_all(hv, skill):
    (hv.folder / "act-tells").mkdir()
    for name in ("one", "two"):
        (hv.folder / "act-tells" / f"{name}.md").write_text(f"We decided {name}.\n")
    batch = run(hv, skill, "act-tells", "--agent", "fake-gemini")
    assert batch.startswith("summarize-act-tells-")
    assert hv.json("skills", "show", skill)["batches"] == [batch]
    prompts = told(hv)
    assert len(hv.tasks(batch)) == 3 and len(prompts) == 3
    assert "Summarize the text `act-tells/one.md`" in prompts["act-tells/one.md"]["prompt"]
    assert all("--skip-trust" in each["argv"] for each in prompts.values())
    assert sum("Make one summary of them all" in each["prompt"] for each in prompts.values()) == 1


def test_refactor_module_merges_what_passes_and_leaves_the_project_alone(hv):
    repo = Repo(hv.folder)
    repo.commit({".gitignore": "*\n!*.py\n!*.txt\n", "act-edits.py": "x = 1\n", "a.txt": "mine\n"})
    words = ("act-edits.py", "--agent", "fake-claude", "--verify", "test -f new.txt")
    batch = run(hv, "refactor-module", *words, code=10)
    (task,) = hv.tasks(batch)
    assert (hv.folder / "a.txt").read_text() == "mine\n" and not (hv.folder / "new.txt").exists()
    patch = hv.ok("diff", task["id"])
    assert "+changed by the agent" in patch and "+made by the agent" in patch
    assert repo.read(f"hv/{batch}", "new.txt") == "made by the agent\n"


def test_refactor_module_takes_what_is_in_the_clone_only(hv):
    Repo(hv.folder).commit({".gitignore": "*\n!*.py\n", "a.py": "x = 1\n"})
    words = ("run", "refactor-module", "--agent", "fake-claude", "--dry-run")
    shown = hv.ok(*words, str(hv.folder / "a.py"))
    assert "`a.py`" in shown and f"`{hv.folder}/a.py`" not in shown
    assert "is outside" in hv.refused(2, *words, str(hv.folder.parent))


class TestMailClassify:
    def test_month_by_month_and_nothing_is_changed(self, hv):
        shutil.copy(EXAMPLES / "mail" / "inbox.mbox", hv.folder / "in.mbox")
        before = (hv.folder / "in.mbox").read_bytes()
        batch = run(hv, "mail-classify", "in.mbox", code=10)
        assert hv.json("stats", "--batch", batch)["states"]["done"] == 16
        summary = hv.folder / ".hypervisor" / "batches" / batch / "chunk-01-summary.json"
        until(lambda: sum(json.loads(summary.read_text())["categories"].values()) == 16)
        assert json.loads(summary.read_text())["categories"]["invoice"] == 2
        hv.ok("review", batch, "--approve-rest")
        run(hv, "mail-classify", "in.mbox")
        assert hv.json("stats", "--batch", batch)["states"]["done"] == 44
        assert (hv.folder / "in.mbox").read_bytes() == before
        assert "0 actions" in hv.ok("plan", batch)

    def test_of_a_maildir_what_was_approved_is_moved_and_can_be_undone(self, hv):
        for part in ("cur", "new", "tmp"):
            (hv.folder / "mail" / part).mkdir(parents=True)
        one, two = hv.folder / "mail/cur/1.a:2,S", hv.folder / "mail/new/2.b"
        one.write_text("Date: Mon, 5 Jan 2026 10:00:00 +0000\nSubject: Invoice 7\n\nPlease pay.\n")
        two.write_text("Date: Mon, 5 Jan 2026 11:00:00 +0000\nFrom: a@b.example\n\nHello\n")
        batch = run(hv, "mail-classify", "mail", code=10)
        assert one.exists() and two.exists()
        hv.ok("review", batch, "--approve")
        hv.ok("apply", batch, "--yes")
        moved = hv.folder / "mail/.invoice/cur/1.a:2,S"
        assert moved.exists() and not one.exists() and two.exists()
        hv.ok("undo", batch, "--yes")
        assert one.exists() and not moved.exists()

    def test_an_agent_may_judge_instead(self, hv):
        mail = "From x Mon Jan 05 10:00:00 2026\nMessage-ID: <a@b>\nSubject: act-tells\n\nHello\n"
        (hv.folder / "in.mbox").write_text(mail)
        run(hv, "mail-classify", "in.mbox", "--agent", "fake-claude", "--gate", "none")
        (asked,) = told(hv).values()
        assert "Say what kind of mail this is." in asked["prompt"]
        assert "`act-tells`" in asked["prompt"] and "`in.mbox`" in asked["prompt"]
        assert "may only read: change nothing" in asked["prompt"]

    def test_no_file_of_the_folder_stands_in_for_a_part_of_it(self, hv):
        shutil.copy(EXAMPLES / "mail" / "inbox.mbox", hv.folder / "in.mbox")
        for name in ("html.py", "tomllib.py", "hypervisor.py"):
            (hv.folder / name).write_text("open('caught', 'w'); raise RuntimeError('not ours')\n")
        batch = run(hv, "mail-classify", "in.mbox", "--gate", "none")
        assert hv.json("stats", "--batch", batch)["states"]["done"] == 44
        assert not (hv.folder / "caught").exists()

    def test_own_rules_count(self, hv):
        shutil.copy(EXAMPLES / "mail" / "inbox.mbox", hv.folder / "in.mbox")
        (hv.folder / "mail-classify.toml").write_text('[category.sea]\nsubject = ["brest"]\n')
        batch = run(hv, "mail-classify", "in.mbox", "--gate", "none")
        sorted_in = [t for t in hv.tasks(batch) if hv.task(t["id"])["result"]["category"] == "sea"]
        assert [t["title"] for t in sorted_in] == ["Re: the gauge at Brest (Jonas Weber)"]
