"""Triage of one file: each rule, what it must leave alone, notes and proposals."""

from __future__ import annotations

from pathlib import Path

import pytest

from hypervisor.batches.plans import plan
from hypervisor.batches.plans.action import checked
from hypervisor.inputs.task_files import markdown
from hypervisor.skills.builtin import triage
from hypervisor.skills.builtin.triage_decide import read_note
from tests.skills.triage_tasks import fields, folder, task, twice

__all__ = ["folder"]


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

    def test_category_does_not_take_a_task_from_someone_else(self, monkeypatch):
        monkeypatch.setenv("HV_NOTE", "category: automatable")
        triage.run(task("assignee: ann\n"))
        assert fields()["assignee"] == "ann"

    def test_hostile_orders_are_remarks(self):
        note = read_note("assignee: a\x00b\nassignee: \x1b[31m\ncategory: " + "x" * 9999)
        assert note.assignee == ""
        assert len(note.category) <= 100 and len(note.text) <= 500
