"""Which store is used: the project's own, searched upwards, or the one that is named."""

import os
import stat
import subprocess
import sys

import pytest

import hypervisor
from hypervisor.core.errors import StoreUnavailable


def test_the_first_add_makes_a_private_store(bare):
    bare.add()
    folder = bare.folder / ".hypervisor"

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        if file.name != ".gitignore":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_many_first_adds_at_once_make_one_store(bare):
    starts = [bare.start("add", f"task {n}") for n in range(6)]
    for start in starts:
        _, err = start.communicate(timeout=120)
        assert (start.returncode, err) == (0, "")
    assert len(bare.json("ls")) == 6


def test_the_store_hides_itself_from_git(bare):
    git = ["git", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], cwd=bare.folder, check=True)
    bare.add()
    seen = subprocess.run(
        [*git, "status", "--porcelain"], cwd=bare.folder, check=True, capture_output=True
    )
    assert seen.stdout == b""


def test_a_new_store_goes_to_the_top_of_the_checkout(bare):
    (bare.folder / ".git").mkdir()
    below = bare.folder / "src" / "deep"
    below.mkdir(parents=True)
    assert bare("add", "x", cwd=below).code == 0
    assert bare.store.exists() and not (below / ".hypervisor").exists()


def test_it_is_found_upwards(bare):
    below = bare.folder / "a" / "b c"
    below.mkdir(parents=True)
    task = bare.add("up here")
    assert bare("ls", "--ids", cwd=below).out.strip() == task
    assert bare("add", "from below", cwd=below).code == 0
    assert len(bare.json("ls")) == 2


@pytest.mark.parametrize(
    "args",
    [
        ["ls"],
        ["show", "x"],
        ["claim"],
        ["stats"],
        ["events"],
        ["doctor"],
        ["cancel", "x"],
        ["receipt", "verify"],
        ["heartbeat", "0q13dmzm50c0.1.abcd"],
        ["branch"],
        ["recall", "x"],
        ["hive"],
        ["remember", "--forget", "1q24bmmy5re9"],
        ["notify", "ls"],
        ["notify", "rm", "x"],
    ],
)
def test_only_adding_makes_a_store(bare, args):
    line = bare.refused(4, *args)
    assert "Create one with `hv add`" in line
    assert list(bare.folder.iterdir()) == []


@pytest.mark.parametrize(
    "args",
    [
        ["add"],
        ["add", ""],
        ["add", "x", "--from", "y"],
        ["add", "x", "--priority", "urgent"],
        ["add", "x", "--batch", "\x1b"],
        ["add", "--from", "missing"],
        ["add", "x", "--type", "a b"],
        ["run", "nonsense"],
    ],
)
def test_a_mistake_leaves_no_store_behind(bare, args):
    bare.refused(2, *args)
    assert list(bare.folder.iterdir()) == []


def test_a_rehearsal_leaves_no_store_behind(bare):
    assert "1 would be added" in bare.ok("add", "x", "--dry-run", "--in", "5m")
    assert list(bare.folder.iterdir()) == []


def test_a_named_store_may_stand_before_or_after_the_command(bare):
    where = bare.folder / "else where" / "x.db"
    bare.ok("--store", str(where), "add", "x")
    bare.ok("add", "--store", "else where/x.db", "y")
    bare.ok(f"--store={where}", "--json", "add", "z")
    assert len(bare.ok("--store", str(where), "ls", "--ids").split()) == 3
    assert len(bare.ok("ls", "--ids", HYPERVISOR_STORE=str(where)).split()) == 3
    assert not (bare.folder / ".hypervisor").exists()


def test_the_named_store_wins_over_the_environment(bare):
    bare.ok("add", "x", HYPERVISOR_STORE="env.db")
    task = bare.ok("add", "y", "--store", "named.db").strip()
    seen = bare.ok("ls", "--ids", "--store", "named.db", HYPERVISOR_STORE="env.db")
    assert seen.split() == [task]


def test_a_folder_may_be_named_instead_of_the_file(bare):
    bare.ok("add", "x", "--store", "some/folder")
    assert (bare.folder / "some" / "folder" / "store.db").exists()
    assert len(bare.json("ls", "--store", "some/folder/store.db")) == 1


@pytest.mark.parametrize(
    "code, where",
    [
        (2, ""),
        (2, "  "),
        (2, "mysql://host/name"),
        (2, "sqlite:///x.db"),
        (2, "https://x"),
        (7, "/dev/null/x.db"),
        (7, "/proc/x.db"),
        (7, "file/x.db"),
        (7, "folder.db"),
    ],
)
def test_places_that_cannot_be_a_store(bare, code, where):
    (bare.folder / "file").write_text("a file")
    (bare.folder / "folder.db").mkdir()
    before = sorted(bare.folder.rglob("*"))
    bare.refused(code, "add", "x", "--store", where)
    assert sorted(bare.folder.rglob("*")) == before


def test_a_file_in_the_place_of_the_folder(bare):
    (bare.folder / ".hypervisor").write_text("a file")
    bare.refused(7, "add", "x")
    assert (bare.folder / ".hypervisor").read_text() == "a file"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_store_of_another_user_is_only_used_if_named(hv):
    task = hv.add()
    os.chown(hv.folder / ".hypervisor", 12345, -1)
    for args in (["ls"], ["add", "x"]):
        line = hv.refused(7, *args)
        assert "belongs to another user" in line and "--store" in line
    assert hv.ok("ls", "--ids", "--store", ".hypervisor").strip() == task
    assert hv.ok("ls", "--ids", HYPERVISOR_STORE=".hypervisor").strip() == task


def test_a_current_folder_that_is_gone(hv):
    gone = hv.folder / "gone"
    gone.mkdir()
    kept = os.open(gone, os.O_RDONLY)
    gone.rmdir()
    try:
        line = hv("ls", cwd=f"/proc/self/fd/{kept}")
    finally:
        os.close(kept)
    assert line.code == 4 and "current folder no longer exists" in line.err


@pytest.mark.parametrize(
    "settings", [b"store = 5", b"\xff", b"[store", b"[store]\ndurability = 'sometimes'", b"\0"]
)
def test_settings_that_make_no_sense(hv, settings):
    (hv.folder / ".hypervisor" / "config.toml").write_bytes(settings)
    assert "config.toml" in hv.refused(2, "add", "x")


def test_tokens_and_ids_of_one_store_mean_nothing_in_another(hv):
    with hypervisor.open(hv.folder / "other.db", relaxed=True) as other:
        other.add([hypervisor.NewTask("x")])
        (lease,) = other.claim("me")
    hv.add("mine")
    hv.claim()
    for args in (["done"], ["heartbeat"], ["release"], ["fail", "--"], ["block", "--"]):
        more = ["why"] if "--" in args else []
        hv.refused(6, *args, lease.token, *more)
    hv.refused(4, "show", lease.task.id)


def test_without_psycopg_the_command_that_installs_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "hypervisor.store.postgres", None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(StoreUnavailable, match=r"pip install 'hypervisor-queue\[postgres\]'$"):
        hypervisor.open("postgresql://127.0.0.1:1/none")
