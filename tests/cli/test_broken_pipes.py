"""The output of a command is not read: its exit code still shows the outcome."""

import os

import pytest

BAD_ROWS = '{"a": 1}\nno JSON\n'


@pytest.fixture
def hv(project):
    return project


def run_unread(hv, *args, stream, stdin=""):
    """The exit code of a command whose standard output, error or both have no reader."""
    items = hv.folder / "items"
    items.write_text(stdin)
    reading, writing = os.pipe()
    os.close(reading)
    streams = {"stdout": writing, "stderr": writing}
    streams = streams if stream == "both" else {stream: writing}
    with items.open() as file:
        process = hv.start(*args, stdin=file, **streams)
    os.close(writing)
    process.communicate(timeout=120)
    return process.returncode


@pytest.mark.parametrize("stream", ["stdout", "stderr", "both"])
@pytest.mark.parametrize("how", ["--json", "--quiet", "--print", "--tag"])
def test_a_failure_shows_in_the_exit_code_of_a_run(hv, how, stream):
    code = run_unread(hv, "run", how, "--", "false", stream=stream, stdin="1\n2\n")
    assert code == 9


def test_a_long_answer_that_is_not_read_to_its_end(hv):
    items = "".join(f"{number}{'x' * 500}\n" for number in range(100))
    assert run_unread(hv, "run", "--json", "--", "false", stream="stdout", stdin=items) == 9


@pytest.mark.parametrize("stream", ["stderr", "both"])
def test_items_that_were_left_out_show_in_the_exit_code_and_the_others_run(hv, stream):
    args = ("run", "--format", "jsonl", "--", "sh", "-c", "echo {a} >>ran")
    assert run_unread(hv, *args, stream=stream, stdin=BAD_ROWS) == 9
    assert (hv.folder / "ran").read_text() == "1\n"


@pytest.mark.parametrize("stream", ["stderr", "both"])
def test_an_error_shows_in_the_exit_code(hv, stream):
    assert run_unread(hv, "run", "--items", "missing", "--", "true", stream=stream) == 2
    assert run_unread(hv, "show", "missing", stream=stream) == 4
