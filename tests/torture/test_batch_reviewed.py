"""A reviewed batch from its first item to its undoing, with everything killed in between.

Five chunks, a checkpoint after each: stopped, all processes killed, reviewed by others later;
one chunk is rejected, one retried with a note that reaches the worker; the plan of the
rest is carried out and undone again, byte for byte.
"""

from __future__ import annotations

import json

import pytest

from hypervisor.core.errors import EXIT_CHECKPOINT
from tests.torture.fleet import Project, kill, wait_for

WORKER = """
import json, os, sys
path = sys.argv[1]
note = os.environ.get("HV_NOTE", "")
number = int(path.split("-")[1].split(".")[0])
if os.environ.get("SLOW") and not os.path.exists("go"):
    import time
    open("begun", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.02)
kind = "kept" if note else ["archive", "edit"][number % 2]
actions = {
    "archive": [{"do": "move", "path": path, "to": "archive/" + path}],
    "edit": [{"do": "edit", "path": path, "set": {"status": "done"}}],
    "kept": [],
}[kind]
said = {"category": kind, "rationale": note or f"item {number}", "actions": actions}
said["receipts"] = [f"looked at {path}"]
print(json.dumps(said))
"""


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path)
    (project.folder / "worker.py").write_text(WORKER)
    yield project
    project.close()


def contents(project):
    return {
        str(path.relative_to(project.folder)): path.read_bytes()
        for path in sorted(project.folder.rglob("*.md"))
        if ".hypervisor" not in path.parts
    }


def hv(project, *args, code=0):
    ended = project.ended(project.start(*args))
    assert ended.code == code, ended
    return ended.out


def test_a_batch_is_reviewed_carried_out_and_undone(project):
    names = [f"item-{number:02}.md" for number in range(20)]
    for number, name in enumerate(names):
        ending = "\r\n" if number % 3 else "\n"
        text = f"---{ending}# mine{ending}status: open{ending}---{ending}Body {number} é"
        (project.folder / name).write_bytes(text.encode())
    before = contents(project)
    run = [
        "--name",
        "b",
        "--chunk-size",
        "4",
        "--gate",
        "each",
        "--result",
        "json",
        "--workers",
        "2",
        "--quiet",
        "--",
        "python3",
        "worker.py",
        "{}",
    ]

    # Killed in the middle of the first chunk: client, supervisor, workers, commands.
    project.env["SLOW"] = "1"
    client = project.start("run", *run, items=names)
    wait_for(lambda: (project.folder / "begun").exists(), "a worker has begun")
    for process in project.processes():
        kill(process)
    client.wait(180)
    (project.folder / "go").touch()
    del project.env["SLOW"]

    assert project.run(*run, items=names).code == EXIT_CHECKPOINT
    waiting = json.loads(hv(project, "review", "--json"))
    assert [(each["batch"], each["chunk"]["number"]) for each in waiting] == [("b", 1)]

    def decide(*args):
        hv(project, "review", "b", *args)
        wait_for(lambda: at_checkpoint(), "the next chunk has ended")
        for process in project.processes():  # everything is killed between any two decisions
            kill(process)

    def at_checkpoint():
        chunks = json.loads(hv(project, "review", "b", "--list", "--json"))
        open_ = [each for each in chunks if each["state"] == "open"]
        return not open_ or set(open_[0]["tasks"]) <= {"done", "failed"}

    decide("--approve", "--note", "good")
    decide("--reject", "--note", "not these")
    decide("--retry", "--note", "leave them alone")
    decide("--approve")
    decide("--approve")
    hv(project, "review", "b", "--approve")
    chunks = json.loads(hv(project, "review", "b", "--list", "--json"))
    assert [each["state"] for each in chunks] == [
        "approved",
        "rejected",
        "approved",
        "approved",
        "approved",
    ]

    summaries = [
        json.loads((project.folder / f".hypervisor/batches/b/chunk-0{n}-summary.json").read_text())
        for n in (1, 3)
    ]
    assert summaries[0]["categories"] == {"archive": 2, "edit": 2}
    assert summaries[1]["categories"] == {"kept": 4}  # the note has reached the worker

    assert contents(project) == before  # so far everything was only proposed
    hv(project, "plan", "b")
    hv(project, "apply", "b", "--yes")
    after = contents(project)
    touched = {name for name in names if before[name] != after.get(name)}
    assert touched == {*names[:4], *names[12:]}  # neither the rejected nor the kept ones
    assert after["item-01.md"] == before["item-01.md"].replace(b"open", b"done")
    assert after["archive/item-00.md"] == before["item-00.md"]
    assert "all valid" in hv(project, "receipt", "verify")
    hv(project, "undo", "b", "--yes")
    assert contents(project) == before
    assert not (project.folder / "archive").exists()
    assert "all valid" in hv(project, "receipt", "verify")
    receipts = json.loads(hv(project, "receipt", "ls", "b", "--json"))
    decisions = [each["text"] for each in receipts if each["text"].startswith("chunk ")]
    assert decisions == [
        "chunk 1 approved: good",
        "chunk 2 rejected: not these",
        "chunk 3 to be retried: leave them alone",
        "chunk 3 approved",
        "chunk 4 approved",
        "chunk 5 approved",
    ]
