"""Where skills are found, their record, and skills made from a batch; no process
is started: the tests claim and end the tasks themselves."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import hypervisor
from hypervisor.batches.pipeline import run_pattern
from hypervisor.core import gitignore
from hypervisor.core.errors import InvalidInput, NotFound, WrongState
from hypervisor.queue.task import NewTask
from hypervisor.skills.fields import FIELDS, LIMITS
from hypervisor.skills.folders import (
    BUILT_IN,
    PROJECT,
    USER,
    built_in_folder,
    find_skill,
    places,
    require_skill,
    skill_names,
    user_folder,
)
from hypervisor.skills.skill import OWN, read_skill
from tests.support.specs import changed, run_spec

ROOT = Path(__file__).resolve().parents[2]
SPEC = run_spec("/", ("true",), skill="mine")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project, a home without anything in it, and we are in the project."""
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def hv(project):
    with hypervisor.open(project / ".hypervisor", relaxed=True) as opened:
        yield opened


def keep(folder: Path, name: str, run: str = "{command: [ls]}", more: str = "") -> Path:
    made = folder / name
    made.mkdir(parents=True)
    text = f"---\nname: {name}\ndescription: {folder.name}\nrun: {run}\n{more}---\nDo it.\n"
    (made / "SKILL.md").write_text(text)
    return made


def tasks(*names: str, **more: object) -> list[NewTask]:
    return [
        NewTask(name, key=name, data={"item": name, "number": n}, **more)  # type: ignore[arg-type]
        for n, name in enumerate(names, 1)
    ]


def end(hv, batch, *ends):
    for verdict in ends:
        token = hv.claim("w", batch=batch)[0].token
        hv.complete(token) if verdict == "done" else hv.fail(token, "no")


class TestFinding:
    def test_project_user_and_built_in_in_this_order(self, project):
        assert [place.kind for place in places()] == [USER, BUILT_IN]  # there is no project yet
        (project / ".hypervisor").mkdir()
        assert [place.kind for place in places()] == [PROJECT, USER, BUILT_IN]
        keep(project / ".hypervisor" / "skills", "mine")
        keep(Path(user_folder()), "mine")
        keep(Path(user_folder()), "triage")
        found = require_skill("mine")
        assert (found.kind, found.hides) == (PROJECT, (os.path.join(user_folder(), "mine"),))
        found = require_skill("triage")
        assert (found.kind, len(found.hides)) == (USER, 1)

    def test_the_users_folder(self, project):
        assert user_folder() == str(project.parent / "home" / ".config" / "hypervisor" / "skills")
        assert user_folder({"XDG_CONFIG_HOME": "/conf"}) == "/conf/hypervisor/skills"
        assert user_folder({"XDG_CONFIG_HOME": "not/absolute"}) == user_folder()

    def test_nothing_is_read_for_a_name_that_is_none(self, project):
        keep(project / ".hypervisor" / "skills", "mine")
        (project / "SKILL.md").write_text("---\n---\n")
        for name in ("", ".", "..", "../..", "mine/", "/etc", "MINE", "a" * 300, "x\0"):
            assert find_skill(name) is None
        with pytest.raises(InvalidInput):
            require_skill("../..")
        with pytest.raises(NotFound, match="Did you mean mine"):
            require_skill("mines")

    def test_what_another_user_owns_is_refused(self, project, monkeypatch):
        keep(project / ".hypervisor" / "skills", "mine")
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        if (project / ".hypervisor").stat().st_uid == 0:
            monkeypatch.setattr(os, "stat", _owned_by(12345, os.stat))
        with pytest.raises(InvalidInput, match="belongs to another user"):
            require_skill("mine")
        assert require_skill("triage").kind == BUILT_IN

    def test_folders_that_are_not_skills_are_not_listed(self, project):
        base = project / ".hypervisor" / "skills"
        keep(base, "mine")
        (base / "empty").mkdir()
        (base / "file").write_text("x")
        keep(base, "Capital")
        assert "mine" in skill_names()
        assert not {"empty", "file", "Capital", "clients", "prompts"} & set(skill_names())

    def test_every_built_in_can_be_read_and_is_packed(self, project):
        names = {path.parent.name for path in Path(built_in_folder()).glob("*/SKILL.md")}
        assert "triage" in names
        for name in names:
            assert require_skill(name).kind == BUILT_IN
        assert 'packages = ["src/hypervisor"]' in (ROOT / "pyproject.toml").read_text()


def _owned_by(uid, real):
    def stat(path, **more):
        found = real(path, **more)
        return os.stat_result((*found[:4], uid, *found[5:]))

    return stat


class TestDocumented:
    PAGE = ROOT / "docs" / "how-to" / "skills.md"

    def test_the_example_can_be_read(self):
        example = re.search(r"```markdown\n(.*?)```", self.PAGE.read_text(), re.DOTALL)
        assert example is not None
        skill = read_skill(example[1].encode(), "find-todos")
        assert skill.files == ("count.sh",)

    @pytest.mark.parametrize("field", [*OWN, *FIELDS, *LIMITS])
    def test_every_field_is_explained(self, field):
        assert f"`{field}`" in self.PAGE.read_text()


class TestRecord:
    def test_runs_tasks_success_and_nothing_of_others(self, hv, project):
        keep(project / ".hypervisor" / "skills", "mine")
        hv.submit(SPEC, tasks("a", "b", "c"), "one")
        end(hv, "one", "done", "fail")
        hv.submit(SPEC, tasks("a"), "two")
        end(hv, "two", "done")
        hv.submit(SPEC._replace(skill=""), tasks("x"), "other")
        end(hv, "other", "done")
        record = next(each for each in hv.skills() if each.name == "mine").record
        assert (record.runs, record.tasks, record.done) == (2, 4, 2)
        assert record.success == pytest.approx(2 / 3)  # one is still to do
        assert hv.skill("mine").batches == ("two", "one")

    def test_what_follows_on_the_items_is_part_of_the_same_run(self, hv, project):
        keep(project / ".hypervisor" / "skills", "mine")
        later, last = changed(SPEC, command=("two",)), run_spec("/", ("last", "{}"))
        run_pattern(hv, SPEC, tasks("a", "b"), "one", [later], reduce=last)
        record = hv.skill("mine").view.record
        assert (record.runs, record.tasks) == (1, 5)

    def test_none_yet(self, hv):
        assert hv.skill("triage").view.record == (0, 0, 0, None, 0.0, 0, None, False, None)
        assert hv.skill("triage").learned is None


class TestMaking:
    def made(self, hv, spec, given, name="b", **more):
        hv.submit(spec, given, name, **more)
        found = hv.new_skill("new", name)
        text = (Path(found.folder) / "SKILL.md").read_bytes()
        return found, read_skill(text, "new")

    def test_what_the_tasks_have_in_common(self, hv):
        given = tasks("a", "b", type="t", priority="high", retries=2, requires=("gpu",))
        given[1] = given[1]._replace(requires=("gpu", "more", "agent:x"), retries=1)
        _, skill = self.made(hv, SPEC._replace(skill=""), given)
        assert dict(skill.options) == {"type": "t", "priority": "high", "requires": ["gpu"]}

    def test_a_branch_is_reported_and_not_kept(self, hv):
        found, skill = self.made(hv, SPEC, tasks("a", branch="login"))
        assert "branch" not in skill.options
        assert found.notes == ("the branch login is not saved; use --branch",)

    def test_chunks_that_nothing_explains_are_reported(self, hv):
        given = [task._replace(chunk=n) for n, task in enumerate(tasks("a", "b"), 1)]
        found, skill = self.made(hv, SPEC, given, chunks=("red", "blue"))
        assert not {"chunk", "chunk_by", "chunk_size"} & set(skill.options)
        assert "cannot tell how the" in found.notes[0]

    @pytest.mark.parametrize(
        ("names", "field"),
        [
            (("2026-01", "2026-02"), "month"),
            (("2026-01-01", "undated"), "day"),
            (("2026-W01", "2026-W02"), "week"),
        ],
    )
    def test_chunks_of_time_are_reported_by_their_names(self, hv, names, field):
        given = [task._replace(chunk=n) for n, task in enumerate(tasks("a", "b"), 1)]
        assert self.made(hv, SPEC, given, chunks=names)[1].options["chunk"] == field

    def test_stages_and_the_reduce_go_along(self, hv):
        agent = run_spec("/", agent="claude", agents=("claude",), prompt="Sum {item} up")
        run_pattern(hv, SPEC, tasks("a"), "b", [run_spec("/", ("jq", "a b", "{result}"))])
        skill = read_skill(hv.new_skill("new", "b").files["SKILL.md"].encode(), "new")
        assert skill.options["then"] == ["jq 'a b' '{result}'"]
        run_pattern(hv, SPEC, tasks("a"), "c", reduce=agent)
        found = hv.new_skill("other", "c")
        skill = read_skill(found.files["SKILL.md"].encode(), "other")
        assert skill.reduce is not None and skill.reduce.agent == "claude"
        assert found.files["reduce.md"] == "Sum {item} up"
        with pytest.raises(InvalidInput, match="use that batch"):
            hv.new_skill("third", "c reduce")

    def test_what_the_only_agent_may_do_and_cost_goes_along(self, hv):
        agent = run_spec(
            "/",
            agent="claude",
            agents=("claude",),
            prompt="Sum up",
            permissions="read-only",
            allow=("Bash",),
            model="sonnet",
            turns=7,
            fallback="codex",
            budget=5_000_000,
            task_budget=1_000_000,
            tokens=900,
            task_tokens=90,
            silence=7_000,
        )
        run_pattern(hv, changed(SPEC, time=60_000), tasks("a"), "b", reduce=agent)
        found = read_skill(hv.new_skill("new", "b").files["SKILL.md"].encode(), "new").options
        wanted = {
            "permissions": "read-only",
            "allow": ["Bash"],
            "model": "sonnet",
            "turns": 7,
            "fallback": "codex",
            "budget": 5_000_000,
            "task_budget": 1_000_000,
            "tokens": 900,
            "task_tokens": 90,
            "timeout": 60_000,
        }
        assert {name: found[name] for name in wanted} == wanted
        assert "silence" not in found  # that is of the reduce alone

    def test_outside_a_project_only_the_users_folder_will_do(self, hv, project, monkeypatch):
        hv.submit(SPEC, tasks("a"), "b")
        (project.parent / "elsewhere").mkdir()
        monkeypatch.chdir(project.parent / "elsewhere")
        with pytest.raises(InvalidInput, match="--user"):
            hv.new_skill("new", "b")
        assert hv.new_skill("new", "b", user=True).folder == os.path.join(user_folder(), "new")
        with pytest.raises(WrongState, match="already exists"):
            hv.new_skill("new", "b", user=True)

    def test_a_folder_that_cannot_be_written_leaves_nothing(self, hv, project):
        hv.submit(SPEC, tasks("a"), "b")
        (project / ".hypervisor" / "skills").write_text("in the way")
        with pytest.raises(InvalidInput, match="cannot be written"):
            hv.new_skill("new", "b")
        assert (project / ".hypervisor" / "skills").read_text() == "in the way"

    def test_a_strange_name_of_a_batch_stays_text(self, hv):
        name = "x: [y] 'z' # --- <b>"
        hv.submit(SPEC, tasks("a"), name)
        text = hv.new_skill("new", name).files["SKILL.md"]
        description = read_skill(text.encode(), "new").description
        assert description == f"repeats the batch {name}"


class TestGit:
    def test_a_new_folder_shows_its_skills_to_git(self, hv, project):
        text = (project / ".hypervisor" / gitignore.FILE).read_text()
        assert text == gitignore.SKILLS_ONLY
        assert (project / ".hypervisor").stat().st_mode & 0o777 == 0o700

    def test_a_folder_that_git_made_becomes_private_and_keeps_its_skills(self, project):
        keep(project / ".hypervisor" / "skills", "mine")
        (project / ".hypervisor").chmod(0o755)
        hypervisor.open(project / ".hypervisor", relaxed=True).close()
        assert (project / ".hypervisor").stat().st_mode & 0o777 == 0o700
        assert require_skill("mine").kind == PROJECT

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (gitignore.NOTHING, gitignore.SKILLS_ONLY),
            ("*\n!config.toml\n", "*\n!config.toml\n"),
            ("\xff", "\xff"),
        ],
    )
    def test_what_a_person_wrote_stays(self, tmp_path, before, after):
        (tmp_path / gitignore.FILE).write_text(before, encoding="latin-1")
        gitignore.unignore_skills(str(tmp_path))
        assert (tmp_path / gitignore.FILE).read_text(encoding="latin-1") == after

    def test_no_file_is_made_where_none_was(self, tmp_path):
        gitignore.unignore_skills(str(tmp_path))
        assert list(tmp_path.iterdir()) == []
