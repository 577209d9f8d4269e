"""The documented exit codes, through the program as it is really started."""

import os
import signal

import apsw
import pytest

from tests.cli.conftest import assert_one_clear_line

GONE = "0q13dmzm50c0.1.abcd"  # a well-formed token of some other store


def test_the_table_of_exit_codes():
    from hypervisor.core import errors

    found = {
        kind.code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.HypervisorError)
    }
    assert found == set(errors.EXIT_CODES)
    assert errors.EXIT_CODES["invalid_input"] == 2
    assert errors.EXIT_NOTHING_TO_CLAIM == 3
    assert errors.EXIT_CODES["not_found"] == errors.EXIT_CODES["ambiguous_id"] == 4
    assert errors.EXIT_CODES["wrong_state"] == errors.EXIT_CODES["dependency_cycle"] == 5
    assert errors.EXIT_CODES["lease_lost"] == 6
    assert {code for kind, code in errors.EXIT_CODES.items() if kind.startswith("store")} == {7}
    assert errors.EXIT_RECEIPTS_BROKEN == 8


@pytest.mark.parametrize(
    "code, args",
    [
        (2, ["nonsense"]),
        (2, ["ls", "--nonsense"]),
        (2, ["show"]),
        (2, ["done", "not a token"]),
        (4, ["show", "zzzzzzzzzzzz"]),
        (4, ["ls", "--batch", "no such batch"]),
        (6, ["done", GONE]),
        (6, ["fail", GONE, "why"]),
        (6, ["heartbeat", GONE]),
        (6, ["release", GONE]),
        (6, ["block", GONE, "why"]),
        (6, ["receipt", "add", GONE, "text"]),
    ],
)
def test_errors_are_one_line_on_stderr(hv, code, args):
    hv.refused(code, *args)


def test_the_same_through_a_fresh_interpreter(hv):
    nothing = hv.exec("claim")
    assert nothing == (3, "", "nothing to claim\n")
    code, out, err = hv.exec("show", "zzzz")
    assert (code, out) == (4, "")
    assert_one_clear_line(err)
    assert hv.exec("ls", "--limit", "x").code == 2
    assert hv.exec("add", "x", "--key", "k").code == 0


@pytest.mark.parametrize("args", [["show", "zzzz"], ["ls", "--limit", "x"], ["lx"]])
def test_with_json_an_error_is_json_too(hv, args):
    import json

    code, out, err = hv(*args, "--json")
    error = json.loads(out)["error"]
    assert set(error) == {"code", "message"} and code in (2, 4)
    assert error["message"] in err


def test_ambiguous_prefixes_name_a_candidate(hv):
    task = hv.add("a", "--batch", "b")
    hv.add("b", "--batch", "c")
    for args in (["show"], ["update", "--title", "x"], ["receipt", "add"], ["release", "--force"]):
        verb, *rest = args
        more = ["text"] if rest == ["add"] else []
        line = hv.refused(4, verb, *rest, task[:4], *more)
        assert task in line and task[:4] in line
    assert "matches several" in hv.refused(4, "events", "--task", task[:4])
    assert "matches several batches" in hv.refused(4, "ls", "--batch", task[:4])


def test_wrong_states_and_cycles(hv):
    a, b = hv.add("a"), hv.add("b")
    hv.ok("update", b, "--after", a)
    line = hv.refused(5, "update", a, "--after", b)
    assert a in line and b in line and "cycle" in line
    hv.ok("done", hv.claim())
    assert "it is done" in hv.refused(5, "cancel", a)
    assert "it is done" in hv.refused(5, "release", "--force", a)
    assert "cannot accept" in hv.refused(5, "update", a, "--accept")
    assert "its dependencies cannot change" in hv.refused(5, "update", a, "--after", "")


def test_a_store_that_cannot_serve(hv, tmp_path):
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to be one\n" * 99)
    foreign = apsw.Connection(str(tmp_path / "foreign.db"))
    foreign.execute("CREATE TABLE mine (x)")
    foreign.close()
    newer = apsw.Connection(str(hv.store))
    newer.pragma("user_version", 9999)
    newer.close()
    for where in ("text.db", "foreign.db", ".hypervisor"):
        path = tmp_path / where
        path = path / "store.db" if path.is_dir() else path
        before = path.read_bytes()
        code, out, err = hv("ls", "--store", where)
        assert (code, out) == (7, ""), err
        assert_one_clear_line(err)
        assert str(path) in err
        assert path.read_bytes() == before


def test_broken_receipts(hv):
    task = hv.add("x", "--batch", "b")
    hv.ok("receipt", "add", task, "one", "two", "three")
    connection = apsw.Connection(str(hv.store))
    connection.execute("UPDATE receipts SET text = 'TWO' WHERE number = 2")
    connection.close()

    code, out, err = hv("receipt", "verify")
    assert (code, out) == (8, "2 receipts in 1 chain: 1 broken\n")
    assert "line 2 was changed" in err and len(err.splitlines()) == 1
    assert hv("receipt", "verify", "b").code == hv("receipt", "verify", "--json").code == 8
    assert hv("doctor").code == 7


def test_ctrl_c_ends_with_130_and_without_a_traceback(hv):
    os.mkfifo(hv.folder / "fifo")
    reading = hv.start("add", "--from", "fifo")
    with open(hv.folder / "fifo", "wb"):  # open once the program has opened its side
        reading.send_signal(signal.SIGINT)
        out, err = reading.communicate(timeout=120)
    assert (reading.returncode, out, err) == (130, "", "")
    assert hv.json("ls") == []
