"""The result of a failed run: the last lines, with identical failures grouped."""

import sys

import pytest

from tests.cli.running import run

MANY = """
case $1 in
    odd*) echo "$1: could not open database" >&2; exit 2 ;;
    long) seq 20; printf '\\033[31mTraceback\\033[0m\\033[2J\\n\\nValueError: bad\\n' >&2; exit 1 ;;
esac
"""


@pytest.fixture
def hv(project):
    return project


def test_the_last_lines_of_a_failure_are_shown(hv):
    told = run(hv, "-q", "--name", "b", "--", "sh", "-c", MANY, "sh", items=["long"], code=9)
    _, _, after = told.partition("long: exit code 1\n")
    shown = [line.strip() for line in after.partition("\n\n")[0].splitlines()]
    assert shown == ["18", "19", "20", "Traceback", "ValueError: bad"]


LATE = """
import sys
print("reading", sys.argv[1])
print("could not open database", file=sys.stderr)
for n in range(300):
    print("row", n)
sys.exit(2)
"""


def test_the_message_is_shown_though_much_was_printed_below_it(hv):
    """Python writes its standard output when it exits, after the message on standard error."""
    command = ("-q", "--name", "b", "--", sys.executable, "-c", LATE)
    told = run(hv, *command, items=["a"], code=9)
    shown = [line.strip() for line in told.partition("exit code 2\n")[2].splitlines()]
    assert shown[:3] == ["could not open database", "…", "row 299"]
    told = run(hv, *command, items=["a", "b"], code=9)
    assert "✗ 2 × exit code 2: could not open database" in told


def test_identical_failures_are_one(hv):
    items = [*(f"odd{n}" for n in range(17)), "long"]
    told = run(hv, "-q", "--name", "b", "--", "sh", "-c", MANY, "sh", items=items, code=9)
    head, _, titles = told.partition("✗ 17 × exit code 2: {}: could not open database\n")
    assert "exit code 2" not in head and "and 12 more\n" in titles.partition("long")[0]
    assert titles.count("could not open database") == 0


def test_identical_failures_are_listed_in_the_order_of_the_items(hv):
    command = ["sh", "-c", 'test "$1" = b || sleep 0.5; exit 1', "sh"]
    told = run(hv, "-q", "-j", "2", "--name", "b", "--", *command, items=["a", "b"], code=9)
    assert "✗ 2 × exit code 1\n      a, b\n" in told, "b fails first"


def test_what_was_printed_above_is_not_shown_again(hv):
    command = ["--print", "-q", "--name", "b", "--", "sh", "-c", MANY, "sh"]
    done = hv("run", *command, stdin="long\n")
    assert "ValueError: bad" in done.out and "ValueError" not in done.err


def test_many_different_failures_are_listed_up_to_a_number(hv):
    told = run(
        hv, "-q", "--name", "b", "--", "sh", "-c", "exit $1", "sh", items=range(1, 15), code=9
    )
    assert told.count(": exit code") == 10
    assert "and 4 more: hv ls --state failed --batch b" in told
