"""Eight processes write receipts into one task file, are killed and started again at random,
while the owner of the file keeps editing it: every receipt is there, once, in order."""

from __future__ import annotations

import os
import random
import re
import signal
import time
import traceback
from pathlib import Path

import pytest

import hypervisor
from hypervisor.inputs.task_files.files import TaskFiles
from hypervisor.inputs.task_files.markdown import parse, with_fields
from hypervisor.inputs.task_files.receipts_section import receipt_line, receipt_problems
from hypervisor.queue.sql import receipts as receipts_sql

CREW = 8
STORM = 3.0  # seconds
DEADLINE = 180.0
START = "---\n# mine\nowner: 0 # counted\nworker: none\n---\n\nText 0.\n\n## Receipts\n\nMy note.\n"


class Place:
    """What all processes of a test share, by name only."""

    def __init__(self, folder: Path, task: str) -> None:
        self.store = str(folder / "store.db")
        self.locks = str(folder / "locks")
        self.path = str(folder / "tasks" / "task.md")
        self.acks = str(folder / "acknowledged")
        self.failed = folder / "failed"
        self.stop = folder / "stop"
        self.owner_stop = folder / "owner-stop"
        self.task = task
        self.running: set[int] = set()

    def failure(self) -> str:
        return self.failed.read_text() if self.failed.exists() else ""


@pytest.fixture
def place(tmp_path):
    with hypervisor.open(str(tmp_path / "store.db")) as hv:
        (task,) = hv.add([hypervisor.NewTask("one file for all")]).ids
    made = Place(tmp_path, task)
    os.mkdir(os.path.dirname(made.path))
    Path(made.path).write_text(START)
    Path(made.acks).touch()
    yield made
    for pid in made.running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_receipts_survive_kills_and_the_owner(place):
    crew = {n: fork(place, worker, n, n) for n in range(CREW)}
    owner = fork(place, edit_as_owner)
    kills = storm(place, crew, random.Random(8))
    place.owner_stop.touch()
    assert ended(place, owner) == 0, place.failure()
    settled = len(acknowledged(place))
    wait_for(lambda: len(acknowledged(place)) >= settled + CREW)  # after the owner's last edit
    place.stop.touch()
    assert [ended(place, pid) for pid in crew.values()] == [0] * CREW, place.failure()
    check(place, kills)


def storm(place, crew, dice):
    kills, seed, until = 0, CREW, time.monotonic() + STORM
    while time.monotonic() < until or kills < 40:
        before = len(acknowledged(place))
        wait_for(lambda before=before: len(acknowledged(place)) > before + dice.randint(0, 5))
        slot, seed = dice.randrange(CREW), seed + 1
        os.kill(crew[slot], signal.SIGKILL)
        assert ended(place, crew[slot]) == -signal.SIGKILL, place.failure()
        crew[slot] = fork(place, worker, slot, seed)
        kills += 1
    return kills


def check(place, kills):
    assert not place.failure()
    data = Path(place.path).read_bytes()
    with hypervisor.open(place.store) as hv:
        receipts = hv.store.read(receipts_sql.of_task, place.task)
        assert [report.problem for report in hv.verify(place.task)] == [None]
    assert receipt_problems(data, receipts) == []
    lines = data.decode().splitlines()
    written = [line for line in lines if re.match(r"- \d{4}-", line)]
    assert written == [receipt_line(each) for each in receipts], "each once, in order, no other"
    said = acknowledged(place)
    assert len(said) == len(set(said)) and set(said) <= {each.number for each in receipts}
    fields = parse(data).fields
    assert fields["owner"] > 20 and f"Text {fields['owner']}." in lines and "My note." in lines
    assert fields["owner"] == int(Path(place.path + ".owner").read_text())
    assert fields["worker"] != "none" and b"# mine\n" in data and b" # counted\n" in data
    others = [name for name in os.listdir(os.path.dirname(place.path)) if ".kept-" not in name]
    assert sorted(others) == ["task.md", "task.md.owner"]
    print(
        f"{len(said)} acknowledged, {len(receipts)} stored, {kills} kills, {fields['owner']} edits"
    )


def acknowledged(place):
    return [int(line) for line in Path(place.acks).read_bytes().split(b"\n")[:-1]]


def worker(place, slot, seed):
    """Store a receipt, write it into the file, only then say so; now and then set a field."""
    dice, files = random.Random(seed), TaskFiles(place.locks)
    acks = os.open(place.acks, os.O_WRONLY | os.O_APPEND)
    with hypervisor.open(place.store) as hv:
        while not place.stop.exists():
            text = dice.choice(["did it", "a\nb ## Receipts", "x · #1 0123456789ab", "é" * 300])
            (made,) = hv.receipt(place.task, [f"{slot}: {text}"])
            files.append_receipts(place.path, hv.store.read(receipts_sql.of_task, place.task))
            os.write(acks, b"%d\n" % made.number)
            if dice.random() < 0.2:
                files.change(place.path, lambda data: with_fields(data, {"worker": f"w{slot}"}))


def edit_as_owner(place):
    """Count up in front matter and body, by atomic replace; what was counted must stay so."""
    path, count, dice = Path(place.path), 0, random.Random(0)
    while not place.owner_stop.exists():
        data = read_with(path, b"owner: %d " % count)
        data = data.replace(b"owner: %d " % count, b"owner: %d " % (count + 1))
        data = data.replace(b"Text %d." % count, b"Text %d." % (count + 1))
        count += 1
        time.sleep(dice.random() / 100)  # what is appended now, the save will drop
        fresh = Path(f"{path}.owner")
        fresh.write_bytes(data)
        os.rename(fresh, path)
        time.sleep(dice.random() / 50)  # no owner saves more often than that
    Path(f"{path}.owner").write_text(str(count))


def read_with(path, wanted):
    """While a swap is undone, the version before may be seen for a moment, not for longer."""
    until = time.monotonic() + DEADLINE
    while wanted not in (data := path.read_bytes()):
        assert time.monotonic() < until, f"{wanted!r} was lost"
    return data


def fork(place, job, *args):
    pid = os.fork()
    if pid:
        place.running.add(pid)
        return pid
    try:
        job(place, *args)
        os._exit(0)
    except BaseException:
        place.failed.write_text(f"{job.__name__}: {traceback.format_exc()}")
    finally:
        os._exit(1)


def ended(place, pid):
    """Its exit code, once it has one."""
    wait_for(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
    place.running.discard(pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def wait_for(condition, seconds=DEADLINE):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.002)
