"""Functions may kill the interpreter, but never the worker; and their usage is reported."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hypervisor.queue.attempt import Ended
from tests.support.functions import (
    Fifo,
    attempt,
    is_readable,
    linux_only,
    wait,
)


class TestDeath:
    @pytest.mark.parametrize(
        ("how", "code", "number", "name"),
        [
            ("exit", 3, None, "exit code 3"),
            ("kill", None, signal.SIGKILL, "SIGKILL"),
            ("segfault", None, signal.SIGSEGV, "SIGSEGV"),
        ],
    )
    def test_a_crash_costs_one_attempt(self, make, output, how, code, number, name):
        runner = make("dies")
        before = attempt(runner, "", output).result
        ended = attempt(runner, how, output)
        assert (ended.exit_code, ended.signal) == (code, number)
        assert ended.reason() == f"the interpreter died ({name})"
        assert runner.pid is None
        assert output.read_text() == "last words\n" * 2
        after = attempt(runner, "", output)
        assert after.ok
        assert after.result == runner.pid != before

    def test_a_crash_in_the_first_attempt(self, run):
        assert run("dies", "exit").exit_code == 3

    def test_an_interpreter_that_died_between_items_is_replaced(self, make, folder, output):
        os.mkfifo(folder / "fuse")
        runner = make("leaves_a_bomb")
        first = attempt(runner, "fuse", output).result
        assert first == runner.pid
        (folder / "fuse").write_text("")
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
        second = attempt(runner, "fuse", output)
        assert second.ok
        assert second.result != first

    def test_the_worker_may_collect_the_interpreter_itself(self, make, output):
        runner = make("dies")
        runner.start("kill", str(output))
        pid, status, _ = os.wait4(runner.pid, 0)
        runner.reaped(pid + 1, 0, 0.0, 0)
        runner.reaped(pid, status, 1.5, 10**12)
        ended = runner.finish()
        assert ended == (None, signal.SIGKILL, ended.cpu, 10**12, None, ended.error)
        assert ended.reason() == "the interpreter died (SIGKILL)"
        assert 1.0 < ended.cpu < 1.5  # without what it had used before the attempt
        assert attempt(runner, "", output).ok

    def test_an_answer_counts_even_if_the_interpreter_died_after_it(self, make, folder, output):
        os.mkfifo(folder / "fuse")
        runner = make("leaves_a_bomb")
        assert attempt(runner, "fuse", output).ok
        runner.start("fuse", str(output))
        assert is_readable(runner.fileno())
        (folder / "fuse").write_text("")
        pid, status, _ = os.wait4(runner.pid, 0)
        runner.reaped(pid, status, 0.0, 0)
        assert runner.finish().result == pid
        assert runner.finish() is None
        assert attempt(runner, "fuse", output).result != pid

    def test_collected_by_someone_who_did_not_tell(self, make, output):
        runner = make("dies")
        runner.start("kill", str(output))
        os.waitpid(runner.pid, 0)
        ended = wait(runner)
        assert (ended[:2], ended.reason()) == ((None, None), "the interpreter died")
        assert attempt(runner, "", output).ok

    def test_a_forked_child_that_stays_does_not_hide_the_death(self, run):
        assert run("forks", "stays").signal == signal.SIGKILL

    def test_a_forked_child_that_comes_back_does_not_answer(self, make, output):
        runner = make("forks")
        for _ in range(5):
            assert attempt(runner, "", output).result == "the parent"
        assert output.read_text() == ""

    def test_a_broken_protocol_is_a_crash(self, make, output):
        runner = make("breaks_protocol")
        ended = attempt(runner, None, output)
        assert (ended.ok, ended.reason()) == (False, "the interpreter sent an invalid answer")
        assert runner.pid is None

    def test_closed_pipes_are_a_crash(self, make, output):
        runner = make("closes")
        ended = attempt(runner, [3, 2000], output)
        assert str(ended.reason()).startswith("the interpreter died")
        assert attempt(runner, [3, 51], output).ok

    @linux_only
    def test_stop_ends_a_running_attempt_and_its_children(self, make, folder, output):
        runner = make("hangs")
        started = Fifo(folder / "fifo")
        runner.start([started.path, "with a child"], str(output))
        started.wait()
        pid = runner.pid
        child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
        watched = os.pidfd_open(child)
        runner.stop()
        assert runner.pid is None
        assert runner.finish() is None
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)
        assert is_readable(watched)
        os.close(watched)

    def test_stop_without_a_start_is_fine(self, make):
        runner = make("same")
        runner.stop()
        assert runner.finish() is None


class TestCost:
    @linux_only
    def test_the_peak_of_memory_is_that_of_the_item(self, make, output):
        if not can_clear_peak():
            pytest.skip("this kernel does not let the peak be reset")
        runner = make("allocates")
        small = attempt(runner, 1, output).peak
        large = attempt(runner, 300_000_000, output).peak
        again = attempt(runner, 1, output).peak
        assert 0 < small < 100_000_000 < 300_000_000 <= large
        assert again < small + 20_000_000

    @linux_only
    def test_the_peak_is_not_that_of_the_worker(self, make, output):
        mine = bytearray(200_000_000)
        assert attempt(make("allocates"), 1, output).peak < 100_000_000 < len(mine)

    def test_cpu_is_that_of_the_item(self, make, output):
        runner = make("burns")
        assert attempt(runner, 0.1, output).cpu >= 0.1
        assert attempt(runner, 0, output).cpu < 0.05
        died = attempt(runner, 0.25, output)
        assert died.exit_code == 1
        assert 0.25 <= died.cpu < 0.5

    def test_the_peak_of_one_that_died_is_reported_only_if_it_is_its_own(
        self, make, folder, output
    ):
        (folder / "big.py").write_text(
            "import os\ndef f(item): x = b'x' * item[0]; return item[1] and os._exit(1)"
        )
        runner = make("big:f")
        runner.start([0, 0], str(output))
        worker = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        assert wait(runner).ok
        assert attempt(runner, [worker + 50_000_000, 1], output).peak > worker + 50_000_000
        assert attempt(runner, [worker + 50_000_000, 0], output).ok
        assert attempt(runner, [0, 1], output).peak == 0

    def test_children_count(self, run):
        ended = run("burns_in_child")
        assert ended.cpu >= 0.2
        assert ended.peak >= 90_000_000


def can_clear_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


WORKER = """
import json, os, signal, sys
from hypervisor.runs.functions.client import FunctionRunner
folder, item, output = json.loads(sys.argv[1])
runner = FunctionRunner("work:hangs", folder, dict(os.environ))
runner.start(item, output)
print(runner.pid, flush=True)
signal.pause()
"""


@linux_only
class TestDeathOfTheWorker:
    @pytest.mark.parametrize("how", ["in pure Python", "in C", "in C with the lock"])
    def test_ends_the_interpreter(self, folder, output, how):
        started = Fifo(folder / "fifo")
        arguments = json.dumps([str(folder), [started.path, how], str(output)])
        argv = [sys.executable, "-c", WORKER, arguments]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as worker:
            assert worker.stdout is not None
            runner = int(worker.stdout.readline())
            watched = os.pidfd_open(runner)
            started.wait()
            assert not is_readable(watched, patience=0)
            worker.kill()
            try:
                assert is_readable(watched)
            finally:
                os.close(watched)
                with suppress(ProcessLookupError):  # of the runner's own children it left
                    os.killpg(runner, signal.SIGKILL)

    @pytest.mark.parametrize("how", ["in pure Python", "in C", "with a child"])
    def test_ends_it_even_if_only_the_pipe_tells(self, folder, make, output, how):
        """As where the kernel sends no signal: we stay alive but close the pipe."""
        started = Fifo(folder / "fifo")
        runner = make("hangs")
        runner.start([started.path, how], str(output))
        started.wait()
        watched = os.pidfd_open(runner.pid)
        os.close(runner._pipes.requests)
        runner._pipes = runner._pipes._replace(requests=os.open(os.devnull, os.O_WRONLY))
        assert is_readable(watched)
        os.close(watched)


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (Ended(0, None, 0.0, 0), None),
        (Ended(3, None, 0.0, 0), "exit code 3"),
        (Ended(None, 11, 0.0, 0), "killed by SIGSEGV"),
        (Ended(None, 63, 0.0, 0), "killed by signal 63"),
        (Ended(None, None, 0.0, 0), "exit code unknown"),
        (Ended(0, None, 0.0, 0, error="no result"), "no result"),
    ],
)
def test_the_reason_of_an_end(ended, reason):
    assert ended.reason() == reason
    assert ended.ok is (reason is None)
