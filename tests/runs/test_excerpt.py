"""Which lines of an output explain a failure."""

import pytest

from hypervisor.runs.outputs.excerpt import excerpt


def text(*lines):
    return "".join(f"{line}\n" for line in lines).encode()


def test_the_last_lines_end_with_the_message():
    assert excerpt(text(*"abcdef"), False, 3) == (("d", "e", "f"), "f")
    assert excerpt(text("a", "", "ValueError: bad", " "), False, 3).message == "ValueError: bad"
    assert excerpt(b"", False, 3) == ((), "")


def test_a_message_above_the_last_lines_is_shown_with_what_led_to_it():
    rows = [f"row {n}" for n in range(50)]
    end = text("start", "opening x", "cc: fatal: no space", *rows)
    lines = ("start", "opening x", "cc: fatal: no space", "…", "row 49")
    assert excerpt(end, False, 5) == (lines, "cc: fatal: no space")


@pytest.mark.parametrize(
    "line",
    [
        "KeyError: 'x'",
        "sh: 1: foo: not found",
        "curl: (6) Could not resolve host",
        "make: *** [all] Error 1",
        "error[E0308]: mismatched types",
        "cat: x: No such file or directory",
        "bash: ./x: Permission denied",
        "thread 'main' panicked at src/main.rs:2",
    ],
)
def test_messages(line):
    assert excerpt(text(line, *"abcdefgh"), False, 5).message == line


@pytest.mark.parametrize("line", ["0 errors", "error: 0", "4 passed, 0 failed"])
def test_lines_that_are_no_messages(line):
    assert excerpt(text(line, *"abcdefgh"), False, 5).message == "h"


def test_the_first_line_of_a_cut_output_is_left_out_unless_it_is_the_only_one():
    assert excerpt(b"half a line\nwhole\n", True, 5).lines == ("whole",)
    assert excerpt(b"half a line", True, 5).lines == ("half a line",)


def test_progress_bars_and_colours():
    end = b"10 %\r100 %\r\n\x1b[31mTypeError: no\x1b[0m\n"
    assert excerpt(end, False, 5).lines == ("10 %", "100 %", "TypeError: no")
