"""`hv batches`: list, archive, delete."""

import pytest

from tests.cli.running import run


@pytest.fixture
def two(hv):
    """Two finished batches."""
    for name in ("old", "new"):
        hv.ok("add", "--from", "-", "--batch", name, stdin="a\nb\n")
        for _ in range(2):
            hv.ok("done", hv.claim("--batch", name))
    return hv


def test_archived_batches_are_listed_on_request(two):
    assert two.ok("batches", "archive", "old") == "", "quiet when piped"
    assert two.ok("batches", "--names") == "new\n"
    assert two.ok("batches", "--archived", "--names") == "old\n"
    assert two.ok("batches", "--all", "--names") == "new\nold\n"
    assert "old (archived)" in two.ok("batches", "--all")
    assert two.json("batches", "--archived")[0]["archived_at"] > 0
    assert len(two.ok("ls", "--ids").split()) == 2
    assert len(two.ok("ls", "--ids", "--archived").split()) == 4
    assert two.json("status", "--all")["stats"]["total"] == 2
    assert two.json("batches", "unarchive", "old", "old") == {"batches": ["old"]}
    assert two.ok("batches", "--names") == "new\nold\n"


def test_one_refused_batch_does_not_stop_the_others(two):
    two.ok("add", "open", "--batch", "new")
    done = two("batches", "archive", "new", "nope", "old")
    assert done.code != 0 and len(done.err.splitlines()) == 2
    assert "hv cancel new" in done.err and "no batch named 'nope'" in done.err
    assert two.ok("batches", "--names") == "new\n"


def test_delete_says_what_goes_and_what_stays(two):
    before = two.content()
    out = two.ok("batches", "delete", "old", "--dry-run")
    assert out.splitlines() == [
        "old: 2 tasks, 2 attempts, 0 outputs (0 bytes) would be deleted; "
        "kept: the event log, 0 receipts",
        "(dry run: nothing was changed)",
    ]
    assert two.content() == before
    assert two.ok("batches", "delete", "old", "--yes") == ""
    assert two.ok("batches", "--all", "--names") == "new\n"
    [deleted] = two.json("batches", "delete", "new", "--yes")
    assert deleted["batches"] == ["new"] and deleted["tasks"] == 2


def test_what_cannot_be_deleted_is_refused_with_the_next_step(two):
    assert "use --yes" in two.refused(2, "batches", "delete", "old")
    assert "no batch given" in two.refused(2, "batches", "delete")
    assert "hv batches delete" in two.refused(2, "batches", "--yes")
    two.ok("add", "open", "--batch", "old")
    assert "`hv cancel old`" in two.refused(5, "batches", "delete", "new", "old", "--yes")


def test_a_person_is_asked(project):
    run(project, "--quiet", "--name", "b", "--", "echo", items=["x", "y"])
    for answer, left in (("n", "b\n"), ("y", "")):
        terminal = project.terminal("batches", "delete", "b", columns=160)
        terminal.wait_for("Delete b? [y/N]")
        terminal.press(answer + "\n")
        assert terminal.wait() == 0
        assert project.ok("batches", "--names") == left
    outputs = project.folder / ".hypervisor" / "outputs"
    assert not [path for path in outputs.rglob("*") if path.is_file()]


def test_a_run_of_the_same_name_starts_from_nothing(project):
    run(project, "--quiet", "--name", "b", "--", "echo", items=["x"])
    project.ok("batches", "delete", "b", "--yes")
    out = run(project, "--name", "b", "--", "echo", items=["x"])
    assert "1 done" in out, "not skipped as done before"


def test_a_summary_of_many_tasks_lists_each_once_page_by_page(hv, monkeypatch):
    monkeypatch.setattr("hypervisor.cli.commands.summary.MAX_SORTED", 3)
    monkeypatch.setattr("hypervisor.cli.commands.summary.PAGE", 2)
    monkeypatch.setattr("hypervisor.runs.results.PAGE", 2)
    hv.ok("add", "--from", "-", "--batch", "b", stdin="".join(f"item {n}\n" for n in range(7)))
    cancelled = hv.json("ls", "--batch", "b")[0]
    hv.ok("cancel", cancelled["id"])

    lines = hv.ok("summary", "b").splitlines()[-7:]
    assert [line.split("item ")[1] for line in lines] == ["6", *(str(n) for n in range(6))]
    assert "cancelled" in lines[0] and "ready" in lines[1]
    titles = [task["title"] for task in hv.json("summary", "b")["tasks"]]
    assert titles == [f"item {n}" for n in range(7)]
