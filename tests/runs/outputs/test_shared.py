"""Outputs that every host can read: in the database, in an output store, or on their host."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from hypervisor.runs.outputs import sql
from hypervisor.runs.outputs.files import Outputs
from hypervisor.runs.outputs.live import SEAL_MS, SILENT_MS, LiveOutputs
from hypervisor.runs.outputs.shared import TAIL, SharedOutputs

TASK = "1q12deyb0abc"
NOW = 1_700_000_000_000


class Host:
    """A host with a folder of its own on a store that all hosts share."""

    def __init__(self, store, folder, name, url=""):
        self.shared: Any = SharedOutputs(store, name, url)
        self.outputs = Outputs(str(folder / name), self.shared)
        self.store = store

    def prints(self, text: bytes, attempt: int = 1) -> None:
        with open(self.outputs.prepare(TASK, attempt), "ab") as file:
            file.write(text)

    def ends(self, attempt: int = 1) -> None:
        self.outputs.finished(TASK, attempt)
        self.outputs.publish()

    def reads(self, attempt: int = 1) -> bytes:
        self.shared._known = (("", 0), 0.0, None)  # as if a moment later
        return b"".join(self.outputs.pieces(TASK, attempt))


@pytest.fixture
def database(ledger):
    return ledger._db


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/objects"


def text_of(size: int) -> bytes:
    return b"".join(b"line %d\n" % n for n in range(size // 8))[:size]


def test_another_host_reads_a_short_output_without_an_output_store(database, tmp_path):
    here, there = Host(database, tmp_path, "a"), Host(database, tmp_path, "b")
    there.prints(b"hello\n\xff\x00\n")
    there.ends()
    assert here.reads() == b"hello\n\xff\x00\n"
    assert here.outputs.size(TASK, 1) == 9
    assert here.outputs.is_whole(TASK, 1)
    with open(here.outputs.as_file(TASK, 1), "rb") as file:
        assert file.read() == b"hello\n\xff\x00\n"


def test_an_empty_output_shows_that_the_command_ran(database, tmp_path):
    here, there = Host(database, tmp_path, "a"), Host(database, tmp_path, "b")
    assert here.outputs.size(TASK, 1) is None
    there.prints(b"")
    there.ends()
    here.shared._known = (("", 0), 0.0, None)
    assert here.outputs.size(TASK, 1) == 0


def test_without_an_output_store_the_end_is_kept_and_the_rest_named(database, tmp_path):
    here, there = Host(database, tmp_path, "a"), Host(database, tmp_path, "b")
    text = text_of(TAIL + 1000)
    there.prints(text)
    there.ends()
    shown = here.reads()
    note, _, end = shown.partition("…\n".encode())
    assert end == text[-TAIL:]
    assert "1,000 bytes left out: they are on host b in" in note.decode()
    assert there.outputs.path(TASK, 1) in note.decode()
    assert here.outputs.size(TASK, 1) == len(text)
    assert not here.outputs.is_whole(TASK, 1)
    assert there.reads() == text


def test_a_long_output_is_read_from_the_output_store(database, tmp_path, url):
    here, there = Host(database, tmp_path, "a"), Host(database, tmp_path, "b", url)
    text = text_of(2_500_000)
    there.prints(text)
    there.ends()
    assert here.reads() == text  # the row names the store: this host needs no setting
    assert here.outputs.read(TASK, 1, 1_048_570, 20) == text[1_048_570:1_048_590]
    assert here.outputs.is_whole(TASK, 1)
    names = sorted(path.name for path in (tmp_path / "objects/outputs" / TASK / "1").iterdir())
    assert names == [
        "000000000000-000001048576.gz",
        "000001048576-000002097152.gz",
        "000002097152-000002500000.gz",
    ]
    first = (tmp_path / "objects/outputs" / TASK / "1" / names[0]).read_bytes()
    assert gzip.decompress(first) == text[:1_048_576]


def test_segments_that_overlap_after_a_crash_are_read_once(database, tmp_path, url):
    here, there = Host(database, tmp_path, "a"), Host(database, tmp_path, "b", url)
    text = text_of(300_000)
    there.shared.segments.seal(TASK, 1, 0, text[:100_000])
    there.shared.segments.seal(TASK, 1, 0, text[:120_000])
    there.shared.segments.seal(TASK, 1, 60_000, text[60_000:90_000])
    there.prints(text)
    there.ends()
    assert here.reads() == text


def test_an_output_store_that_is_down_delays_nothing_and_loses_nothing(database, tmp_path, url):
    here, there = Host(database, tmp_path, "a"), Host(database, tmp_path, "b", url)
    (tmp_path / "objects").write_text("a file where the folder belongs")
    text = text_of(200_000)
    there.prints(text)
    there.ends()
    assert here.reads().endswith(text[-TAIL:])
    (tmp_path / "objects").unlink()
    live_outputs(there).tick(NOW)
    assert here.reads() == text


RUNNING: Any = type("Attempt", (), {"task": TASK, "attempt": 1})


def live_outputs(host: Any, *running: Any) -> LiveOutputs:
    return LiveOutputs(host, lambda: running)


def test_the_live_end_of_a_running_attempt(database, tmp_path):
    here, there = Host(database, tmp_path, "a"), Host(database, tmp_path, "b")
    running = [RUNNING]
    host: Any = there
    live = LiveOutputs(host, lambda: running)
    live.tick(NOW)  # not begun
    there.prints(b"one\n")
    live.tick(NOW + 1000)
    assert here.reads() == b"one\n"
    there.prints(b"two\n")
    live.tick(NOW + 1500)  # at most once a second
    assert here.reads() == b"one\n"
    live.tick(NOW + 2000)
    assert here.reads() == b"one\ntwo\n"
    assert here.shared.last_parts([TASK]) == {(TASK, 1): b"one\ntwo\n"}
    there.ends()
    running.clear()
    live.tick(NOW + 3000)
    assert here.reads() == b"one\ntwo\n"
    assert not database.read(sql.any_tail_before, NOW * 2)


def test_a_long_running_output_is_sealed_up_to_its_end(database, tmp_path, url):
    here, there = Host(database, tmp_path, "a"), Host(database, tmp_path, "b", url)
    live = live_outputs(there, RUNNING)
    text = text_of(500_000)
    there.prints(text[:200_000])
    live.tick(NOW)
    live.tick(NOW + SEAL_MS)
    live.last_look()  # the thread has done it
    live.tick(NOW + SEAL_MS + 4000)
    assert here.reads() == text[:200_000]
    there.prints(text[200_000:300_000])
    live.tick(NOW + SEAL_MS + 8000)
    missing = here.shared.missing_part(TASK, 1, 200_000)
    assert missing is None or missing.is_coming
    there.prints(text[300_000:])
    there.ends()
    assert here.reads() == text


def test_what_a_dead_host_printed_is_kept(database, tmp_path):
    here, there = Host(database, tmp_path, "a"), Host(database, tmp_path, "b")
    there.prints(b"last words\n")
    live_outputs(there, RUNNING).tick(NOW)
    live_outputs(here).tick(NOW + SILENT_MS + 1)
    assert not database.read(sql.any_tail_before, NOW * 2)
    assert here.reads() == b"last words\n"


def test_removing_removes_rows_and_segments(database, tmp_path, url):
    here, there = Host(database, tmp_path, "a", url), Host(database, tmp_path, "b", url)
    there.prints(text_of(200_000))
    there.ends()
    there.prints(b"short", attempt=2)
    there.ends(attempt=2)
    here.shared.remove_all_of([TASK])
    assert not list((tmp_path / "objects").rglob("*.gz"))
    assert here.reads(1) == here.reads(2) == b""
