"""The live view as a person sees it, on terminals of several sizes."""

import os
import re
import signal
import termios
import threading

import pytest

from hypervisor.cli.output import width
from tests.cli.conftest import CONFIG, until

# When asked to end, it waits until that was seen.
WORK = """
trap 'until [ -e seen ]; do sleep 0.05; done; exit 143' TERM
echo "$1: started"
case $1 in *fails*) sleep 0.1; exit 3 ;; *waits*) while [ ! -e open ]; do sleep 0.05; done ;; esac
"""
# One more waits than there are workers: whichever two run, three have ended until it is open.
WAITING = ["waits-\x1b[31ma", "waits-\x1b[31mb", "waits-\x1b[31mc"]
ITEMS = ["pages/one.tif", "pages/fails.tif", "pages/three.tif", *WAITING]


@pytest.fixture
def hv(project):
    (project.folder / "items").write_text("".join(f"{item}\0" for item in ITEMS))
    return project


def start(hv, *options, columns=80, rows=24, **env):
    return hv.terminal(
        "run",
        "--name",
        "demo",
        "--items",
        "items",
        "-0",
        "--workers",
        "2",
        *options,
        "--",
        "sh",
        "-c",
        WORK,
        "sh",
        columns=columns,
        rows=rows,
        **env,
    )


def in_the_middle(text):
    """Three have ended, two are running and have printed something, one is left."""
    return "3/6" in text and text.count(": started") == 2


@pytest.mark.parametrize("columns", [80, 160])
def test_the_picture_fits_and_tells_all(hv, columns):
    terminal = start(hv, columns=columns)
    lines = terminal.wait_for(in_the_middle).splitlines()

    assert max(map(width, lines)) < columns
    failure = next(line for line in lines if line.startswith("✗"))
    assert failure.endswith("  pages/fails.tif: exit code 3")
    bar = next(line for line in lines if "━" in line)
    assert "3/6  50 %" in bar and bar.count("━") >= bar.count("─") - 2
    assert "2 done · 1 failed · 2 running" in lines[lines.index(bar) + (columns == 80)]
    assert any("CPU" in line and "RAM" in line for line in lines)
    rows = [line for line in lines if ": started" in line]
    assert all(line.split()[0].startswith("0:") and " MB  " in line for line in rows)
    ids = {task["title"].replace("\x1b", "\\x1b"): task["id"] for task in hv.tasks("demo")}
    for line in rows:
        title = line.split()[-2].removesuffix(":")
        assert line.endswith(f"  {title}  {title}: started")
        if columns == 160:  # room for the id, for `hv logs` and `hv kill`
            assert f"  {ids[title]}  {title}" in line

    (hv.folder / "open").touch()
    assert terminal.wait() == 9
    after = terminal.screen.text
    assert "✗ 5 done · 1 failed in " in after
    attempts = re.search(r" (\d+) attempts", after)
    assert attempts and int(attempts[1]) >= 6  # more if what was claimed ahead was given back
    assert "━" not in after and after.count(": started") == 1  # the failure's last line
    assert max(map(width, after.splitlines())) <= columns


def test_a_terminal_that_changes_its_size(hv):
    terminal = start(hv, columns=100)
    terminal.wait_for(in_the_middle)
    for columns, rows in ((60, 12), (130, 40), (80, 24)):
        terminal.resize(columns, rows)
        terminal.screen.codes.clear()
        until(lambda: terminal._read(0.05) and terminal.screen.codes, "it is painted anew")
        text = terminal.wait_for(lambda text: in_the_middle(text) and text.count("3/6") == 1)
        assert text.count("exit code 3") == 1 and text.count("batch demo") == 1
        assert max(map(width, text.splitlines())) <= columns
    (hv.folder / "open").touch()
    assert terminal.wait() == 9


def test_a_low_terminal_shows_as_much_as_fits(hv):
    terminal = start(hv, columns=80, rows=6)
    text = terminal.wait_for(lambda text: "3/6" in text and "and 2 more" in text)
    assert ": started" not in text
    (hv.folder / "open").touch()
    assert terminal.wait() == 9


def test_colours_and_cursor_come_and_go(hv):
    terminal = start(hv)
    terminal.wait_for(in_the_middle)
    assert terminal.screen.codes > {"32", "31", "90"}
    assert terminal.screen.modes["25"] is False
    assert not terminal.settings() & termios.ECHO
    terminal.press("\n\nx")  # must leave no trace
    (hv.folder / "open").touch()
    assert terminal.wait() == 9
    assert terminal.screen.modes == {"25": True, "7": True}
    assert terminal.settings() & termios.ECHO
    assert "\nx" not in terminal.screen.text


def test_without_colours(hv):
    terminal = start(hv, NO_COLOR="1")
    terminal.wait_for(in_the_middle)
    (hv.folder / "open").touch()
    terminal.wait()
    assert terminal.screen.codes == set()


def test_a_dumb_terminal_gets_lines(hv):
    (hv.folder / "open").touch()
    terminal = start(hv, TERM="dumb")
    assert terminal.wait() == 9
    assert (terminal.screen.codes, terminal.screen.modes) == (set(), {})
    assert "━" not in terminal.screen.text
    assert "5 done · 1 failed" in terminal.screen.text


def test_ctrl_c_drains_and_says_so_then_stops(hv):
    config = hv.folder / ".hypervisor" / "config.toml"
    config.write_text(CONFIG.replace("grace = 1\n", "grace = 60\n"))
    terminal = start(hv)
    terminal.wait_for(in_the_middle)
    terminal.press("\x03")
    terminal.wait_for("draining: 2 tasks are still running; Ctrl-C again stops them")
    terminal.press("\x03")
    terminal.wait_for("stopping 2; their tasks go back into the queue")
    (hv.folder / "seen").touch()
    assert terminal.wait() == 130
    assert "2 done · 1 failed · 3 not finished" in terminal.screen.text
    assert [task["state"] for task in hv.tasks("demo")].count("active") == 3
    (hv.folder / "open").touch()
    again = start(hv)
    assert again.wait() == 9
    assert "2 already done, skipped; 1 failed before, retrying; 3" in again.screen.text


def test_closing_the_terminal_drains(hv):
    terminal = start(hv)
    terminal.wait_for(in_the_middle)
    hanging = threading.Thread(target=terminal.hang_up)
    hanging.start()
    until(lambda: hv.json("status", "demo")["pauses"], "it drains")
    (hv.folder / "open").touch()
    hanging.join()
    assert terminal.code == 130
    states = [task["state"] for task in hv.tasks("demo") if task["title"] in WAITING]
    assert sorted(states) == ["active", "done", "done"]


def test_suspended_it_gives_the_terminal_back(hv):
    terminal = start(hv)
    terminal.wait_for(in_the_middle)
    terminal.press("\x1a")
    until(lambda: terminal._read(0.05) and terminal.screen.modes["25"], "the cursor is back")
    until(lambda: terminal.settings() & termios.ECHO)
    (hv.folder / "open").touch()
    os.kill(terminal.pid, signal.SIGCONT)
    assert terminal.wait() == 9
    assert "5 done · 1 failed" in terminal.screen.text


def test_told_to_continue_without_reason_it_still_gives_the_terminal_back(hv):
    terminal = start(hv)
    terminal.wait_for(in_the_middle)
    os.kill(terminal.pid, signal.SIGCONT)
    (hv.folder / "open").touch()
    assert terminal.wait() == 9
    assert terminal.screen.modes == {"25": True, "7": True}
    assert terminal.settings() & termios.ECHO


def test_watching_a_batch_from_elsewhere(hv):
    start(hv, "--detach").wait()
    watching = hv.terminal("status", "demo", "--watch", columns=100)
    watching.wait_for(in_the_middle)
    hv.ok("pause", "demo", "--reason", "lunch")
    watching.wait_for("paused: demo (lunch); to continue: hv resume demo")
    (hv.folder / "open").touch()
    until(lambda: "in_progress" not in hv.json("summary", "demo")["states"])
    hv.ok("resume", "demo")
    assert watching.wait() == 0
    assert "5 done · 1 failed" in watching.screen.text

    again = hv.terminal("status", "--all", "--watch")
    again.wait_for("6/6")
    again.press("\x03")
    assert again.wait() == 0


def test_top_takes_the_screen_and_gives_it_back(hv):
    start(hv, "--detach").wait()
    terminal = hv.terminal("top", columns=100, rows=20)
    whole = terminal.wait_for(lambda text: text.count(": started") == 2 and "q: quit" in text)
    lines = whole.splitlines()
    assert terminal.screen.modes["1049"] is True
    assert max(map(width, lines)) < 100 and len(lines) <= 20
    head = next(line for line in lines if "MEMORY" in line)
    assert head.split() == ["AGE", "MEMORY", "TASK", "BATCH", "TITLE", "LAST", "LINE"]
    assert lines[-1] == "q: quit"
    terminal.press("q")
    assert terminal.wait() == 0
    assert terminal.screen.modes["1049"] is False and terminal.screen.text.strip() == ""
    (hv.folder / "open").touch()


def test_output_on_a_terminal_is_harmless(hv):
    evil = r"printf '\033[31mred\033[0m \033]0;title\007\033[2J\033[H\tend\r\n\007bell'"
    hv("run", "--name", "b", "--quiet", "--item", "x", "--", "sh", "-c", evil)
    (task,) = hv.tasks("b")
    terminal = hv.terminal("logs", task["id"])
    assert terminal.wait() == 0
    assert terminal.screen.codes == {"31", "0"}
    assert terminal.screen.text == "red     end\nbell\n"
    raw = hv("logs", task["id"]).out
    assert raw.startswith("\x1b[31mred") and "\x1b[2J" in raw
