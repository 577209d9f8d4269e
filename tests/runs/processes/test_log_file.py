"""The log: whole lines with time, room and task, without secrets, and bounded in size."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (?P<level>\w+) (?P<room>[\w.]+)\[\d+\]"
    r"(?P<about>[^:]*): (?P<message>.*)"
)
PROGRAM = """
import logging, sys
from hypervisor.runs.processes import log_file
log_file.configure()
logger = logging.getLogger("hypervisor.runs")
"""


@pytest.fixture
def run(tmp_path):
    """Run a program that logs to a file; returns the file."""

    def run(program: str, **env: str):
        log = tmp_path / "supervisor.log"
        with open(log, "ab") as file:
            subprocess.run(
                [sys.executable, "-I", "-c", PROGRAM + program],
                stderr=file,
                env={**os.environ, **env},
                timeout=180,
                check=False,
            )
        return log

    return run


def parsed(log):
    return [LINE.fullmatch(line) for line in log.read_text().splitlines()]


def test_a_line_names_the_level_the_room_and_what_it_is_about(run):
    program = """
logger.debug("not shown")
logger.warning("first", extra={"task": "t1"})
log_file.bind(batch="b1")
logger.info("second")
"""
    first, second = parsed(run(program))
    assert first.groupdict() == {
        "level": "WARNING",
        "room": "hypervisor.runs",
        "about": " task=t1",
        "message": "first",
    }
    assert (second["level"], second["about"]) == ("INFO", " batch=b1")


@pytest.mark.parametrize(("level", "lines"), [("debug", 2), ("info", 1), ("error", 0), ("loud", 1)])
def test_the_variable_sets_the_level(run, level, lines):
    log = run("logger.debug('a'); logger.info('b')", HV_LOG_LEVEL=level)
    assert len(parsed(log)) == lines


def test_an_uncaught_exception_comes_with_its_traceback(run):
    log = run("raise ValueError('on purpose')").read_text()
    assert "CRITICAL hypervisor[" in log and "Traceback" in log and "on purpose" in log


def test_so_does_one_of_a_thread(run):
    program = """
import threading
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
"""
    assert "ZeroDivisionError" in run(program).read_text()


def test_a_message_is_one_line_and_credentials_are_left_out(run):
    program = r"""
logger.error("one\ntwo \x1b[31m postgresql://ann:s3cret@host/db")
try:
    raise OSError("postgresql://ann:s3cret@host/db")
except OSError:
    logger.exception("it failed")
"""
    text = run(program).read_text()
    assert "s3cret" not in text and "postgresql://…@host/db" in text
    assert r"one\x0atwo \x1b[31m" in text.splitlines()[0]


def test_a_large_log_is_moved_away_and_all_follow(run, tmp_path):
    program = """
import subprocess
log_file.MAX_SIZE = 1000
other = subprocess.Popen(
    [sys.executable, "-I", "-c", PROGRAM_TEXT], stdin=subprocess.PIPE
)
for number in range(30):
    logger.info("line %d", number)
other.communicate(b"go")
"""
    follow = PROGRAM + "sys.stdin.read(); logger.info('the other')"
    log = run(f"PROGRAM_TEXT = {follow!r}\n" + program)
    old = tmp_path / "supervisor.log.old"
    assert old.stat().st_size < 1200
    assert "line 29" in log.read_text() and "the other" in log.read_text()


def test_what_is_not_a_log_file_is_left_alone(tmp_path):
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM + "log_file.MAX_SIZE = 0\nlogger.info('here')"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=180,
        check=True,
    )
    assert "here" in done.stderr
