"""The journal of a worker that dies at any moment: complete lines or none, and nothing is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress

import pytest

from hypervisor.queue.lease import AttemptResult, Leftovers
from hypervisor.runs.processes import journal
from hypervisor.runs.processes.journal import Journal, remains
from tests.support.journals import ONE, TWO, WORKER, left, told

KILLS = 30


@pytest.fixture
def runtime(tmp_path):
    return str(tmp_path)


WRITER = """
    import os, sys
    from hypervisor.runs.processes.journal import Journal
    from hypervisor.queue.lease import Token, AttemptResult, Worker

    book = Journal(sys.argv[1], Worker("w", "worker-7", "here", "boot", 7, 700), "/a/group")
    book.clear()
    os.write(1, b".")
    for number in range(1_000_000):
        token = Token("000000000001", number, "aaaa")
        book.starting(str(token))
        os.write(1, b".")
        book.leader(number, 1)
        os.write(1, b".")
        if number % 4 == 1:
            book.clear()
            os.write(1, b".")
        book.ended(AttemptResult(token, "complete", "x" * (number % 5 * 20_000)))
        os.write(1, b".")
        if number % 3 == 2:
            book.clear()
            os.write(1, b".")
"""


def after_steps(steps):
    """What must be left after the writer has made this many steps: (ended, running, leader)."""
    ended: list[int] = []
    number, steps = 0, steps - 1
    while steps > 0:
        clears = number % 4 == 1
        if steps == 1:
            return ended, number, None
        if steps == 2 or (steps == 3 and clears):
            return [] if steps == 3 else ended, number, number
        if clears:
            ended = []
        steps -= 3 + clears
        ended = [*ended, number]
        if steps and number % 3 == 2:
            ended, steps = [], steps - 1
        number += 1
    return ended, None, None


def test_the_steps_of_the_writer_are_counted_right():
    """Start, leader, (clear,) end, (clear) …; the first step is the first clear."""
    seen = [after_steps(steps) for steps in range(1, 13)]
    assert seen == [
        ([], None, None),
        ([], 0, None),
        ([], 0, 0),
        ([0], None, None),
        ([0], 1, None),
        ([0], 1, 1),
        ([], 1, 1),
        ([1], None, None),
        ([1], 2, None),
        ([1], 2, 2),
        ([1, 2], None, None),
        ([], None, None),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="workers run on Linux")
def test_a_kill_at_any_instant_leaves_whole_lines_or_none(runtime):
    """A real writer is killed. Acknowledged lines must be there; the line that it was just
    writing is there completely or not at all."""
    chance = random.Random(7)
    for _ in range(KILLS):
        journal.forget(runtime, WORKER)
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), runtime], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        heard = b""
        wanted = chance.randrange(1, 200)
        while len(heard) < wanted:
            heard += os.read(writer.stdout.fileno(), 1)
        writer.send_signal(signal.SIGKILL)
        heard += writer.stdout.read()
        writer.stdout.close()
        assert writer.wait(180) == -signal.SIGKILL
        found = told(runtime)
        assert found.group == "/a/group"
        state = (
            [verdict.token.attempt for verdict in found.verdicts],
            None if found.running is None else int(found.running.split(".")[1]),
            found.leader[0] if found.leader and found.running else None,
        )
        assert state in (after_steps(len(heard)), after_steps(len(heard) + 1))
        for verdict in found.verdicts:
            assert verdict.result == "x" * (verdict.token.attempt % 5 * 20_000)


class Death(BaseException):
    """Stands for a kill at a moment chosen by the test."""


class DyingSystem:
    """The system's calls, until the last one allowed; of a write then `part` is done."""

    def __init__(self, calls, part):
        self.calls, self.part = calls, part

    def __getattr__(self, name):
        call = getattr(os, name)
        if name not in ("open", "write", "ftruncate", "rename", "close", "unlink"):
            return call

        def counted(*arguments):
            self.calls -= 1
            if self.calls < 0:
                if name == "write":
                    handle, text = arguments
                    os.write(handle, text[: int(len(text) * self.part)])
                raise Death
            return call(*arguments)

        return counted


@pytest.mark.parametrize("part", [0, 0.5, 1])
def test_death_between_any_two_system_calls_loses_nothing(runtime, monkeypatch, part):
    """The same as above, but between every two system calls."""
    done = AttemptResult(ONE, "complete", "x" * 100)
    steps = [
        ("clear", (), left()),
        ("starting", (str(ONE),), left(running=ONE)),
        ("leader", (9, 1), left(running=ONE, leader=(9, 1))),
        ("clear", (), left(running=ONE, leader=(9, 1))),
        ("ended", (done,), left([done], leader=(9, 1))),
        ("starting", (str(TWO),), left([done], TWO)),
        ("clear", (), left(running=TWO)),
        ("ended", (AttemptResult(TWO, "fail"),), left([AttemptResult(TWO, "fail")])),
        ("clear", (), left()),
    ]
    # Before the first step there is nothing, or a file with nothing in it.
    states = [None, *(after for _, _, after in steps)]
    nothing_yet = Leftovers((), None, None, None)
    for calls in range(1_000):
        journal.forget(runtime, WORKER)
        monkeypatch.setattr(journal, "os", DyingSystem(calls, part))
        book, made = Journal(runtime, WORKER, "/sys/fs/cgroup/seven"), 0
        with suppress(Death):
            for name, arguments, _ in steps:
                getattr(book, name)(*arguments)
                made += 1
        monkeypatch.setattr(journal, "os", os)
        found = remains(runtime, WORKER)
        assert found in states[made : made + 2] or (made == 0 and found == nothing_yet), calls
        if made == len(steps):
            break
    assert len(steps) < calls < 100


def test_lines_are_written_with_single_calls(runtime, monkeypatch):
    """Only then does a kill between two of them leave whole lines."""
    calls: list[bytes] = []
    write = os.write

    def counted(file, text):
        calls.append(text)
        return write(file, text)

    book = Journal(runtime, WORKER, None)
    book.clear()
    monkeypatch.setattr(os, "write", counted)
    book.starting(str(ONE))
    book.leader(1, 2)
    book.ended(AttemptResult(ONE, "complete", "x" * 100_000))
    assert len(calls) == 3
    assert all(json.loads(call) and call.endswith(b"\n") for call in calls)
