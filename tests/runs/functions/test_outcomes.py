"""Functions run in real interpreters: what they return, what they see, what they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hypervisor.queue.attempt import Ended
from hypervisor.runs.functions import interpreter
from hypervisor.runs.functions.client import FunctionRunner
from tests.support.functions import (
    attempt,
    linux_only,
    wait,
)


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
    def test_what_is_not_a_plain_exception_fails_just_the_attempt(
        self, run, function, item, reason
    ):
        ended = run(function, item)
        assert (ended.exit_code, ended.reason()) == (1, reason)

    def test_an_error_is_one_bounded_printable_line(self, run):
        reason = run("fails", "one\n two\0\x1b[1m\ud800").reason()
        assert reason == r"ValueError: one two\x00\x1b[1m\ud800"
        assert len(run("fails", "x" * 5_000_000).reason()) == interpreter.MAX_ERROR_LENGTH

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
            ("'x' * 1_000_000", "too large: 1,000,002 bytes as JSON (maximum 1,000,000)"),
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


class TestLoading:
    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("missing:f", "ModuleNotFoundError: No module named 'missing'"),
            ("work:missing", "AttributeError: module 'work' has no attribute 'missing'"),
            ("work:os", "TypeError: it is of type module, which is not callable"),
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
        ours = {path.stem for path in Path(interpreter.__file__).parent.glob("*.py")}
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
    def test_everything_printed_is_in_the_output_whatever_printed_it(self, run, output):
        assert run("speaks").ok
        assert output.read_text().splitlines() == [
            "from Python",
            "to stderr",
            "from os.write",
            "from a subprocess",
            "from C",
            "without a line end",
        ]

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
            "argv": [interpreter.__file__],
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


def inherited_pipes() -> set[str]:
    """Descriptors that the tests' own parent has left open for all children."""
    command = ["find", "/proc/self/fd", "-lname", "pipe:*"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, close_fds=False)
    return set(run.stdout.split()) - {"/proc/self/fd/1"}
