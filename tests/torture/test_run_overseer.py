"""Runaways are stopped on evidence within their limit; healthy neighbors are left alone."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from hypervisor.queue.task import NewTask
from tests.support.specs import changed, run_spec
from tests.support.ungoverned import UNGOVERNED
from tests.torture.fleet import kill, wait_for

SLACK = 50.0  # seconds: some to look, some to end what will not, and the machine may be slow
HEALTHY = 20
# Each runaway says when it reached its limit. Nothing runs for more than a minute or two.
BEHAVE = r"""
import os, sys, time
began = time.monotonic()
def say(name):
    with open(f"{name}.reached", "w") as file:
        file.write(str(time.time()))
def endless():
    while time.monotonic() < began + 60:
        pass
def hog():
    held = []
    while sum(map(len, held)) < 1 << 30:
        held.append(bytearray(os.urandom(1 << 20)) * 20)
        if len(held) == 10:
            say("hog")
        time.sleep(0.05)
    time.sleep(60)
def flood():
    for piece in range(4000):
        os.write(1, b"x" * 99_999 + b"\n")
        if piece == 52:
            say("flood")
        time.sleep(0.01)
def hang():
    say("hang")
    time.sleep(60)
def busy():
    while time.monotonic() < began + 6:
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        time.sleep(0.3)
def writing():
    with open("written", "w") as file:
        while time.monotonic() < began + 6:
            print("still here", file=file, flush=True)
            time.sleep(0.5)
globals()[sys.argv[1]]()
"""
CHATTY = 'for n in 1 2 3 4 5; do echo "$1 $n"; sleep 1; done'


@pytest.fixture
def behave(project):
    (project.folder / "behave.py").write_text(BEHAVE)
    (project.folder / "chatty.sh").write_text(CHATTY)
    (project.folder / "one.sh").write_text(
        'case $1 in chatty*) exec sh chatty.sh "$1";; esac\n'
        f'exec "{sys.executable}" -S behave.py $1'
    )
    return ("sh", "one.sh", "{}")


def test_runaways_are_stopped_and_neighbours_are_not(project, behave):
    runaways = {"endless": "time", "hog": "memory", "flood": "output", "hang": "silence"}
    healthy = ["busy", "writing", *(f"chatty{n}" for n in range(HEALTHY - 2))]
    limits = ("--timeout", "16s", "--memory", "200M", "--max-output", "5M", "--silence", "4s")
    ended = project.run(
        *limits,
        "--workers",
        "24",
        "--claim",
        "1",
        "--name",
        "mixed",
        "--",
        *behave,
        items=[*runaways, *healthy],
        seconds=180,
    )
    assert ended.code == 9, (ended, project.story())

    tasks = reports(project, "mixed")
    assert {name: tasks[name].state for name in healthy} == dict.fromkeys(healthy, "done")
    assert {name: tasks[name].state for name in runaways} == dict.fromkeys(runaways, "failed")
    findings = findings_by_title(project)
    assert set(findings) == set(runaways), "the overseer spoke of a healthy one"
    for name, limit in runaways.items():
        (stop,) = [found for found in findings[name] if found["act"] == "stop"]
        assert stop["limit"] == limit
        assert tasks[name].reason == f"{limit} limit: {stop['evidence']}"
        assert stop["message"] == f"stopped at its {limit} limit: {stop['evidence']}"
    evidence = {name: tasks[name].reason for name in runaways}
    assert evidence["endless"].endswith("limit 16 s")
    assert "MB used, limit 200 MB" in evidence["hog"] or "GB used" in evidence["hog"]
    assert "MB of output, limit 5 MB" in evidence["flood"]
    assert "no output, no CPU use and no writes for" in evidence["hang"]
    assert [f["act"] for f in findings["endless"]] == ["warn", "stop"]
    took = {name: late(project, tasks[name], name) for name in runaways}
    assert all(0 <= seconds < SLACK for seconds in took.values()), took
    print(evidence, {name: round(seconds, 2) for name, seconds in took.items()})


def test_a_rehearsal_stops_nothing(project, behave):
    project.configure(UNGOVERNED + '[limits]\ndry_run = true\ntime = "1s"\nsilence = "2s"\n')
    ended = project.run("--workers", "3", "--", *behave, items=["chatty1", "writing", "busy"])
    assert ended.code == 0, (ended, project.story())
    findings = findings_by_title(project)
    for title in ("chatty1", "writing", "busy"):
        assert [(f["limit"], f["act"]) for f in findings[title]][-1] == ("time", "would_stop")
        assert "would stop at its time limit: ran for" in findings[title][-1]["message"]
    acts = {found["act"] for some in findings.values() for found in some}
    assert acts <= {"warn", "would_stop"}
    assert project.events("fail", "back_off", "release") == []


def test_limits_of_task_over_batch_over_type_over_all(project):
    project.configure(UNGOVERNED + '[limits]\ntime = "4s"\n[limits.types.quick]\ntime = "2s"\n')
    script = 'case "$1" in off) sleep 5 ;; *) sleep 60 ;; esac'
    sleeper = run_spec(cwd=str(project.folder), command=("sh", "-c", script, "sh", "{}"), workers=4)
    plain = [task("of all"), task("of its type", type="quick")]
    batch = [
        task("of the batch", type="quick"),
        task("its own", type="quick", time="1s"),
        task("off", type="quick", time="off"),
        task("wrong", type="quick", time="soon"),
    ]
    with project.open() as hv:
        one = hv.submit(sleeper, plain, "plain").batch
        two = hv.submit(changed(sleeper, time=3000), batch, "limited").batch
    project.start("run", "--detach", "--item", "x", "--", "true")  # brings a supervisor
    wait_for(lambda: project.states() == {"failed": 5, "done": 2}, "the end", story=project.story)
    found = reports(project, one.id) | reports(project, two.id)
    stops = {title: report.reason for title, report in found.items()}
    assert stops.pop("off") is None
    assert "time" in stops.pop("wrong") and found["wrong"].seconds < 5
    limits = {"of all": "4 s", "of its type": "2 s", "of the batch": "3 s", "its own": "1 s"}
    for title, limit in limits.items():
        reason = stops.pop(title)
        assert reason.startswith("time limit: ran for") and reason.endswith(f", limit {limit}")
    assert not stops
    assert project.events("crash") == [], "a worker died of bad limits"


SUSPENDED = 16  # seconds


def test_time_spent_suspended_does_not_count(project):
    """Everything is suspended for longer than the limit and continues: nothing is stopped."""
    command = ("sh", "-c", "touch started; while ! [ -e go ]; do sleep 0.1; done")
    client = project.start("run", "--timeout", f"{SUSPENDED}s", "--item", "x", "--", *command)
    wait_for((project.folder / "started").exists, "the start", story=project.story)
    (worker,) = project.workers()
    frozen = project.processes()
    for process in frozen:
        kill(process, signal.SIGSTOP)
    until = time.monotonic() + SUSPENDED + 2
    wait_for(lambda: time.monotonic() > until, "the time to pass", story=project.story)
    seen = sleeps(worker)
    for process in frozen:
        kill(process, signal.SIGCONT)
    wait_for(lambda: sleeps(worker) > seen + 2, "some looks", story=project.story)
    (project.folder / "go").touch()
    ended = project.ended(client)
    assert ended.code == 0, (ended, project.story())
    assert project.events("overseer") == []


def sleeps(pid):
    """How often a process has gone to sleep."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt"))


def task(title, type="run", time=None):
    data = {"item": title} | ({"limits": {"time": time}} if time else {})
    return NewTask(title, type=type, data=data, key=title)


def reports(project, batch):
    with project.open() as hv:
        return {report.title: report for report in hv.summary(batch).tasks}


def findings_by_title(project):
    (rows,) = project.query("SELECT task, title FROM details")
    titles = dict(rows)
    found: dict[str, list[dict[str, str]]] = {}
    for event in project.events("overseer"):
        found.setdefault(titles[event.task], []).append(event.data)
    return found


def late(project, report, name):
    """How long after it had reached its limit an attempt ended."""
    ((claimed, ended),) = project.query(
        f"SELECT claimed_at, ended_at FROM attempts WHERE task = '{report.id}'"
    )[0]
    reached = project.folder / f"{name}.reached"
    limits = {"endless": 16, "hang": 4}
    began = float(reached.read_text()) if reached.exists() else claimed / 1000
    return ended / 1000 - began - limits.get(name, 0)
