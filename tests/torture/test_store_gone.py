"""A store that is deleted, moved or replaced during a run: the run ends and reports it."""

from __future__ import annotations

import shutil
from contextlib import suppress

import pytest

import hypervisor
from hypervisor.core import errors
from tests.torture.fleet import wait_for

WAIT = 'echo "$1" >> ../begun; until [ -e ../go ]; do sleep 0.05; done'


def _delete_folder(data):
    shutil.rmtree(data)


def _delete_file(data):
    for path in data.glob("store.db*"):
        path.unlink()


def _delete_log(data):
    (data / "store.db-wal").unlink()


def _move(data):
    data.rename(data.with_name("elsewhere"))


def _replace(data):
    hypervisor.open(data.parent / "other" / "store.db").close()
    (data.parent / "other" / "store.db").rename(data / "store.db")


HOW = (_delete_folder, _delete_file, _delete_log, _move, _replace)


@pytest.mark.parametrize("how", HOW)
def test_a_run_ends_and_starts_nothing_more(project, tmp_path, how):
    data, begun = project.folder / ".hypervisor", tmp_path / "begun"
    client = project.start(
        "run", "--workers", "2", "--claim", "8", "--", "sh", "-c", WAIT, "sh", items=range(60)
    )
    wait_for(lambda: begun.exists() and len(begun.read_text().split()) == 2, "two attempts")
    how(data)
    (tmp_path / "go").touch()
    client.wait(180)
    told = [(project.folder / f"client0.{kind}").read_text() for kind in ("out", "err")]
    assert client.returncode == 7, told
    assert "store.db was deleted, moved or replaced while it was in use" in told[1], told
    with suppress(AssertionError):
        wait_for(lambda: not project.processes(), "the end of all")
    assert project.processes() == [], "somebody stays"
    assert len(begun.read_text().split()) == 2, "attempts were started that nobody can record"
    for path in data.glob("store.db*"):  # a file beside the log of another would be refused
        path.unlink()


@pytest.mark.parametrize("how", HOW)
def test_a_process_that_has_it_open_is_refused(tmp_path, how):
    data = tmp_path / "data"
    with hypervisor.open(data / "store.db") as hv:
        hv.add([hypervisor.NewTask("kept")])
        (lease,) = hv.claim("worker")
        how(data)
        for use in (
            lambda: hv.add([hypervisor.NewTask("lost")]),
            lambda: hv.complete(lease.token),
            lambda: hv.complete_and_claim([(lease.token, None)], "worker"),
            lambda: hv.list_tasks(),
            lambda: hv.events(),
        ):
            with pytest.raises(errors.StoreGone):
                use()
