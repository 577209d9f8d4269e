"""Pipes, terminals, colors and closed streams."""

import json
import os
import pty
import select
import signal
import subprocess

import pytest

from tests.cli.conftest import PROGRAM


def on_a_terminal(hv, *args, columns=80, **env):
    """What a person sees: the program on a terminal of that width."""
    leader, follower = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *args],
        cwd=hv.folder,
        env={**hv.env, **env},
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    seen = b""
    while select.select([leader], [], [], 180)[0]:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other side has been closed
            break
        if not piece:
            break
        seen += piece
    os.close(leader)
    assert process.wait(120) is not None
    return seen.decode().replace("\r\n", "\n")


@pytest.fixture
def furnished(hv):
    hv.add("Fix the login page", "--priority", "high")
    hv.add("A title that is much too long " * 10, "--type", "a-type-of-an-unusual-length")
    hv.add(
        "日本語のタイトルを直す、とても長いタイトルで端末の幅を超えてしまう 👩‍👩‍👧",
        "--body",
        "b\x1b[31m\nc",
    )
    return hv


@pytest.mark.parametrize("columns", [80, 160])
def test_a_list_stays_on_its_lines(furnished, columns):
    from hypervisor.cli.output import width

    lines = on_a_terminal(furnished, "ls", columns=columns, NO_COLOR="1").splitlines()

    assert len(lines) == 4
    assert lines[0].split() == ["ID", "STATE", "PRIORITY", "TYPE", "TITLE"]
    assert max(map(width, lines)) <= columns
    starts = {width(line[: line.rindex("  ")]) for line in lines[:1]}
    for line, title in zip(lines[1:], ("日本", "A title", "Fix"), strict=True):
        assert width(line[: line.index(title)]) - 2 in starts
    assert lines[2].endswith("…")


def test_colours_are_for_terminals_only(furnished):
    assert "\033[36m" in on_a_terminal(furnished, "ls")
    assert "\033" not in on_a_terminal(furnished, "ls", NO_COLOR="1")
    assert "\033" not in furnished.ok("ls")
    assert "\033" not in furnished.ok("stats") and "\033" not in furnished.ok("doctor")


def test_text_for_people_has_no_raw_control_characters(furnished):
    task = furnished.ok("ls", "--ids", "--limit", "1").strip()
    shown = on_a_terminal(furnished, "show", task, NO_COLOR="1")
    assert "b\\x1b[31m\n" in shown and "\033" not in shown
    claimed = on_a_terminal(furnished, "claim", "--limit", "3", NO_COLOR="1")
    assert "b\\x1b[31m\n" in claimed and "\033" not in claimed


def test_help_fits_a_narrow_terminal(bare):
    for args in (["--help"], ["add", "--help"], ["ls", "--help"]):
        seen = on_a_terminal(bare, *args, columns=80).split("examples:")[0]
        assert max(map(len, seen.splitlines())) <= 80


@pytest.mark.parametrize("command", [["ls"], ["events"], ["--help"], ["completion", "bash"]])
def test_a_reader_that_has_seen_enough_is_not_an_error(hv, command):
    rows = "".join(json.dumps({"title": "x" * 1900}) + "\n" for _ in range(40))
    hv.ok("add", "--from", "-", "--format", "jsonl", stdin=rows)
    reading, writing = os.pipe()
    os.close(reading)
    process = hv.start(*command, stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_an_answer_that_cannot_be_written_is_one_line(hv):
    hv.add()
    with open("/dev/full", "w") as full:
        process = hv.start("ls", stdout=full)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err == "hv: cannot write the output: No space left on device.\n"


def test_closed_streams_do_no_harm(hv):
    hv.add()
    program = (
        " ".join(f"'{word}'" for word in PROGRAM[:3]) + f' "{PROGRAM[3].replace(chr(34), chr(39))}"'
    )
    for redirection in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
        done = subprocess.run(
            ["sh", "-c", f"{program} add x {redirection}"],
            cwd=hv.folder,
            env=hv.env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert len(hv.ok("ls", "--ids").split()) == 5
    assert all(check["ok"] for check in hv.json("doctor") if check["name"] == "integrity")


def test_follow_delivers_while_others_write(hv):
    following = hv.start("events", "--follow", "--json")
    try:
        for n in range(3):
            task = hv.add(f"task {n}")
            event = json.loads(following.stdout.readline())
            assert (event["kind"], event["task"]) == ("add", task)
    finally:
        following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=120)
    assert (following.returncode, out, err) == (130, "", "")


def test_follow_ends_by_itself_at_its_limit(hv):
    following = hv.start("events", "--follow", "--limit", "2")
    hv.add("a"), hv.add("b"), hv.add("c")
    out, err = following.communicate(timeout=120)
    assert (following.returncode, err, len(out.splitlines())) == (0, "", 2)


def test_no_python_settings_of_the_caller_leak_in(hv):
    (hv.folder / "json.py").write_text("raise SystemExit('shadowed')\n")
    assert hv.exec("ls", "--json", PYTHONPATH=str(hv.folder)) == (0, "[]\n", "")


def test_an_unexpected_error_is_one_line_too(hv, monkeypatch):
    def broken(*_args, **_more):
        raise RuntimeError("two\nlines \x1b[31m")

    monkeypatch.setattr("hypervisor.cli.commands.ls.list_tasks", broken)
    code, out, err = hv("ls")
    assert (code, out) == (1, "")
    assert err == (
        "hv: unexpected RuntimeError: two\\nlines \\x1b[31m. Set HV_DEBUG=1 to see the traceback.\n"
    )
    assert "Traceback" in hv("ls", HV_DEBUG="1").err


def test_a_list_that_is_empty_or_cut_says_so_on_a_terminal_only(hv):
    assert on_a_terminal(hv, "ls") == "no tasks\n"
    first, second = hv.add("a"), hv.add("b")
    assert "older ones" not in on_a_terminal(hv, "ls")
    note = f"the newest 1; for older ones: hv ls --before {second}"
    assert note in on_a_terminal(hv, "ls", "--limit", "1")
    assert hv.ok("ls", "--limit", "1", "--ids") == f"{second}\n"
    assert hv.ok("ls", "--before", second, "--ids") == f"{first}\n"


def test_status_and_lists_use_the_same_names_of_states(hv):
    for title in ("blocked", "ready", "claimed", "inbox"):
        hv.add(title, *(["--inbox"] if title == "inbox" else []))
    hv.ok("block", hv.claim(), "why")
    hv.add("later", "--in", "2h")
    states = "0 done · 1 blocked · 1 inbox · 1 waiting · 2 ready"
    assert states in hv.ok("status")


def test_several_tasks_are_counted_in_one_line(hv):
    hv.add("a", "--batch", "b")
    hv.add("c", "--batch", "b")
    assert on_a_terminal(hv, "cancel", "b") == "2 tasks: 2 cancelled\n"
    assert on_a_terminal(hv, "retry", "--state", "cancelled") == "2 tasks: 2 ready\n"


def test_changing_commands_confirm_in_one_line_on_a_terminal_only(hv):
    """Piped or with -q, nothing is printed: a script has the exit code and --json."""
    task, other = hv.add("a", "--batch", "b"), hv.add("c", "--batch", "b")
    changes = [
        (("pause", "b"), "batch b paused; running attempts will finish"),
        (("pause", "b"), "batch b is already paused"),
        (("scale", "2", "b"), "batch b: at most 2 workers"),
        (("update", task, "--title", "x"), f"{task} ready"),
        (("cancel", task), f"{task} cancelled"),
        (("retry", task), f"{task} ready"),
        (("kill", "b"), "no tasks match; nothing was changed"),
        (("resume", "b"), "batch b resumed"),
        (("cancel", other), f"{other} cancelled"),
        (("fail", "TOKEN", "why"), f"{task} failed"),
        (("batches", "archive", "b"), "b archived"),
        (("batches", "unarchive", "b"), "b no longer archived"),
    ]
    for args, line in changes:
        if "TOKEN" in args:
            args = tuple(hv.claim("--batch", "b") if arg == "TOKEN" else arg for arg in args)
        assert on_a_terminal(hv, *args, columns=120) == f"{line}\n", args
    hv.ok("retry", task)
    again = [args for args, _ in changes[:8]] + [args for args, _ in changes[-2:]]
    for args in again:
        assert hv.ok(*args) == "", args
        if args[0] not in ("cancel", "retry"):  # those cannot be done twice
            assert on_a_terminal(hv, *args, "-q") == "", args
        if args[0] == "resume":
            hv.ok("cancel", task)
