"""Functions run in real interpreters, which may die of what they run; the worker never does."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

from hypervisor.adapters import function_runner
from hypervisor.adapters.functions import FunctionRunner
from hypervisor.domain.attempt import Ended

PATIENCE = 60_000
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and pidfd")
FUNCTIONS = r"""
    import ctypes, os, signal, subprocess, sys, threading, time

    def same(item):
        return item

    async def later(item):
        import asyncio
        await asyncio.sleep(0)
        return [item, "awaited"]

    async def later_fails(item):
        raise LookupError("not " + item)

    class Shop:
        @staticmethod
        def sell(item):
            return "sold " + item

    def fails(item):
        raise ValueError(item)

    def exits(item):
        sys.exit(item)

    def interrupts(item):
        raise KeyboardInterrupt

    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    def fails_mutely(item):
        raise Mute

    def dies(item):
        print("last words")
        if item == "exit":
            os._exit(3)
        if item == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if item == "segfault":
            ctypes.string_at(0)
        return os.getpid()

    def returns(item):
        return eval(item)

    def speaks(item):
        print("from Python")
        print("to stderr", file=sys.stderr)
        os.write(1, b"from os.write\n")
        subprocess.run(["echo", "from a subprocess"], check=True)
        ctypes.CDLL(None).puts(b"from C")
        ctypes.CDLL(None).fflush(None)
        print("without a line end", end="")

    def closes(item):
        os.closerange(*item)

    def misbehaves(item):
        sys.stdout.close()
        sys.stderr.detach()
        os.chdir("/")

    def says(item):
        print(item)
        return os.getcwd()

    def about(item):
        return {
            "argv": sys.argv,
            "path": sys.path[0],
            "session": os.getsid(0) == os.getpid(),
            "stdin": sys.stdin.read(),
            "mask": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
            "child": signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL,
            "seen": os.environ.get("SEEN"),
            "python": sys.executable,
        }

    def descriptors(item):
        command = ["find", "/proc/self/fd", "-lname", "pipe:*", "-o", "-lname", "*hypervisor*"]
        return subprocess.check_output(command, text=True, close_fds=False).split()

    def forks(item):
        if os.fork() == 0:
            if item == "stays":
                signal.pause()
            return "the child"
        if item == "stays":
            os.kill(os.getpid(), signal.SIGKILL)
        os.wait()
        return "the parent"

    def leaves_a_thread(item):
        threading.Thread(target=time.sleep, args=(3600,)).start()

    def leaves_a_bomb(fuse):
        threading.Thread(target=lambda: (open(fuse).read(), os._exit(9))).start()
        return os.getpid()

    def breaks_protocol(item):
        for fd in range(900, 1024):
            try:
                os.write(fd, b"what?\n")
            except OSError:
                pass

    def allocates(item):
        return len(bytearray(item)) and None

    def burns(item):
        until = time.process_time() + item
        while time.process_time() < until:
            pass
        if item > 0.2:
            os._exit(1)

    def burns_in_child(item):
        code = "x = b'x' * 90_000_000; import time\nwhile time.process_time() < 0.2: pass"
        subprocess.run([sys.executable, "-c", code], check=True)

    def hangs(item):
        path, how = item
        child = subprocess.Popen(["sleep", "3600"]) if how == "with a child" else None
        if how == "in C with the lock":
            ctypes.PyDLL(None).system(f"echo started > {path}; exec sleep 3600".encode())
        with open(path, "w") as fifo:
            fifo.write("started")
        if how in ("in C", "with a child"):
            time.sleep(3600)
        while True:
            pass
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work.py").write_text(textwrap.dedent(FUNCTIONS))
    return tmp_path


@pytest.fixture
def make(folder):
    """Makes runners, by default for functions of the module above; they end with the test."""
    made = []

    def maker(function, env=None, python=None):
        name = function if ":" in function else f"work:{function}"
        made.append(FunctionRunner(name, str(folder), env or plain_environment(), python))
        return made[-1]

    yield maker
    for runner in made:
        runner.stop()


@pytest.fixture
def output(folder):
    return folder / "output.log"


@pytest.fixture
def run(make, output):
    """One attempt from start to end, in an interpreter of its own."""
    return lambda function, item=None: attempt(make(function), item, output)


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def attempt(runner, item, output) -> Ended:
    runner.start(item, str(output))
    return wait(runner)


def wait(runner) -> Ended:
    ended: Ended | None = runner.finish()
    while ended is None:
        assert is_readable(runner.fileno()), "nothing came"
        ended = runner.finish()
    return ended


def is_readable(fd, patience=PATIENCE) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(patience))


class TestOutcome:
    def test_the_return_value_is_the_result(self, run):
        ended = run("same", {"a": [1, 2.5, None, True, "x"]})
        assert ended[:2] == (0, None)
        assert ended.result == {"a": [1, 2.5, None, True, "x"]}
        assert ended.ok
        assert ended.reason() is None

    def test_a_coroutine_is_awaited(self, run):
        assert run("later", 7).result == [7, "awaited"]
        assert run("later_fails", "there").reason() == "LookupError: not there"

    def test_a_function_may_sit_in_a_class(self, run):
        assert run("work:Shop.sell", "bread").result == "sold bread"

    def test_an_exception_fails_the_attempt_and_the_output_has_the_traceback(self, run, output):
        ended = run("fails", "bad row")
        assert ended == Ended(1, None, ended.cpu, ended.peak, None, "ValueError: bad row")
        assert not ended.ok
        printed = output.read_text()
        assert printed.startswith("Traceback (most recent call last):")
        assert "raise ValueError(item)\n" in printed
        assert printed.endswith("ValueError: bad row\n")
        assert "function_runner.py" not in printed

    @pytest.mark.parametrize(
        ("function", "item", "reason"),
        [
            ("exits", None, "SystemExit"),
            ("exits", 0, "SystemExit: 0"),
            ("exits", "no", "SystemExit: no"),
            ("interrupts", None, "KeyboardInterrupt"),
            ("fails_mutely", None, "Mute: (its message cannot be shown)"),
        ],
    )
    def test_what_is_no_plain_exception_fails_just_the_attempt(self, run, function, item, reason):
        ended = run(function, item)
        assert (ended.exit_code, ended.reason()) == (1, reason)

    def test_an_error_is_one_bounded_printable_line(self, run):
        reason = run("fails", "one\n two\0\x1b[1m\ud800").reason()
        assert reason == r"ValueError: one two\x00\x1b[1m\ud800"
        assert len(run("fails", "x" * 5_000_000).reason()) == function_runner.LONGEST_ERROR

    def test_a_failure_does_not_cost_the_interpreter(self, make, output):
        runner = make("exits")
        attempt(runner, "a", output)
        pid = runner.pid
        attempt(runner, "b", output)
        assert runner.pid == pid is not None


class TestResult:
    @pytest.mark.parametrize("text", ["äß漢🙂", "\ud800 alone", "\0\n\x7f", "\u2028"])
    def test_any_text_goes_there_and_back(self, run, text):
        assert run("same", text).result == text

    def test_a_huge_item_arrives_whole(self, make, output):
        runner = make("returns")
        assert attempt(runner, "len('" + "ä" * 10_000_000 + "')", output).result == 10_000_000
        assert attempt(runner, "1", output).result == 1

    @pytest.mark.parametrize("size", [4000, 4096, 5000, 65_536, 999_990])
    def test_every_size_passes(self, run, size):
        assert run("same", "x" * size).result == "x" * size

    @pytest.mark.parametrize(
        ("item", "says"),
        [
            ("{1, 2}", "cannot be kept as JSON: TypeError: Object of type set"),
            ("float('nan')", "cannot be kept as JSON: ValueError: Out of range float"),
            ("[float('inf')]", "cannot be kept as JSON: ValueError: Out of range float"),
            ("(lambda l: l.append(l) or l)([])", "JSON: ValueError: Circular reference"),
            ("same", "Object of type function"),
            ("'x' * 1_000_000", "too large: 1,000,002 bytes as JSON, at most 1,000,000"),
            ("__import__('json').loads('[' * 200 + ']' * 200)", "nested too deeply"),
            ("__import__('json').loads('[' * 900 + ']' * 900)", "nested too deeply"),
        ],
    )
    def test_what_cannot_be_kept_is_a_failure_that_says_so(self, make, output, item, says):
        runner = make("returns")
        ended = attempt(runner, item, output)
        assert ended.exit_code == 1
        assert ended.result is None
        assert says in str(ended.reason())
        assert attempt(runner, "[[1]]", output).result == [[1]]

    def test_many_brackets_are_not_deep(self, run):
        assert run("same", [[]] * 500 + ["[" * 500]).ok


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

    def test_collected_by_somebody_who_did_not_tell(self, make, output):
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
        assert (ended.ok, ended.reason()) == (False, "the interpreter sent no valid answer")
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


class TestLoading:
    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("missing:f", "ModuleNotFoundError: No module named 'missing'"),
            ("work:missing", "AttributeError: module 'work' has no attribute 'missing'"),
            ("work:os", "TypeError: it is of type module, which cannot be called"),
            ("work:", "ValueError: name it as package.module:function"),
            (":same", "ValueError: name it as package.module:function"),
            ("broken:f", "SyntaxError: "),
            ("leaves:f", "SystemExit: 5"),
        ],
    )
    def test_a_function_that_is_not_there(self, make, folder, output, name, says):
        (folder / "broken.py").write_text("def f(:\n")
        (folder / "leaves.py").write_text("import sys; sys.exit(5)")
        runner = make(name)
        ended = attempt(runner, None, output)
        assert ended.exit_code == 1
        assert str(ended.reason()).startswith(f"cannot load {name}: {says}")
        assert runner.load_error == ended.error
        assert runner.pid is None
        assert says.partition(":")[0] in output.read_text()

    def test_a_module_that_kills_the_interpreter(self, make, folder, output):
        (folder / "suicidal.py").write_text("import os; os._exit(4)")
        ended = attempt(make("suicidal:f"), None, output)
        assert ended.reason() == "the interpreter died (exit code 4)"

    def test_what_the_import_prints_goes_to_the_first_output_only(self, make, folder, output):
        (folder / "chatty.py").write_text(
            "import os; print('hello'); os.write(2, b'there\\n')\ndef f(item): print(item)"
        )
        runner = make("chatty:f")
        attempt(runner, "one", output)
        attempt(runner, "two", folder / "second.log")
        assert output.read_text() == "hello\nthere\none\n"
        assert (folder / "second.log").read_text() == "two\n"
        assert runner.load_error is None

    def test_the_folder_comes_first_even_before_our_own_modules(self, make, folder, output):
        (folder / "host.py").write_text("def f(item): return 'the user’s'", encoding="utf-8")
        assert attempt(make("host:f"), None, output).result == "the user’s"

    def test_our_modules_hide_none_of_the_standard_library(self):
        ours = {path.stem for path in Path(function_runner.__file__).parent.glob("*.py")}
        assert not ours & sys.stdlib_module_names

    def test_a_slow_import_does_not_block_the_start(self, make, folder, output):
        os.mkfifo(folder / "gate")
        (folder / "slow.py").write_text("open('gate').read()\ndef f(item): return len(item)")
        runner = make("slow:f")
        runner.start("x" * 16_000_000, str(output))
        assert runner.finish() is None
        (folder / "gate").write_text("")
        assert wait(runner).result == 16_000_000

    def test_no_such_python(self, make, output):
        runner = make("same", python="/nowhere/python")
        files = len(os.listdir("/dev/fd"))
        with pytest.raises(FileNotFoundError):
            runner.start(1, str(output))
        assert runner.pid is None
        assert len(os.listdir("/dev/fd")) == files

    def test_no_such_folder(self, folder, output):
        runner = FunctionRunner("work:same", str(folder / "gone"), dict(os.environ))
        assert "FileNotFoundError" in str(attempt(runner, 1, output).reason())


class TestSurroundings:
    def test_everything_printed_is_in_the_output_whoever_printed_it(self, run, output):
        assert run("speaks").ok
        assert output.read_text().splitlines() == [
            "from Python", "to stderr", "from os.write", "from a subprocess", "from C",
            "without a line end",
        ]  # fmt: skip

    def test_each_attempt_has_its_own_private_output(self, make, folder):
        runner = make("says")
        old = os.umask(0)
        try:
            for number in range(3):
                attempt(runner, f"item {number}", folder / f"{number}.log")
        finally:
            os.umask(old)
        for number in range(3):
            kept = folder / f"{number}.log"
            assert kept.read_text() == f"item {number}\n"
            assert kept.stat().st_mode & 0o777 == 0o600

    def test_an_output_that_cannot_be_opened_fails_the_attempt(self, make, folder, output):
        runner = make("same")
        assert attempt(runner, 1, output).ok
        assert "FileNotFoundError" in str(attempt(runner, 1, folder / "no" / "x.log").reason())
        assert attempt(runner, 1, output).ok
        with pytest.raises(FileNotFoundError):
            make("same").start(1, str(folder / "no" / "x.log"))

    def test_one_item_does_not_spoil_the_streams_and_folder_of_the_next(self, make, folder, output):
        (folder / "both.py").write_text(
            "import work\ndef f(item): return getattr(work, item)(item)"
        )
        runner = make("both:f")
        assert attempt(runner, "misbehaves", output).ok
        pid = runner.pid
        assert attempt(runner, "says", output).result == str(folder)
        assert output.read_text() == "says\n"
        assert runner.pid == pid

    def test_session_signals_stdin_and_environment(self, make, output, folder):
        blocked = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        try:
            ended = attempt(make("about", env={"SEEN": "yes"}), None, output)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        assert ended.result == {
            "argv": [function_runner.__file__],
            "path": str(folder),
            "session": True,
            "stdin": "",
            "mask": [],
            "child": True,
            "seen": "yes",
            "python": sys.executable,
        }

    @linux_only
    def test_children_do_not_inherit_the_way_to_the_worker(self, run):
        ours = inherited_pipes()
        assert set(run("descriptors").result) - ours == {"/proc/self/fd/1"}  # that we read it by

    def test_a_thread_left_behind_does_not_hold_anything_up(self, make, output):
        runner = make("leaves_a_thread")
        assert attempt(runner, 1, output).ok
        assert attempt(runner, 2, output).ok

    def test_a_thousand_items_in_one_interpreter(self, make, output):
        runner = make("same")
        assert attempt(runner, 0, output).ok
        pid, files = runner.pid, len(os.listdir("/dev/fd"))
        for number in range(1000):
            assert attempt(runner, number, output).result == number
        assert runner.pid == pid
        assert len(os.listdir("/dev/fd")) == files


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

    def test_the_peak_of_one_that_died_is_told_only_if_it_is_its_own(self, make, folder, output):
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


def inherited_pipes() -> set[str]:
    """What whoever started the tests has left open for all."""
    command = ["find", "/proc/self/fd", "-lname", "pipe:*"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, close_fds=False)
    return set(run.stdout.split()) - {"/proc/self/fd/1"}


def can_clear_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


class Fifo:
    """A function says that it has started by writing to it."""

    def __init__(self, path) -> None:
        self.path = str(path)
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def wait(self) -> None:
        assert is_readable(self._fd), "the function did not start"
        os.close(self._fd)


WORKER = """
import json, os, signal, sys
from hypervisor.adapters.functions import FunctionRunner
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
        """As where the kernel sends no signal: we live on but let go of the pipe."""
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
        (Ended(None, None, 0.0, 0), "ended unseen"),
        (Ended(0, None, 0.0, 0, error="no result"), "no result"),
    ],
)
def test_the_reason_of_an_end(ended, reason):
    assert ended.reason() == reason
    assert ended.ok is (reason is None)
