"""Triage of one file: each rule, what it must leave alone, notes and proposals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hypervisor.batches.plans import plan
from hypervisor.batches.plans.action import checked
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.task_files import markdown
from hypervisor.skills.builtin import triage
from hypervisor.skills.builtin.triage_decide import read_note

BODY = "Please look at it.\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The run's folder, with its own place for locks."""
    (tmp_path / ".hypervisor").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("HV_NOTE", "HV_PROPOSE", "HV_LOCKS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def task(front="", body=BODY, name="task.md"):
    Path(name).write_bytes(f"---\ntitle: A thing\n{front}---\n{body}".encode())
    return name


def fields(name="task.md"):
    return markdown.parse(Path(name).read_bytes()).fields


def twice(name="task.md"):
    """The first answer; a second one must agree with it and change nothing."""
    first = triage.run(name)
    left = Path(name).read_bytes()
    again = triage.run({"path": name})
    assert Path(name).read_bytes() == left
    assert (again["category"], again["changed"], again["receipts"]) == (first["category"], {}, [])
    return first


class TestClosed:
    @pytest.mark.parametrize("status", ["closed", "Done", "completed", "RESOLVED"])
    def test_by_status(self, status):
        answer = twice(task(f"status: {status}\n"))
        assert answer["category"] == "closed"
        assert answer["changed"] == {"status": "done"}
        assert fields()["status"] == "done"

    @pytest.mark.parametrize("status", ["done", "cancelled", "canceled", "wontfix"])
    def test_what_says_so_already_stays(self, status):
        before = Path(task(f"status: {status} # ours\n")).read_bytes()
        assert twice()["category"] == "closed"
        assert Path("task.md").read_bytes() == before

    @pytest.mark.parametrize(
        "body",
        [
            "## Close Reason\n\nmerged\n",
            "text\n\n### close reason ###\n",
            "- [x] one\n  - [X] two\n",
            "1. [x] only\n",
        ],
    )
    def test_by_its_body(self, body):
        answer = twice(task("status: inbox\n", body))
        assert answer["category"] == "closed"
        assert fields()["status"] == "done"

    @pytest.mark.parametrize(
        "body",
        [
            "```\n## Close Reason\n```\n",
            "<!-- ## Close Reason -->\n",
            "<!--\n## Close Reason\n-->\n",
            "Close Reason\n",
            "- [x] one\n- [ ] two\n",
            "`- [x]` is a box\n",
            "text\n",
        ],
    )
    def test_not(self, body):
        assert twice(task("status: inbox\n", body))["category"] == "unclear"
        assert fields()["status"] == "inbox"

    def test_cancelled_stays_cancelled_with_a_reason(self):
        twice(task("status: cancelled\n", "## Close Reason\nno time\n"))
        assert fields()["status"] == "cancelled"

    def test_is_not_assigned_and_not_estimated(self):
        answer = triage.run(task("status: closed\n", "Review and decide, talk to Ann.\n"))
        assert answer["changed"] == {"status": "done"}

    def test_without_a_status_it_gets_one(self):
        triage.run(task("", "## Close Reason\n"))
        assert fields()["status"] == "done"


class TestAssignee:
    @pytest.mark.parametrize(
        ("title", "body", "category", "assignee"),
        [
            ("Review the contract", "", "judgement", "me"),
            ("Something", "Talk to Ann, then decide.", "judgement", "me"),
            ("Vertrag klären", "", "judgement", "me"),
            ("Rename the modules", "", "automatable", "bot"),
            ("Something", "Regenerate it, then fix lint.", "automatable", "bot"),
            ("Something", "Rename it.", "unclear", None),  # a single word in the body
            ("Something", "", "unclear", None),
            ("Rename it, after review", "", "unclear", None),  # both
            ("Something", "decide, discuss, rename, regenerate", "unclear", None),
            ("Rename it", "Ask Ann if unsure.", "automatable", "bot"),  # the title weighs more
            ("Preview it", "the payload, repaid", "unclear", None),
        ],
    )
    def test_by_words(self, title, body, category, assignee):
        Path("task.md").write_text(f"---\ntitle: {title}\n---\n{body}\n")
        assert twice()["category"] == category
        assert fields().get("assignee") == assignee

    @pytest.mark.parametrize("given", ["ann", "'none'", "[ann, bob]", "0", "{name: ann}"])
    def test_of_a_person_is_never_overwritten(self, given):
        line = f"assignee: {given}\n"
        answer = twice(task(line + "complexity: x\n", "Rename, regenerate, fix lint.\n"))
        assert answer["category"] == "assigned"
        assert answer["changed"] == {}
        assert line in Path("task.md").read_text()

    @pytest.mark.parametrize("empty", ["", " ''", " null", " ~", " # nobody yet"])
    def test_left_empty_is_filled(self, empty):
        assert twice(task(f"assignee:{empty}\n", "Rename and regenerate.\n"))["changed"]["assignee"]
        assert fields()["assignee"] == "bot"

    def test_names_come_from_the_rules(self, folder):
        (folder / "triage.toml").write_text('[names]\nperson = "Zoë"\nbot = "yes"\n')
        assert twice(task("", "decide, discuss"))["changed"]["assignee"] == "Zoë"
        assert twice(task("", "rename, regenerate"))["changed"]["assignee"] == "yes"
        assert fields()["assignee"] == "yes"

    def test_without_a_title_the_heading_or_the_file_name_counts(self):
        Path("rename the modules.md").write_text("---\nid: 1\n---\n")
        assert twice("rename the modules.md")["category"] == "automatable"
        Path("task.md").write_text("---\nid: 1\n---\n# Review the contract\n")
        assert twice()["category"] == "judgement"


class TestComplexity:
    @pytest.mark.parametrize(
        ("body", "level"),
        [
            ("short\n", "simple"),
            ("word " * 130, "medium"),
            ("- [ ] a\n" * 4, "medium"),
            ("- [ ] a\n" * 8 + "word " * 130, "complex"),
            ("Investigate the deadlock\n", "medium"),
            ("Investigate the deadlock " + "word " * 130, "complex"),
        ],
    )
    def test_by_length_boxes_and_words(self, body, level):
        assert twice(task("", body))["changed"]["complexity"] == level

    def test_easy_title(self):
        Path("task.md").write_text("---\ntitle: Typo\n---\n" + "word " * 130)
        assert twice()["changed"]["complexity"] == "simple"

    @pytest.mark.parametrize("given", ["huge", "3", "[a]"])
    def test_stays_if_given(self, given):
        twice(task(f"complexity: {given}\n"))
        assert f"complexity: {given}\n" in Path("task.md").read_text()


class TestProjectLink:
    def test_is_added_once(self):
        assert twice(task("project: Web Site\n"))["changed"]["links"] == ["[[Web Site]]"]
        assert Path("task.md").read_text().count("[[Web Site]]") == 1

    @pytest.mark.parametrize("link", ["[[web]]", "[[Web|our site]]", "see [[Web#Plans]]."])
    def test_is_not_added_if_there(self, link):
        answer = twice(task("project: Web\ncomplexity: x\n", f"a {link}\n"))
        assert answer["changed"] == {}

    @pytest.mark.parametrize("value", ["[[Web]]", "'[[Web]]'", "'[[Web|x]]'", "[Web]"])
    def test_of_a_project_written_as_link_or_list(self, value):
        assert twice(task(f"project: {value}\n"))["changed"]["links"] == ["[[Web]]"]

    @pytest.mark.parametrize("value", ["", "none", "{a: b}", "[]", "&a [*a]"])
    def test_of_no_project(self, value):
        assert "links" not in triage.run(task(f"project: {value}\n"))["changed"]

    @pytest.mark.parametrize("value", ['"a]] evil"', '"a\\ab"', '"x-->y"', "a|b", "x" * 200])
    def test_of_a_name_that_would_break_it(self, value):
        answer = triage.run(task(f"project: {value}\n"))
        assert "links" not in answer["changed"]

    def test_does_not_change_the_category(self):
        assert twice(task("project: Review decision contract\n"))["category"] == "unclear"

    def test_goes_above_the_receipts(self):
        twice(task("project: Web\n", "text\n\n## Receipts\n\n- review, decide, contract\n"))
        body = markdown.parse(Path("task.md").read_bytes()).body
        assert body.index("[[Web]]") < body.index("## Receipts")


def test_everything_but_the_edited_lines_survives():
    before = (
        b"\xef\xbb\xbf---\r\n# first\r\ntitle:   'Rename it'  # quoted\r\ntype: &t chore\r\n"
        b'tags: [ a ,  b ]\r\nother: *t\r\npriority: "high"\r\nstatus: inbox\r\n---\r\n\r\ntext'
    )
    Path("task.md").write_bytes(before)
    twice()
    after = Path("task.md").read_bytes()
    added = b"complexity: simple\r\nassignee: bot\r\n"
    assert added in after
    assert after.replace(added, b"") == before


def test_receipt_tells_what_was_done():
    answer = triage.run(task("project: Web\n", "Rename and regenerate.\n"))
    assert answer["receipts"] == [
        "triaged: automatable, complexity simple, assignee bot, linked Web"
    ]


class TestUnreadable:
    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "empty"),
            (b" \n\n", "empty"),
            (b"no front matter\n", "no front matter"),
            (b"---\ntitle: [a\n---\n", ""),
            (b"---\ntitle: a: b\n---\n", "line"),
            (b"---\n- a\n- b\n---\n", ""),
            (b"---\ntitle: never closed\n", "closed"),
            (b"---\ntitle: \xff\n---\n", ""),
            (b"---\ntitle: a\n---\n\0\1", "NUL"),
            (b"\x89PNG\r\n\x1a\n\0\0", ""),
            (b"---\ntitle: a\n---\n" + b"x" * 5_000_000, "bytes"),
            (b"---\nx: " + b"[" * 50_000 + b"\n---\n", ""),
        ],
    )
    def test_file_is_untouched(self, content, reason):
        Path("task.md").write_bytes(content)
        before = os.stat("task.md")
        answer = triage.run("task.md")
        assert answer["category"] == "unreadable"
        assert reason in answer["rationale"]
        assert answer["changed"] == {} and answer["receipts"] == []
        assert Path("task.md").read_bytes() == content
        assert os.stat("task.md").st_mtime_ns == before.st_mtime_ns

    def test_vanished(self):
        assert triage.run("gone.md")["category"] == "unreadable"

    def test_vanished_between_look_and_change(self, monkeypatch):
        task("", "rename, regenerate")
        decide = triage._decide_on

        def decide_then_remove(*args):
            decision = decide(*args)
            os.unlink("task.md")
            return decision

        monkeypatch.setattr(triage, "_decide_on", decide_then_remove)
        assert triage.run("task.md")["category"] == "unreadable"
        assert not Path("task.md").exists()

    def test_folder_and_pipe(self):
        os.mkdir("dir.md")
        os.mkfifo("pipe.md")
        assert triage.run("dir.md")["category"] == "unreadable"
        assert triage.run("pipe.md")["category"] == "unreadable"

    def test_names_that_no_file_can_have(self):
        assert triage.run("x" * 5000)["category"] == "unreadable"
        assert triage.run("\ud800.md")["category"] == "unreadable"

    @pytest.mark.parametrize("item", [None, 3, "", {}, {"path": None}, {"path": 3}, ["a"], "a\0b"])
    def test_what_is_no_path_is_an_error(self, item):
        with pytest.raises(InvalidInput):
            triage.run(item)

    def test_a_change_that_front_matter_cannot_take(self, monkeypatch):
        content = b"---\nstatus: &s closed\nalias: *s\n---\n"
        Path("task.md").write_bytes(content)
        assert triage.run("task.md")["category"] == "unreadable"
        monkeypatch.setenv("HV_PROPOSE", "1")
        assert triage.run("task.md")["category"] == "unreadable"
        assert Path("task.md").read_bytes() == content


def test_locks_are_where_the_worker_says(folder, monkeypatch):
    monkeypatch.setenv("HV_LOCKS", str(folder / "there"))
    triage.run(task())
    assert os.listdir("there") and not os.path.exists(".hypervisor/locks")
    monkeypatch.delenv("HV_LOCKS")
    triage.run(task())
    assert os.listdir(".hypervisor/locks")


def test_a_file_that_cannot_be_written_is_an_error(monkeypatch):
    def refuse(*_):
        raise InvalidInput("task.md: Permission denied")

    monkeypatch.setattr("hypervisor.inputs.task_files.files.TaskFiles.change", refuse)
    with pytest.raises(InvalidInput, match="Permission"):
        triage.run(task())


def test_a_mistake_in_the_rules_is_an_error_not_an_answer(folder):
    before = Path(task("", "rename, regenerate")).read_bytes()
    (folder / "triage.toml").write_text("[names]\nperson = 3\n")
    with pytest.raises(InvalidInput, match=r"\[names\] person"):
        triage.run("task.md")
    assert Path("task.md").read_bytes() == before


def test_an_edit_of_the_owner_meanwhile_is_kept(monkeypatch):
    task("", "rename, regenerate\n")
    decide = triage._decide_on

    def owner_is_quicker(data, *args):
        monkeypatch.setattr(triage, "_decide_on", decide)
        decision = decide(data, *args)
        task("assignee: ann\ncomplexity: theirs\n", "rename, regenerate, done by hand\n")
        return decision

    monkeypatch.setattr(triage, "_decide_on", owner_is_quicker)
    answer = triage.run("task.md")
    assert (answer["category"], answer["changed"]) == ("assigned", {})
    assert fields() == {"title": "A thing", "assignee": "ann", "complexity": "theirs"}


class TestProposals:
    @pytest.fixture(autouse=True)
    def propose(self, monkeypatch):
        monkeypatch.setenv("HV_PROPOSE", "1")

    def test_fields_are_an_edit(self, folder):
        before = Path(task("", "rename, regenerate\n")).read_bytes()
        answer = triage.run(str(folder / "task.md"))
        [action] = answer["actions"]
        assert (action["do"], action["path"]) == ("edit", "task.md")
        assert action["set"] == {"complexity": "simple", "assignee": "bot"}
        assert "rename*" in action["why"]
        assert answer["changed"] == {} and answer["receipts"] == []
        assert Path("task.md").read_bytes() == before

    def test_carried_out_it_is_what_triage_would_have_done(self, monkeypatch):
        before = Path(task("project: Web\n", "rename, regenerate\r\n")).read_bytes()
        [action] = triage.run("task.md")["actions"]
        assert (action["do"], action["lines"]) == ("edit", ["[[Web]]"])
        assert Path("task.md").read_bytes() == before
        monkeypatch.delenv("HV_PROPOSE")
        triage.run("task.md")
        assert Path("task.md").read_bytes() == plan.edited(before, checked(action))

    def test_nothing_to_do_proposes_nothing(self):
        assert "actions" not in triage.run(task("status: done\n"))

    def test_a_large_body_is_not_copied_into_the_result(self):
        [action] = triage.run(task("project: Web\n", "\x01" * 200_000))["actions"]
        assert action["do"] == "edit"


class TestNote:
    def test_is_repeated_in_the_rationale(self, monkeypatch):
        monkeypatch.setenv("HV_NOTE", "look at the\nbudget again")
        answer = triage.run(task())
        assert "look at the budget again" in answer["rationale"]
        assert answer["category"] == "unclear"

    @pytest.mark.parametrize(
        ("note", "category", "assignee"),
        [
            ("assignee: Kim Lee", "assigned", "Kim Lee"),
            ("assignee: none", "automatable", None),
            ("Assignee:  me ", "assigned", "me"),
            ("category: judgement", "judgement", "me"),
            ("category: unclear", "unclear", None),
            ("category: judgement\nassignee: kim", "judgement", "kim"),
            ("category: urgent", "urgent", "bot"),
        ],
    )
    def test_overrides_the_rules_and_an_earlier_run(self, monkeypatch, note, category, assignee):
        triage.run(task("", "rename, regenerate"))
        assert fields()["assignee"] == "bot"
        monkeypatch.setenv("HV_NOTE", note)
        answer = triage.run("task.md")
        assert answer["category"] == category
        assert fields().get("assignee") == assignee

    def test_can_close(self, monkeypatch):
        monkeypatch.setenv("HV_NOTE", "category: closed")
        assert triage.run(task("status: inbox\n"))["changed"] == {"status": "done"}
        monkeypatch.delenv("HV_NOTE")
        assert triage.run("task.md")["category"] == "closed"

    def test_can_open_what_looks_closed(self, monkeypatch):
        monkeypatch.setenv("HV_NOTE", "category: judgement")
        answer = triage.run(task("status: inbox\n", "- [x] all\n"))
        assert answer["category"] == "judgement"
        assert fields()["status"] == "inbox"

    def test_category_does_not_take_a_task_from_somebody_else(self, monkeypatch):
        monkeypatch.setenv("HV_NOTE", "category: automatable")
        triage.run(task("assignee: ann\n"))
        assert fields()["assignee"] == "ann"

    def test_hostile_orders_are_remarks(self):
        note = read_note("assignee: a\x00b\nassignee: \x1b[31m\ncategory: " + "x" * 9999)
        assert note.assignee == ""
        assert len(note.category) <= 100 and len(note.text) <= 500
