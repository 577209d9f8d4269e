"""A second run changes no byte, whatever the file looks like; nor do four at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.task_files import markdown
from hypervisor.skills.builtin import triage
from hypervisor.skills.builtin.triage_decide import Note
from hypervisor.skills.builtin.triage_rules import rules_for

RULES = rules_for("/nonexistent")
NO_NOTE = Note()
INBOX = Path(__file__).resolve().parents[2] / "examples" / "inbox"
EDITED = re.compile(rb"'?(status|complexity|assignee)'?[ \t]*:")

FIELDS = [
    "title: Rename the modules",
    "title: 'Review: the contract'  # quoted",
    'title: "Zoë\\tx"',
    "title: >\n  Decide\n  it",
    "title: |-\n  regenerate\n\n  all",
    "title:",
    "title: 2026-01-01",
    "status: inbox",
    "status: Done # so",
    "status:   closed",
    "status: 'cancelled'",
    "status:",
    "status: |\n  done\n",
    "status: !!str done",
    "status: &s done",
    "'status': open",
    "status : x",
    "assignee:",
    "assignee: ann",
    "assignee: ''",
    "assignee: [a, b]",
    "assignee: # later",
    "assignee: ~",
    "assignee: >-\n  ann\n  lee",
    "complexity:",
    "complexity: &c simple\nc2: *c",
    "complexity: {a: b}",
    "project: Review board",
    "project: [[Web]]",
    "project: [A, 'B']",
    "project: *s",
    "project: x-->y",
    "project: '```'",
    "project: Ärger",
    "project:\n- a\n- b",
    "project: null",
    "project: ' '",
    "# a comment",
    "",
    "   # indented comment",
    "\t# tab",
    "tags: [ a ,b,  'c' ]",
    "tags:\n  - a\n  -  b",
    "depends_on: [t-1, t-2]",
    "x: {a: [1, {b: 2}], c: }",
    "n: 0x1F",
    "t: 12:30:45",
    "y: yes",
    "merge: &m {a: 1}\nuse:\n  <<: *m",
    "long: " + "w" * 300,
    "emoji: 🎉",
    "title: again",
    "? complex\n: v",
    "...",
    "--- # no",
    'quoted: "a\\\n  b"',
    "colon: a: b",
    "open: [",
    "%TAG",
]
BODY = [
    "",
    "text",
    "# Heading",
    "## Close Reason",
    "## Receipts",
    "- 2026 · w · triaged: review · #1 ab",
    "- [ ] open",
    "- [x] shut",
    "  * [X] shut",
    "```",
    "~~~~",
    "````md",
    "<!--",
    "-->",
    "[[Web]]",
    "[[",
    "Talk to Ann and decide.",
    "rename it, regenerate it",
    "[[Review board|x]]",
    "---",
    "    code",
    "word " * 130,
    "naïve Straße",
    "\u2028",
    "a\x0bb",
    "\x0c",
    "> - [ ] q",
    "| a | b |",
    "## After",
]


@st.composite
def files(draw):
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    front = draw(st.lists(st.sampled_from(FIELDS), max_size=9))
    body = draw(st.lists(st.sampled_from(BODY), max_size=9))
    last = draw(st.sampled_from(["", "\n"]))
    mark = draw(st.sampled_from(["", "", "\ufeff"]))
    text = mark + "\n".join(["---", *front, "---", *body]) + last
    return text.replace("\n", end).encode()


def look(data):
    try:
        return triage._decide_on(data, "task.md", RULES, NO_NOTE)
    except (ValueError, InvalidInput):
        return None


@given(files())
@settings(max_examples=1_000, deadline=None)
def test_a_second_run_changes_nothing(data):
    first = look(data)
    if first is None:
        return
    try:
        after = triage.edited(data, first)
    except InvalidInput:
        return
    second = look(after)
    assert second is not None
    assert (second.category, second.changes()) == (first.category, {})
    assert triage.edited(after, second) == after


@given(files())
@settings(max_examples=1_000, deadline=None)
def test_only_the_edited_lines_change(data):
    decision = look(data)
    if decision is None:
        return
    try:
        after = triage.edited(data, decision)
    except InvalidInput:
        return
    old, new = markdown.parse(data), markdown.parse(after)
    assert {**old.fields, **decision.fields} == new.fields
    if not decision.fields:
        assert after.startswith(data[: data.rindex(old.body.encode())] if old.body else data)
    assert _without(new.body, decision.links) == _without(old.body, decision.links)
    if b"\n" in data and b"&" not in data and b"|" not in data and b">" not in data:
        assert _others(data) == _others(after)


def _without(body, links):
    """The body with neither the links that were added nor blank lines."""
    for link in links:
        body = body.replace(link, "")
    return [line for line in re.split(r"[\r\n]+", body) if line.strip()]


def _others(data):
    """The lines of the front matter that triage may not touch."""
    front = data[: -len(markdown.parse(data).body.encode()) or None]
    lines = [line for line in front.splitlines(keepends=True) if not EDITED.match(line)]
    return [*lines[:-1], lines[-1].rstrip()]  # a link may need an end of the last line


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / ".hypervisor").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("HV_NOTE", "HV_PROPOSE", "HV_LOCKS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


SAME_FILE = """
import sys
from hypervisor.skills.builtin import triage
sys.stdin.readline()
for path in sys.argv[1:]:
    print(len(triage.run(path)["changed"]), flush=True)
"""


def test_four_processes_at_the_same_files(folder):
    names = [f"{n}.md" for n in range(60)]
    for n, name in enumerate(names):
        front = f"---\nid: t-{n}\ntitle: Rename it  # {n}\nproject: Web\n---\n"
        Path(name).write_text(front + f"text {n}\n")
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", SAME_FILE, *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for worker in workers:  # all have started before one of them begins
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    answers = [worker.communicate(timeout=180)[0].split() for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    for n, name in enumerate(names):
        assert sorted(answer[n] for answer in answers) == ["0", "0", "0", "3"]
        assert Path(name).read_text() == (
            f"---\nid: t-{n}\ntitle: Rename it  # {n}\nproject: Web\n"
            f"complexity: simple\nassignee: bot\n---\ntext {n}\n\n[[Web]]\n"
        )
    assert sorted(os.listdir(folder)) == sorted([*names, ".hypervisor"])


class TestExampleInbox:
    @pytest.fixture
    def copy(self, folder):
        import shutil

        shutil.copytree(INBOX, folder / "inbox")
        return folder / "inbox"

    def test_is_triaged_once(self, copy):
        first = {path.name: triage.run(str(path)) for path in copy.iterdir()}
        left = {path.name: path.read_bytes() for path in copy.iterdir()}
        again = {path.name: triage.run(str(path)) for path in copy.iterdir()}
        assert {path.name: path.read_bytes() for path in copy.iterdir()} == left
        assert [name for name, answer in again.items() if answer["changed"]] == []
        for name, answer in first.items():
            assert again[name]["category"] == answer["category"]

    def test_shows_every_category(self, copy):
        found = {path.name: triage.run(str(path))["category"] for path in copy.iterdir()}
        assert set(found.values()) == {
            "closed",
            "assigned",
            "judgement",
            "automatable",
            "unclear",
            "unreadable",
            "not a task",
        }
        unreadable = {name for name, category in found.items() if category == "unreadable"}
        assert unreadable == {"broken-yaml.md", "hotel-brest.md"}
        assert found["notes-from-tuesday.md"] == "not a task"
        assert found["rename-station-codes.md"] == found["labor-pc-aktualisieren.md"]
        assert found["card-dump.md"] == found["both-kinds.md"] == "unclear"
        assert found["submitted.md"] == found["newsletter-cancelled.md"] == "closed"

    def test_is_large_and_varied(self):
        texts = [path.read_bytes() for path in INBOX.iterdir()]
        assert len(texts) >= 64
        months = {m for text in texts for m in re.findall(rb"^date: (2026-\d\d)", text, re.M)}
        assert len(months) >= 5
        assert any(text.count(b"\r\n") == text.count(b"\n") > 0 for text in texts)
        assert any(not text.endswith(b"\n") for text in texts)
        assert any(text.startswith(b"\xef\xbb\xbf") for text in texts)

    def test_ids_are_unique_and_references_lead_somewhere(self):
        known, named = [], set()
        for path in INBOX.iterdir():
            decision = look(path.read_bytes())
            if decision is None:
                continue
            fields = markdown.parse(path.read_bytes()).fields
            known.append(fields["id"])
            named |= {*fields.get("depends_on", []), *fields.get("children", [])}
            named |= {fields["parent"]} if "parent" in fields else set()
        assert len(known) == len(set(known))
        assert named - set(known) == set()
