"""Commands are started as a shell would, but without one, and kept apart from their worker."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import select
import signal
import subprocess
import sys
import textwrap

import pytest

from hypervisor.queue.attempt import Ended
from hypervisor.runs.processes.commands import HOST_TROUBLE, Command, Commands

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs pidfd and /proc")
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "MARK": "ü"}
PATIENCE = 60_000


@pytest.fixture
def commands():
    return Commands()


@pytest.fixture
def output(tmp_path):
    return str(tmp_path / "1.log")


@pytest.fixture
def run(commands, output):
    """Runs a command to its end; returns how it ended and what it printed."""

    def runner(*argv, env=ENV, stdin=None):
        started = commands.start(argv, env, output, stdin)
        ended = started.finish() if isinstance(started, Command) else started
        return ended, said(output)

    return runner


def said(output):
    if not os.path.exists(output):
        return None
    with open(output, "rb") as file:
        return file.read()


def script(path, text, mode=0o755):
    path.write_text(textwrap.dedent(text))
    path.chmod(mode)
    return str(path)


def python(text):
    return sys.executable, "-I", "-c", textwrap.dedent(text)


def inherited(handle):
    try:
        return os.get_inheritable(handle)
    except OSError:
        return False


def open_files():
    return len(os.listdir("/proc/self/fd"))


# How it ends


@pytest.mark.parametrize("code", [0, 1, 42, 126, 127, 255])
def test_an_exit_code_is_reported_as_it_is(run, code):
    ended, _ = run("sh", "-c", f"exit {code}")
    assert (ended.exit_code, ended.signal, ended.ok) == (code, None, code == 0)
    assert ended.reason() == (None if code == 0 else f"exit code {code}")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, 40])
def test_an_end_by_a_signal_is_reported_as_one(run, number):
    ended, _ = run("sh", "-c", f"kill -{int(number)} $$")
    assert (ended.exit_code, ended.signal, ended.ok) == (None, number, False)
    name = number.name if isinstance(number, signal.Signals) else str(number)
    assert name in (ended.reason() or "")


def test_what_it_cost_is_reported(run):
    ended, _ = run(*python("x = bytearray(80 << 20); x[::4096] = b'x' * (80 << 8)"))
    assert ended.ok and ended.peak >= 80 << 20
    spins = "import time\nwhile time.process_time() < 0.2: pass"
    ended, _ = run(*python(spins))
    assert ended.ok and 0.2 <= ended.cpu < 60


def test_its_end_can_be_waited_for(commands, output):
    command = commands.start(["cat"], ENV, output, None)
    assert isinstance(command, Command)
    assert select.select([command], [], [], PATIENCE / 1000)[0] == [command]
    assert command.finish().ok
    command.close()
    command.close()


# What cannot be started


def test_a_program_that_is_not_there(run):
    ended, text = run("no-such-program-xyz", "arg")
    assert ended == Ended(127, None, 0.0, 0, error="command not found: no-such-program-xyz")
    assert text is None and ended.reason() == "command not found: no-such-program-xyz"


@pytest.mark.parametrize("name", ["/no/such/folder/program", "./nothing-here", ""])
def test_a_path_where_nothing_is(run, name):
    assert run(name)[0].exit_code == 127


def test_a_file_that_may_not_be_executed(run, tmp_path):
    path = script(tmp_path / "plain.txt", "echo no\n", mode=0o644)
    ended, text = run(path)
    assert ended.exit_code == 126 and path in str(ended.error) and not text


def test_a_program_on_the_path_that_may_not_be_executed(run, tmp_path):
    script(tmp_path / "tool", "echo no\n", mode=0o644)
    ended, _ = run("tool", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert ended.exit_code == 126


def test_a_folder_is_not_a_program(run, tmp_path):
    assert run(str(tmp_path))[0].exit_code == 126


def test_an_interpreter_that_is_not_there(run, tmp_path):
    ended, _ = run(script(tmp_path / "odd", "#!/no/such/interpreter\n"))
    assert ended.exit_code in (126, 127) and "cannot start" in str(ended.error)


def test_too_long_a_command_line_is_the_commands_fault(run):
    ended, _ = run("true", "x" * (8 << 20))
    assert ended.exit_code == 126 and "too long" in str(ended.error)


def test_programs_are_looked_for_on_the_path_of_the_attempt(run, tmp_path):
    script(tmp_path / "own-tool", "#!/bin/sh\necho own\n")
    assert run("own-tool")[0].exit_code == 127
    assert Commands()._find("own-tool", {"PATH": str(tmp_path)}) == str(tmp_path / "own-tool")


def test_a_program_that_comes_later_is_found(run, tmp_path):
    """An earlier task may create the program that a later one runs."""
    path = tmp_path / "late-tool"
    assert run(str(path))[0].exit_code == 127
    script(path, "#!/bin/sh\necho here now\n")
    assert run(str(path))[1] == b"here now\n"


def test_a_program_that_went_away_is_not_found(run, tmp_path):
    path = script(tmp_path / "tool", "#!/bin/sh\necho once\n")
    assert run(path)[0].ok
    os.unlink(path)
    assert run(path)[0].exit_code == 127


@pytest.mark.parametrize("number", HOST_TROUBLE)
def test_the_hosts_trouble_is_not_the_commands(commands, output, monkeypatch, number):
    def fails(*_, **__):
        raise OSError(number, os.strerror(number))

    before = open_files()
    monkeypatch.setattr(os, "posix_spawn", fails)
    with pytest.raises(OSError, match=os.strerror(number)):
        commands.start(["true"], ENV, output, b"item")
    assert open_files() == before


def test_an_output_that_cannot_be_written_is_not_the_commands_fault(commands, tmp_path):
    with pytest.raises(FileNotFoundError):
        commands.start(["true"], ENV, str(tmp_path / "gone" / "1.log"), None)
    (tmp_path / "1.log").mkdir()
    with pytest.raises(IsADirectoryError):
        commands.start(["true"], ENV, str(tmp_path / "1.log"), None)


def test_a_full_disk_is_the_hosts_trouble(commands, tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=1", "tmpfs", str(tmp_path)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    try:
        with pytest.raises(OSError) as caught:
            commands.start(["true"], ENV, str(tmp_path / "1.log"), None)
        assert caught.value.errno == errno.ENOSPC
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_without_free_file_handles_nothing_is_started(commands, output):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, hard))
    try:
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        with pytest.raises(OSError) as caught:
            commands.start(["true"], ENV, output, b"item")
    finally:
        for handle in held:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.errno == errno.EMFILE


def test_a_command_that_cannot_be_watched_does_not_stay_behind(commands, output, monkeypatch):
    """It would keep running unnoticed while its task is claimed again."""
    pids: list[int] = []

    def fails(pid, *_):
        pids.append(pid)
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(os, "pidfd_open", fails)
    with pytest.raises(OSError, match="too many"):
        commands.start(["sleep", "600"], ENV, output, None)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


# Scripts


def test_a_script_without_a_first_line_runs_through_the_shell(run, tmp_path):
    path = script(tmp_path / "my script", 'echo "$# $1|$2" "$MARK"\nexit 3\n')
    ended, text = run(path, "a b", "*")
    assert (ended.exit_code, text.decode()) == (3, "2 a b|* ü\n")


def test_a_script_on_the_path_runs_too(run, tmp_path):
    script(tmp_path / "tool", "echo tool $1\n")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert run("tool", "x", env=env)[1] == b"tool x\n"


def test_no_shell_ever_sees_the_words(run):
    words = ["$HOME", "`id`", "a;b", "*", "", "-n", "ü\n\\", "'\""]
    ended, text = run(*python("import sys; print(sys.argv[1:])"), *words)
    assert ended.ok and text.decode().strip() == repr(words)


# What it reads and writes


def test_standard_input_is_closed(run):
    assert run("sh", "-c", "wc -c; read x || echo end")[1].split() == [b"0", b"end"]


@pytest.mark.parametrize(
    "item", [b"", b"one line", b"two\nlines\n", b"\0\xff\x00bin", bytes(range(256)) * 20_480]
)
def test_the_item_on_standard_input(run, item):
    ended, text = run("sha256sum", stdin=item)
    assert ended.ok and text.split()[0].decode() == hashlib.sha256(item).hexdigest()


def test_a_command_need_not_read_its_input(run):
    ended, _ = run("true", stdin=b"x" * (5 << 20))
    assert ended.ok


def test_output_and_errors_are_kept_together_in_their_order(run, output):
    ended, text = run(*python("import os\nfor n in range(200): os.write(1 + n % 2, b'%d\\n' % n)"))
    assert ended.ok and text == b"".join(b"%d\n" % n for n in range(200))
    assert os.stat(output).st_mode & 0o777 == 0o600


def test_several_processes_of_one_command_do_not_overwrite_each_other(run):
    line = "for i in $(seq 100); do echo $1$i; done"
    ended, text = run("sh", "-c", f"f() {{ {line}; }}; f a & f b & f c & wait")
    assert ended.ok and len(text.split()) == len(set(text.split())) == 300


def test_nothing_else_is_open_in_it(run, tmp_path):
    """Not the store, not its lock, not another attempt's output; only what a shell that
    started us has left open for all that we start."""
    handles = [os.open(tmp_path, os.O_RDONLY) for _ in range(5)]
    ours = [int(handle) for handle in os.listdir("/proc/self/fd")]
    try:
        passed_on = {fd for fd in ours if inherited(fd)}
        ended, text = run(*python("import os; print(*os.listdir('/proc/self/fd'))"))
    finally:
        for handle in handles:
            os.close(handle)
    assert ended.ok
    assert len(set(map(int, text.split())) - passed_on - {0, 1, 2}) == 1, "the listing itself"


def test_the_worker_keeps_no_handle_of_what_has_ended(run, tmp_path):
    before = open_files()
    for n in range(20):
        run("true", stdin=b"x")
        run("no-such-program-xyz")
        run(str(tmp_path), stdin=b"x")
        run(script(tmp_path / f"s{n}", "exit 1\n"), stdin=b"x")
    assert open_files() == before


# How it is kept apart


def test_it_leads_a_session_and_a_group_of_its_own(run):
    ended, text = run(*python("import os; print(os.getpid(), os.getsid(0), os.getpgid(0))"))
    pid, session, group = text.split()
    assert ended.ok and pid == session == group
    assert int(session) != os.getsid(0)


def test_it_has_just_the_environment_it_is_given(run):
    env = {**ENV, "EMPTY": "", "ODD": "a=b\nc", "HYPERVISOR_X": "1"}
    ended, text = run("/usr/bin/env", "-0", env=env)
    assert ended.ok
    assert dict(e.split("=", 1) for e in text.decode().split("\0") if e) == env


def test_it_inherits_no_handling_of_signals(run):
    """A worker catches, ignores and blocks some; Python itself ignores a few."""
    ignored = [signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP, signal.SIGQUIT]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM])
    try:
        ended, text = run("cat", "/proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1, signal.SIGTERM])
        for number, handler in before.items():
            signal.signal(number, handler)
    masks = dict(line.split(":\t") for line in text.decode().splitlines() if ":\t" in line)
    assert ended.ok
    librarys_own = 1 << 31 | 1 << 32  # the C library ignores two that nobody may use
    assert int(masks["SigIgn"], 16) & ~librarys_own == 0
    assert int(masks["SigBlk"], 16) == int(masks["SigCgt"], 16) == 0
