"""The output of commands is kept: in packs, in files, after a kill, for the next stage."""

import os
import time

import pytest

from hypervisor.git.upkeep import CLEANED
from tests.cli.conftest import until


@pytest.fixture
def hv(project):
    return project


def run(hv, *args, items=(), code=0):
    done = hv("run", *args, stdin="".join(f"{item}\n" for item in items))
    assert done.code == code, done
    return hv.tasks("b")


def files(hv, pattern):
    return sorted(hv.folder.glob(f".hypervisor/outputs/{pattern}"))


def test_short_and_long_outputs_are_all_there_and_nobody_else_s(hv):
    prints = 'for i in $(seq $0); do printf "%s%0999d\\n" $0 0; done'
    sizes = [0, 1, 2, 3, 4, 5, 9, 30]
    tasks = run(hv, "--name", "b", "--workers", "2", "--", "sh", "-c", prints, items=sizes)
    assert len(tasks) == len(sizes)
    for size, task in ((int(task["title"]), task) for task in tasks):
        assert hv.ok("logs", task["id"]) == (f"{size}{0:0999d}\n" * size)
    assert len(files(hv, "*/*.log")) == 3, "of 5,000, 9,000 and 30,000 bytes"
    until(lambda: not files(hv, "spools/*"), "workers that end take their spools along")


def test_the_output_before_the_worker_was_killed_is_kept(hv):
    """And a second attempt has its own output."""
    last_words = (
        "if [ -e again ]; then echo second; else touch again; echo words; kill -9 $PPID; fi"
    )
    [task] = run(hv, "--name", "b", "--workers", "1", "--", "sh", "-c", last_words, items="x")
    assert task["state"] == "done"
    assert hv.ok("logs", task["id"], "--attempt", "1") == "words\n"
    assert hv.ok("logs", task["id"]) == "second\n"


def test_what_is_left_running_writes_into_no_other_output(hv):
    """It is ended with its command; what it had written belongs to that output."""
    leaves = "(trap '' HUP; while :; do echo left $0; done) & echo said $0; sleep 0.02"
    tasks = run(hv, "--name", "b", "--workers", "1", "--", "sh", "-c", leaves, items="abcdef")
    assert len(tasks) == 6
    for item, task in ((task["title"], task) for task in tasks):
        said = hv.ok("logs", task["id"]).split("\n")
        assert f"said {item}" in said
        assert set(said) <= {f"said {item}", f"left {item}", ""}, item


def test_the_next_stage_gets_a_file(hv):
    hv.ok("run", "--name", "b", "--then", "cp {output} out-{}", "--", "echo", stdin="1\n2\n")
    assert [(hv.folder / f"out-{n}").read_text() for n in "12"] == ["1\n", "2\n"]


def test_records_go_with_what_is_too_old_and_the_rest_stays(hv):
    tasks = run(hv, "--name", "b", "--workers", "2", "--", "echo", items=range(20))
    until(lambda: not files(hv, "spools/*"), "no worker has its pack open any more")
    assert 1 <= len(files(hv, "*/*.pack")) <= 2 and not files(hv, "*/*.log")
    (hv.folder / ".hypervisor" / "config.toml").write_text("[outputs]\nkeep_size = 30\n")
    gone = hv.json("gc")
    assert gone["outputs"] > 0 and gone["kept_bytes"] <= 30 < gone["bytes"] + gone["kept_bytes"]
    kept = [hv("logs", task["id"]).code == 0 for task in tasks]
    assert kept.count(True) == gone["kept"] == 20 - gone["outputs"]


def test_old_outputs_go_after_a_run(hv):
    folder = hv.folder / ".hypervisor"
    run(hv, "--name", "b", "--", "echo", items="ab")
    until(lambda: (folder / CLEANED).exists(), "the supervisor has exited")
    long_ago = time.time() - 31 * 86_400
    for path in (folder / CLEANED, *folder.glob("outputs/*/*.pack")):
        os.utime(path, (long_ago, long_ago))
    run(hv, "--name", "c", "--", "echo", items="c")
    first = hv.tasks("b")[0]["id"]
    until(lambda: hv("logs", first).code == 4, "its output is deleted")
    assert hv.ok("logs", hv.tasks("c")[0]["id"]) == "c\n"
