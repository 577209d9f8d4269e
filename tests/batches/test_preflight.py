"""Preflight over real files and a real store: its findings, and what the run may rely on."""

from __future__ import annotations

import os

import pytest

from hypervisor.batches.preflight import RunIntent, Survey, preflight
from hypervisor.inputs.items import TaskItem, occurrences, task_for
from hypervisor.inputs.template import Item
from hypervisor.queue.context import Context
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Usage, Worker, parse_token
from hypervisor.queue.task import NewTask
from hypervisor.resources.host import LocalHost
from hypervisor.runs.config import Settings
from hypervisor.runs.outputs.files import Outputs
from hypervisor.store.sqlite import SqliteDatabase
from tests.support.ledger import Ledger
from tests.support.parts import parts

NOW = 1_800_000_000_000
WORKER = Worker("w-1", "worker-1", "here", "boot/1", 11, 100)


class Disk(Outputs):
    left = 1 << 40

    def room(self):
        return self.left


@pytest.fixture
def hv(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = tmp_path / ".hypervisor"
    data.mkdir()
    given = parts(outputs=Disk(str(data)), settings=Settings(capabilities=("net",)))
    store = Ledger(SqliteDatabase(str(data / "store.db"), relaxed=True))
    context = Context(store, LocalHost(), "me", parts=given)
    yield context
    context.close()


def task_file(path, **columns):
    """A task file on the disk and its item."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.write(f"---\nid: x\n---\n{columns.pop('body', '')}")
    return TaskItem(path, 1, {"path": path, **columns})


def submit(hv, items, batch="b"):
    """Add the items as a run does; returns ids by title."""
    tasks = [task_for(item, NewTask("", type="run"), n) for item, n in occurrences(items)]
    added = hv.store.add(tasks, batch, "me", NOW)
    return dict(zip([task.title for task in tasks], added.ids, strict=True))


def finish(hv, event, batch="b", output=100):
    """Claim the next task of a batch and end it this way; returns its title."""
    wanted = ClaimFilter(batch=hv.store.batch(batch).id)
    (lease,) = hv.store.claim(ClaimRequest(WORKER, 1, 60_000, wanted), NOW)
    if event:
        usage = Usage(0, 10, 1024, output)
        hv.store.settle(
            [AttemptResult(parse_token(lease.token), event, reason="x", usage=usage)], NOW + 2_000
        )
    return lease.task.title


def look(hv, items, **more):
    survey = Survey(RunIntent(batch="b", **more))
    for item in items:
        survey.add(item)
    return survey, survey.result(hv)


def kinds(found):
    return {each.kind: each.total for each in found.findings}


class TestWhatWasDoneBefore:
    def test_done_failed_running_and_open_are_told_apart(self, hv):
        items = [Item(text) for text in "abcdef"]
        submit(hv, items[:5])
        for event in ("complete", "complete", "fail", None):
            finish(hv, event)
        found = preflight(hv, items, batch="b", workers=3)

        assert found.headline == "4 to do, 2 skipped (already done)"
        counts = (found.items, found.to_do, found.new, found.tried_again, found.still_open)
        assert counts == (6, 4, 1, 1, 2)
        assert found.complete == 2 and found.clear
        assert kinds(found) == {"running": 1, "again": 1}

    def test_another_batch_and_no_store_know_nothing(self, hv):
        items = [Item("a")]
        submit(hv, items)
        finish(hv, "complete")
        assert preflight(hv, items, batch="other").to_do == 1
        assert preflight(hv, items).to_do == 1
        assert look(None, items)[1].to_do == 1

    def test_files_that_say_they_are_done_or_cancelled_are_skipped(self, hv):
        items = [
            task_file("t/1.md", status="done"),
            task_file("t/2.md", status="cancelled"),
            task_file("t/3.md", status="todo"),
        ]
        survey, found = look(hv, items)
        assert found.headline == "1 to do, 2 skipped (already done and cancelled)"
        assert [survey.skips(item) for item in items] == ["done", "cancelled", ""]

    def test_what_someone_else_has_claimed_is_left_alone_but_our_own_is_taken_up(self, hv):
        theirs = task_file("t/1.md", status="in_progress", assignee="ann")
        ours = task_file("t/2.md", status="in_progress", assignee="worker-7")
        submit(hv, [ours])
        survey, found = look(hv, [theirs, ours])

        assert (found.claimed, found.to_do, found.still_open) == (1, 1, 1)
        assert "1 claimed by others" in found.headline
        assert (survey.skips(theirs), survey.skips(ours)) == ("claimed", "")

    def test_duplicates_are_reported_and_count_as_often_as_they_run(self, hv):
        items = [Item(text) for text in ("a", "b", "a", "a")]
        submit(hv, items)
        finish(hv, "complete")
        found = look(hv, items)[1]
        assert kinds(found)["duplicate"] == 2
        assert (found.complete, found.to_do) == (1, 3)


class TestFiles:
    def test_missing_and_unreadable_task_files_stand_in_the_way(self, hv):
        os.mkdir("folder.md")
        gone = TaskItem("t/gone.md", 1, {"path": "t/gone.md"})
        found = look(hv, [gone, Item("also-gone.md"), Item("folder.md"), task_file("t/ok.md")])[1]
        assert not found.clear
        (finding,) = (each for each in found.findings if each.kind == "unreadable")
        assert finding.examples == ("t/gone.md", "also-gone.md", "folder.md")
        assert "3 problems" in found.headline

    def test_other_items_are_not_taken_for_files(self, hv):
        texts = ["photos/gone.jpg", "please read README.md", "a\0b", "../../x", "-rf"]
        found = look(hv, [Item(text) for text in texts])[1]
        assert found.clear and not found.findings

    def test_two_that_name_a_file_share_a_key_and_the_rest_has_none(self, hv):
        one = task_file("t/1.md", files=["src/a.py", "src/b.py"])
        two = task_file("t/2.md", files=["./src/../src/a.py"])
        three = task_file("t/3.md", files=["src/c.py"])
        survey, found = look(hv, [one, two, three])
        assert survey.exclusive_for(one) == survey.exclusive_for(two) == ("file:src/a.py",)
        assert survey.exclusive_for(three) == ()
        assert found.headline == "3 to do, 1 conflict will run one at a time"
        (finding,) = (each for each in found.findings if each.kind == "overlap")
        assert finding.examples == ("src/a.py: 2 items (t/1.md, t/2.md)",)
        assert found.clear

    def test_a_folder_overlaps_what_is_in_it(self, hv):
        whole = task_file("t/1.md", files=["src/"])
        part = task_file("t/2.md", files=["src/deep/a.py"])
        survey, _ = look(hv, [whole, part])
        assert survey.exclusive_for(whole) == survey.exclusive_for(part) == ("file:src",)

    def test_patterns_overlap_files_that_are_there_and_those_to_come(self, hv):
        os.mkdir("src")
        open("src/old.py", "w").close()
        every = task_file("t/1.md", files=["src/*.py"])
        old = task_file("t/2.md", files=["src/old.py"])
        new = task_file("t/3.md", files=["src/new.py"])
        other = task_file("t/4.md", files=["src/new.txt"])
        survey, found = look(hv, [every, old, new, other])
        assert survey.exclusive_for(every) == ("file:src/new.py", "file:src/old.py")
        assert survey.exclusive_for(old) == ("file:src/old.py",)
        assert survey.exclusive_for(new) == ("file:src/new.py",)
        assert survey.exclusive_for(other) == ()
        assert kinds(found)["absent"] == 2

    def test_one_file_has_one_name_and_nothing_outside_is_listed(self, hv, tmp_path):
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "a.py").touch()
        (tmp_path / "link").symlink_to("src")
        outside = tmp_path.parent / f"{tmp_path.name}-outside"
        outside.mkdir()
        (outside / "secret").touch()
        one = task_file("t/1.md", files=["link/a.py", f"../{outside.name}/*"])
        two = task_file("t/2.md", files=["src/a.py"])
        three = task_file("t/3.md", files=[f"{outside}/secret"])
        survey, _ = look(hv, [one, two, three])
        assert survey.exclusive_for(two) == ("file:src/a.py",)
        assert set(survey.exclusive_for(one)) == {"file:src/a.py", f"file:{outside}"}
        assert survey.exclusive_for(three) == (f"file:{outside}",)

    def test_files_in_the_text_are_found_when_asked_for(self, hv):
        os.mkdir("src")
        open("src/a.py", "w").close()
        body = "Change `src/a.py` and `src/no.py`, run `rm -rf /`, see `/etc/passwd`."
        items = [task_file("t/1.md", body=body), task_file("t/2.md", body="`src/a.py`")]
        assert look(hv, items)[1].conflicts == 0
        survey, found = look(hv, items, in_text=True)
        assert found.conflicts == 1
        assert survey.exclusive_for(items[0]) == ("file:src/a.py",)

    def test_a_task_file_that_another_names_is_in_conflict_with_it(self, hv):
        survey, _ = look(hv, [task_file("t/1.md"), one := task_file("t/2.md", files=["t/1.md"])])
        assert survey.exclusive_for(one) == ("file:t/1.md",)

    def test_no_item_has_more_keys_than_a_task_may_have(self, hv):
        many = [task_file(f"t/{n}.md", files=[f"new/{n}.py" for n in range(300)]) for n in (1, 2)]
        wide = [task_file(f"u/{n}.md", files=[f"d{d}/*" for d in range(50)]) for n in (1, 2)]
        wide += [task_file("v.md", files=[f"d{d}/{n}" for d in range(9) for n in range(99)])]
        survey, _ = look(hv, [*many, *wide])
        for item in (*many, *wide):
            assert 0 < len(survey.exclusive_for(item)) <= 100
        for others in (many, wide):
            assert set.intersection(*(set(survey.exclusive_for(each)) for each in others))

    def test_the_columns_of_a_table_mean_what_they_like(self, hv):
        row = {
            "path": "gone.md",
            "status": "done",
            "files": "3",
            "depends_on": "-",
            "id": "x",
            "assignee": "bob",
            "requires": "nothing",
        }
        items = [Item(f"row {n}", n, {**row, "n": str(n)}) for n in range(3)]
        survey, found = look(hv, items, known=())
        assert found.to_do == 3 and found.clear and not found.findings
        assert all(survey.exclusive_for(item) == survey.after_for(item) == () for item in items)
        assert not any(survey.skips(item) for item in items)

    def test_rows_that_declare_lists_are_taken_at_their_word(self, hv):
        one = Item("a", 1, {"id": "A", "files": ["x"], "depends_on": []})
        two = Item("b", 2, {"id": "B", "files": ["x"], "depends_on": ["A"]})
        survey, _ = look(hv, [one, two])
        assert survey.exclusive_for(one) == survey.exclusive_for(two) == ("file:x",)
        assert survey.after_for(two) == (task_for(one, NewTask("")).key,)


class TestOrder:
    def test_dependencies_by_id_path_and_link_become_keys(self, hv):
        one = task_file("t/1.md", id="T-1")
        two = task_file("t/two.md", id="T-2", depends_on=["T-1"])
        three = task_file("t/3.md", depends_on=["[[two]]", "t/1.md", "T-2"])
        survey, found = look(hv, [three, two, one])
        key = {item.text: task_for(item, NewTask("")).key for item in (one, two)}
        assert survey.after_for(one) == ()
        assert survey.after_for(two) == (key["t/1.md"],)
        assert survey.after_for(three) == (key["t/two.md"], key["t/1.md"])
        assert (found.linked, found.steps, found.strategy) == (2, 3, "sequential")
        assert found.clear and "in dependency order, 3 steps deep" in " ".join(found.order)

    def test_a_finished_dependency_is_no_reason_to_wait(self, hv):
        survey, found = look(
            hv,
            [
                task_file("t/1.md", id="T-1", status="done"),
                two := task_file("t/2.md", id="T-2", depends_on=["T-1"]),
            ],
        )
        assert found.clear and survey.after_for(two) == ()

    def test_a_dependency_may_be_a_task_of_the_store(self, hv):
        (task,) = hv.store.add([NewTask("before")], None, "me", NOW).ids
        item = task_file("t/1.md", depends_on=[task])
        survey, found = look(hv, [item])
        assert found.clear and survey.after_for(item) == (task,)

    def test_unknown_ones_and_circles_stand_in_the_way(self, hv):
        items = [
            task_file("t/1.md", id="T-1", depends_on=["T-2"]),
            task_file("t/2.md", id="T-2", depends_on=["T-1"]),
            task_file("t/3.md", id="T-3", depends_on=["T-1", "T-99"]),
        ]
        survey, found = look(hv, items)
        told = {each.kind: each.examples for each in found.findings}
        assert not found.clear
        assert told["unknown"] == ("T-99 (t/3.md)",)
        assert told["cycle"] == ("t/1.md → t/2.md → t/1.md",)
        assert survey.after_for(items[0]) == ()  # continuing regardless is not refused

    def test_what_it_says_holds_in_the_store(self, hv):
        """Tasks with a common file never run together, and dependencies come first."""
        items = [
            task_file("t/0.md", files=["x"]),
            task_file("t/1.md", id="one", files=["x"]),
            task_file("t/2.md", depends_on=["one"]),
        ]
        survey, _ = look(hv, items)
        tasks = [
            task_for(item, NewTask("", type="run"))._replace(
                exclusive=survey.exclusive_for(item), after=survey.after_for(item)
            )
            for item in items
        ]
        hv.store.add(tasks, "b", "me", NOW)
        wanted = ClaimFilter(batch=hv.store.batch("b").id)
        out = []
        for _ in items:
            leases = hv.store.claim(ClaimRequest(WORKER, 5, 60_000, wanted), NOW)
            assert len(leases) == 1
            out.append(leases[0].task.title)
            hv.store.settle([AttemptResult(parse_token(leases[0].token), "complete")], NOW)
        assert out.index("t/1.md") < out.index("t/2.md")


class TestNeeds:
    def test_capabilities_that_no_one_lists(self, hv):
        items = [Item("a", 1, {"requires": ["gpu", "net"]}), Item("b", 2, {"requires": ["gpu"]})]
        found = look(hv, items, requires=("net",))[1]
        assert not found.clear
        assert found.findings[0].examples == ("gpu (2 items)",)

    def test_an_unknown_assignee_is_reported_only_if_known_ones_are_listed(self, hv):
        items = [task_file("t/1.md", assignee="ann"), task_file("t/2.md", assignee="bob")]
        assert look(hv, items)[1].clear
        found = look(hv, items, known=("ann",))[1]
        assert found.findings[0].examples == ("bob (t/2.md)",)
        assert not found.clear

    def test_memory_disk_and_time_are_told_from_what_was_seen(self, hv):
        submit(hv, [Item("a"), Item("b")])
        finish(hv, "complete", output=1_000)
        hv.store.set_memory_peak(300 << 20, "run")
        found = look(hv, [Item(str(n)) for n in range(10)], workers=4)[1]
        cost = found.estimate
        assert (cost.workers, cost.memory_each, cost.output_all) == (4, 300 << 20, 10_000)
        assert cost.milliseconds == 2_000 * 3
        assert found.clear

        Disk.left = 9_999
        try:
            full = look(hv, [Item(str(n)) for n in range(10)])[1]
        finally:
            Disk.left = 1 << 40
        assert not full.clear and kinds(full) == {"disk": 1}

    def test_an_attempt_bigger_than_the_host_stands_in_the_way(self, hv):
        hv.store.set_memory_peak(1 << 60, "run")
        assert kinds(look(hv, [Item("a")])[1]) == {"memory": 1}


def test_it_changes_nothing(hv, tmp_path):
    items = [task_file("t/1.md", files=["x"], depends_on=["y"]), Item("a")]
    submit(hv, items)
    before = hv.store.events(0, 1000)
    files = sorted(str(path) for path in tmp_path.rglob("*") if ".hypervisor" not in str(path))
    look(hv, items)
    assert hv.store.events(0, 1000) == before
    after = sorted(str(path) for path in tmp_path.rglob("*") if ".hypervisor" not in str(path))
    assert after == files


def test_examples_are_few_however_many_there_are(hv):
    found = look(hv, [Item(f"{n}.md") for n in range(500)])[1]
    (finding,) = found.findings
    assert finding.total == 500 and len(finding.examples) == 10
