"""`hv.map` and `hv.run`: real processes, on both databases."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

import hypervisor
from hypervisor import ItemResult, Limits
from tests.support.python_runs import DEADLINE, opened

MODULE = """
import os, time

def double(value):
    return value * 2

def refuse_odd(number):
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number

def meet(name):
    "The first item waits for the second to have finished."
    if name == "first":
        deadline = time.monotonic() + 60
        while not os.path.exists("second is done") and time.monotonic() < deadline:
            time.sleep(0.01)
    return name

def count(name):
    with open("calls", "a") as file:
        file.write(name + "\\n")
    return name.upper()

class Group:
    @staticmethod
    def negate(number):
        return -number

    def method(self, number):
        return number
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a module, in which we are, and a home of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.chdir(folder)
    (folder / "some_work.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("some_work", None)


@pytest.fixture(params=["sqlite", "postgres"])
def hv(project, request):
    store = str(project / ".hypervisor")
    if request.param == "postgres":
        store = request.getfixturevalue("postgres_url")
    with opened(store) as hv:
        yield hv


@pytest.fixture
def sqlite(project):
    with opened(str(project / ".hypervisor")) as hv:
        yield hv


@pytest.fixture
def work(project):
    return import_module("some_work")


def test_map_returns_what_the_function_returned_for_every_kind_of_item(hv, work):
    values = [1, 2.5, "text", [1, [2]], "text", 1, "1"]
    run = hv.map(work.double, values, workers=2)
    assert run.results() == [2, 5.0, "texttext", [1, [2], 1, [2]], "texttext", 2, "11"]
    assert run.is_finished and len(run) == 7 and run.failed == ()


def test_results_come_as_items_finish_or_in_their_order(hv, work, project):
    run = hv.map(work.meet, ["first", "second"], workers=2, name="meeting")
    seen = []
    for result in run:
        seen.append(result.item)
        (project / f"{result.item} is done").touch()
    assert seen == ["second", "first"]
    again = hv.map(work.meet, ["first", "second"], name="meeting", ordered=True)
    assert [result.item for result in again] == ["first", "second"]


def test_failed_items_are_results_and_an_error_that_names_the_task(hv, work):
    run = hv.map(work.refuse_odd, [2, 3])
    assert run.wait()
    assert {result.item: (result.ok, result.result, result.reason) for result in run} == {
        2: (True, 2, None),
        3: (False, None, "ValueError: 3 is odd"),
    }
    (failed,) = run.failed
    with pytest.raises(hypervisor.TaskFailed, match="3 is odd") as caught:
        run.results()
    assert (caught.value.task, caught.value.item) == (failed.task, 3)
    assert hv.show(failed.task).detail.task.state == "failed"


def test_a_name_keeps_what_is_done_and_no_name_runs_everything(hv, work, project):
    assert hv.map(work.count, ["a", "b"], name="kept").results() == ["A", "B"]
    assert hv.map(work.count, ["b", "c"], name="kept").results() == ["B", "C"]
    assert sorted((project / "calls").read_text().split()) == ["a", "b", "c"]
    assert hv.map(work.count, ["a"]).results() == ["A"]
    assert hv.map(work.count, ["a"]).results() == ["A"]
    assert len((project / "calls").read_text().split()) == 5


def test_run_runs_a_command_for_each_item(hv, project):
    run = hv.run(["sh", "-c", 'echo "<$1>"; test "$1" != bad', "sh", "{}"], ["good", "bad", "$(x)"])
    results = {result.item: result for result in run}
    assert {item: result.state for item, result in results.items()} == {
        "good": "done",
        "bad": "failed",
        "$(x)": "done",
    }
    assert hv.output(results["$(x)"].task) == b"<$(x)>\n"
    assert results["bad"].reason == "exit code 1"


def test_run_takes_rows_paths_and_json_results(sqlite, project):
    rows = [{"name": "a", "size": 3}]
    run = sqlite.run(["echo", '"{name}{size}"'], rows, result="json")
    assert [result.result for result in run] == ["a3"]
    run = sqlite.run("echo {} >here", [Path("x y")], shell=True, retries=1)  # noqa: S604
    assert run.wait(timedelta(seconds=DEADLINE))
    assert (project / "here").read_text() == "x y\n"


def test_waiting_ends_with_its_timeout_and_cancelling_stops_what_runs(hv):
    run = hv.run(["sleep", "{}"], [1000, 2000], workers=1)
    assert run.wait(0) is False and run.wait(timedelta(milliseconds=10)) is False
    assert run.cancel("enough") == 2
    assert {result.state for result in run} == {"cancelled"}
    assert run.cancel() == 0


def test_a_function_that_cannot_be_loaded_is_an_error_not_a_wait_forever(sqlite):
    run = sqlite.map("no_such_module:function", [1])
    with pytest.raises(hypervisor.BatchPaused, match="No module named 'no_such_module'"):
        list(run)


def test_a_function_may_be_named_and_be_of_a_class(sqlite, work):
    assert sqlite.map("some_work:double", [4]).results() == [8]
    assert sqlite.map(work.Group.negate, [4]).results() == [-4]
    assert sqlite.map(len, ["four"]).results() == [4]


def test_no_items_are_not_work(sqlite, work):
    run = sqlite.map(work.double, [])
    assert run.wait(0) and list(run) == run.results() == []
    assert sqlite.launcher.supervisor() is None


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda work: lambda value: value, "is a lambda"),
        (lambda work: functools.partial(work.double), "has no name to import it by"),
        (lambda work: work.Group().method, "is a method of an object"),
        (lambda work: nested(), "is defined inside a function"),
    ],
)
def test_what_other_processes_cannot_import_is_refused(sqlite, work, make, message):
    with pytest.raises(hypervisor.InvalidInput, match=message) as caught:
        sqlite.map(make(work), [1])
    assert "Move it to the top level of a module" in str(caught.value)
    assert sqlite.batches() == ()


def nested():
    def inner(value):
        return value

    return inner


SCRIPT = """
import hypervisor, sys, beside

def own(value):
    return value

with hypervisor.open(sys.argv[1]) as hv:
    for function in (own, beside.work):
        try:
            hv.map(function, [1])
        except hypervisor.InvalidInput as error:
            print(error)
"""


def test_a_script_is_told_where_its_functions_must_be(sqlite, project, tmp_path):
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "script.py").write_text(SCRIPT)
    (scripts / "beside.py").write_text("def work(value):\n    return value\n")
    command = [sys.executable, str(scripts / "script.py"), str(project / ".hypervisor")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    own, beside = done.stdout.splitlines()
    assert own.startswith("own is defined in the script that runs (__main__)")
    assert beside.endswith(f"Pass cwd={str(scripts)!r}, or install the module.")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda hv: hv.run("echo {}", ["a"]), "pass a list of words, or shell=True"),
        (lambda hv: hv.run(["echo", "{x}"], ["a", "b"]), "item 1: .* Nothing was started"),
        (lambda hv: hv.run(["echo"], [""]), "item 1: the item is empty"),
        (lambda hv: hv.run(["echo"], [object()]), "item 1: the item cannot be kept as JSON"),
        (lambda hv: hv.run([], ["a"]), "nothing to run"),
        (lambda hv: hv.run(["echo"], ["a"], cwd="nowhere"), "no such folder: .*nowhere"),
        (lambda hv: hv.map("no colon", ["a"]), "package.module:function"),
        (
            lambda hv: hv.run(
                hypervisor.RunSpec(os.getcwd(), hypervisor.CommandSpec(("echo",))), [], name="x"
            ),
            r"use submit\(spec, tasks, name\)",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_stored(sqlite, call, message):
    with pytest.raises(hypervisor.InvalidInput, match=message):
        call(sqlite)
    assert sqlite.batches() == ()


def test_limits_hold(sqlite):
    run = sqlite.run(["sleep"], [1000], limits=Limits(time=100))
    (result,) = run
    assert isinstance(result, ItemResult) and result.state == "failed"
    assert "time limit" in (result.reason or "") or "100" in (result.reason or "")
