"""What people see of the output of a failed verification: the end of it, without control
characters."""

from __future__ import annotations

from hypervisor.cli.commands.queue import exit_line, queue_lines
from hypervisor.git.queue_status import LandedTask, LaneStatus, QueuedTask
from hypervisor.git.verify import Verdict
from hypervisor.git.verify_output import MAX_LINE, MAX_LINES, failure_text, output_in

REASON = "make test: exited with 2"


def failed(path, output):
    path.write_bytes(output)
    return Verdict(False, 2, str(path), command="make test", reason=REASON)


def test_one_line_with_the_message_then_the_end_of_the_output(tmp_path):
    path = tmp_path / "log"
    output = b"$ make test\n\x1b[31mE: \x1b]0;title\x07b is wrong\x1b[0m\x08\n1 failed\n\n"
    text = failure_text("verification failed", failed(path, output + REASON.encode() + b"\n"))
    first, *rest = text.split("\n")
    assert first == f"verification failed: {REASON}: 1 failed; output: {path}"
    assert rest[1:] == output_in(text) == ["$ make test", "E: b is wrong ", "1 failed"]


def test_much_output_is_bounded(tmp_path):
    output = b"".join(b"%d %s\n" % (n, b"x" * 5000) for n in range(1000))
    lines = output_in(failure_text("failed", failed(tmp_path / "log", output)))
    assert 0 < len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= MAX_LINE + 1
    assert lines[-1].startswith("999 x")


def test_no_output_and_an_output_that_is_gone(tmp_path):
    verdict = failed(tmp_path / "log", b"")
    assert failure_text("failed", verdict) == f"failed: {REASON}; output: {tmp_path / 'log'}"
    (tmp_path / "log").unlink()
    assert output_in(failure_text("failed", verdict)) == []
    assert output_in("conflict in f with 1234\nCommon base: 5678") == []


def test_the_queue_says_where_to_look():
    task = QueuedTask("1abc", "edit", "b", 2, 1, 0)
    lines = list(queue_lines([LaneStatus("l", "/r", "branch", "hv/b", "", "", (task,))], 0))
    assert lines[-1][-1][0] == "edit  (round 2: hv show 1abc says why)"
    left = LandedTask("1abc", "edit", "review", f"{REASON}\nmore", "", "", False)
    assert exit_line(left)[-1][0] == f"in review: {REASON} (hv show 1abc says why)"
