"""The journal: what a worker was doing can be read afterwards, whatever the state of the file."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hypervisor.queue.lease import AttemptResult, Leftovers, Usage
from hypervisor.runs.processes import journal
from hypervisor.runs.processes.journal import Journal, remains
from tests.support.journals import ONE, TWO, WORKER, left, told


@pytest.fixture
def runtime(tmp_path):
    return str(tmp_path)


@pytest.fixture
def book(runtime):
    made = Journal(runtime, WORKER, "/sys/fs/cgroup/seven")
    made.clear()
    return made


def test_a_worker_that_never_began_left_no_word(runtime):
    Journal(runtime, WORKER, None)
    assert remains(runtime, WORKER) is None and os.listdir(runtime) == []


def test_the_short_way_of_writing_an_end_says_the_same(runtime, book):
    """Plain successes, of which there are thousands, are not encoded the general way."""
    plain = AttemptResult(ONE, "complete", usage=Usage(0, 12, None, 345))
    others = [
        plain._replace(result=""),
        plain._replace(reason=""),
        plain._replace(event="fail"),
        plain._replace(receipts=("r",)),
        plain._replace(usage=None),
        plain._replace(retry_at=0),
    ]
    assert json.loads(journal._plain_end(plain)) == json.loads(
        journal._line(["end", str(ONE), *plain[1:]])
    )
    assert {journal._plain_end(each) for each in others} == {b""}
    book.ended(plain)
    assert told(runtime) == left([plain])


def test_the_word_of_a_worker_is_for_its_owner_only(runtime, book):
    [name] = os.listdir(runtime)
    assert os.stat(os.path.join(runtime, name)).st_mode & 0o777 == 0o600
    assert remains(runtime, WORKER) == left()


def test_each_process_has_its_own(runtime, book):
    book.starting(str(ONE))
    assert remains(runtime, WORKER._replace(pid=8)) is None
    assert remains(runtime, WORKER._replace(pid_start=701)) is None


def test_an_attempt_from_its_start_to_its_end(runtime, book):
    book.starting(str(ONE))
    assert remains(runtime, WORKER) == left(running=ONE)
    book.leader(99, 12345)
    assert remains(runtime, WORKER) == left(running=ONE, leader=(99, 12345))
    done = AttemptResult(ONE, "complete", {"n": [1]}, usage=Usage(0, 5, 6, 7))
    book.ended(done)
    assert remains(runtime, WORKER) == left([done], leader=(99, 12345))
    book.starting(str(TWO))
    assert remains(runtime, WORKER) == left([done], TWO), "a new attempt has no leader yet"


def test_clearing_keeps_what_runs_and_nothing_else(runtime, book):
    failed = AttemptResult(ONE, "fail", reason="no")
    book.starting(str(ONE))
    book.ended(failed)
    book.starting(str(TWO))
    book.leader(99, 1)
    book.clear()
    assert remains(runtime, WORKER) == left(running=TWO, leader=(99, 1))
    book.clear()
    assert remains(runtime, WORKER) == left(running=TWO, leader=(99, 1))
    done = AttemptResult(TWO, "complete")
    book.ended(done)
    assert told(runtime).verdicts == (done,)
    book.clear()
    assert remains(runtime, WORKER) == left()
    assert len(os.listdir(runtime)) == 1


def test_what_was_decided_without_a_start_counts_as_ended(runtime, book):
    book.starting(str(ONE))
    other = AttemptResult(TWO, "fail", reason="no command can run for it")
    book.ended(other)
    assert told(runtime).verdicts == (other,)
    assert told(runtime).running == str(ONE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MAYBE = st.none() | st.integers(0, 1 << 50)
VERDICTS = st.builds(
    AttemptResult,
    st.sampled_from([ONE, TWO]),
    st.sampled_from(["complete", "fail", "back_off", "release"]),
    JSON,
    st.none() | st.text(),
    st.none() | st.text(),
    MAYBE,
    st.none() | st.builds(Usage, MAYBE, MAYBE, MAYBE, MAYBE),
    st.just(()),
    st.booleans(),
)


@given(st.lists(VERDICTS, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_verdicts_come_back_as_they_were_given(runtime, verdicts):
    book = Journal(runtime, WORKER, None)
    book.clear()
    for verdict in verdicts:
        book.ended(verdict)
    found = told(runtime)
    book.remove()
    assert {v.token: v for v in found.verdicts} == {v.token: v for v in verdicts}


def test_however_a_file_was_cut_off_its_whole_lines_count(runtime, book):
    verdicts = [AttemptResult(ONE, "complete", "ü" * 50), AttemptResult(TWO, "fail", reason="x")]
    for token, verdict in zip((ONE, TWO), verdicts, strict=True):
        book.starting(str(token))
        book.leader(5, 6)
        book.ended(verdict)
    with open(book.path, "rb") as file:
        whole = file.read()
    ends = [index for index, byte in enumerate(whole) if byte == 10]
    seen = set()
    for length in range(len(whole) + 1):
        with open(book.path, "wb") as file:
            file.write(whole[:length])
        found = told(runtime)
        lines = sum(end < length for end in ends)
        assert len(found.verdicts) == (lines > 3) + (lines > 6)
        assert (found.running is not None) == (lines in (2, 3, 5, 6))
        seen.add(lines)
    assert seen == set(range(8))


GARBAGE = {
    "not JSON": b"hello\n",
    "not Unicode": b"\xff\xfe\x00\n",
    "half a line in the middle": b'["start","0000\n["group",null]\n',
    "a number": b"5\n",
    "null": b"null\n",
    "an empty list": b"[]\n",
    "an object": b'{"start": 1}\n',
    "a text": b'"start"\n',
    "a start of nothing": b'["start"]\n',
    "a start of no token": b'["start","../../x"]\n',
    "a start of a number": b'["start",5]\n',
    "a leader without a number": b'["leader","x",null]\n',
    "a leader alone": b'["leader"]\n',
    "an end of nothing": b'["end"]\n',
    "an end of no token": b'["end","x","complete",null,null,null,null,null]\n',
    "an end of a list": b'["end",[1],"complete",null,null,null,null,null]\n',
    "an end without the rest": b'["end","000000000001.1.aaaa","complete"]\n',
    "an end that costs a text": b'["end","000000000001.1.aaaa","complete",0,null,null,null,"x"]\n',
    "an end that costs too much": b'["end","000000000001.1.aaaa","fail",0,"","",0,[1,2,3,4,5]]\n',
    "a group that is none": b'["group",5]\n',
    "deeper than anybody can read": b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "zeros, as after a power cut": b"\0" * 100 + b"\n",
}


@pytest.mark.parametrize("what", GARBAGE)
def test_of_garbage_nothing_can_be_told(runtime, book, what):
    with open(book.path, "ab") as file:
        file.write(GARBAGE[what])
    assert remains(runtime, WORKER) is None


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_file_makes_reading_fail(runtime, data):
    with open(os.path.join(runtime, "7.700.journal"), "wb") as file:
        file.write(data + b"\n")
    found = remains(runtime, WORKER)
    assert found is None or isinstance(found, Leftovers)


def test_a_kind_of_line_that_a_newer_version_writes_is_passed_over(runtime, book):
    book.starting(str(ONE))
    with open(book.path, "ab") as file:
        file.write(b'["mood","fine",{}]\n')
    assert remains(runtime, WORKER) == left(running=ONE)


def test_what_cannot_be_read_tells_nothing(runtime):
    os.mkdir(os.path.join(runtime, "7.700.journal"))
    assert remains(runtime, WORKER) is None
    assert remains(os.path.join(runtime, "nowhere"), WORKER) is None


def test_a_file_of_an_earlier_boot_is_not_mistaken_for_ours(runtime):
    """The same number and start can come again where the folder survives a reboot."""
    old = Journal(runtime, WORKER, "/a/much/longer/name/of/a/group")
    old.clear()
    old.starting(str(TWO))
    new = Journal(runtime, WORKER, "/sys/fs/cgroup/seven")
    new.clear()
    assert remains(runtime, WORKER) == left()
    new.ended(AttemptResult(ONE, "complete"))
    new.clear()
    assert remains(runtime, WORKER) == left()


def test_removing_and_forgetting(runtime, book):
    book.starting(str(ONE))
    with open(book.path + journal.NEW, "w") as file:
        file.write("it died while it replaced one by the other")
    journal.forget(runtime, WORKER)
    assert os.listdir(runtime) == []
    journal.forget(runtime, WORKER)
    book.remove()
