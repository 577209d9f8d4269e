"""Workers that are stopped over their lease and wake up late: nothing of theirs counts twice.

A worker with a process keeps its claim as long as the process lives, stopped or not. A claim
without a process lapses by time, and its late calls are refused.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import hypervisor
from hypervisor.selftest.crew import Child, ForkServer, Refused
from hypervisor.selftest.invariants import check_invariants
from hypervisor.selftest.part import Figures, Setting, Violation, ensure
from hypervisor.selftest.project import wait_until

LEASE = 100  # milliseconds
DEADLINE = 60.0


def run(setting: Setting) -> Figures:
    figures = {"stopped workers": 0, "late calls refused": 0}
    with closing(ForkServer()) as crew:
        while not figures["stopped workers"] or not setting.is_over:
            where = setting.new_store()
            with hypervisor.open(where) as hv:
                holder, rival = (_puppet(crew, where, setting.bug) for _ in range(2))
                _stopped_process_keeps_its_claim(hv, holder, rival)
                figures["stopped workers"] += 1
                figures["late calls refused"] += _lapsed_claim_is_refused(hv, holder, rival)
                check_invariants(hv)
            crew.clear()
            setting.tell(f"{figures['stopped workers']} stopped workers")
    return figures


def _puppet(crew: ForkServer, where: str, bug: str | None) -> Child:
    child = crew.start("puppet", where, bug=bug)
    child.hear()
    return child


def _stopped_process_keeps_its_claim(
    hv: hypervisor.Hypervisor, holder: Child, rival: Child
) -> None:
    (task,) = hv.add([hypervisor.NewTask("held by a process")]).ids
    (lease,) = holder.call("claim", "holder", lease=LEASE)
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        _wait_for(lambda: _state(holder.pid) == "T", "the worker to stop")
        _wait_for(lambda: hv.store.now() > lease["until"] + LEASE, "the lease to lapse")
        for _ in range(3):
            robbed = rival.call("claim", "rival") or rival.call("sweep")["reclaimed"]
            ensure(not robbed, f"task {task} was taken from process {holder.pid}, which lives")
    finally:
        os.kill(holder.pid, signal.SIGCONT)
    state = holder.call("complete", lease["token"])["state"]
    ensure(state == "done", f"a worker that woke up in time could not complete {task}")


def _lapsed_claim_is_refused(hv: hypervisor.Hypervisor, holder: Child, rival: Child) -> int:
    (task,) = hv.add([hypervisor.NewTask("held without a process")]).ids
    (lease,) = holder.call("claim", "holder", lease=LEASE, pid=0)
    _wait_for(lambda: hv.store.now() > lease["until"], "the lease to lapse")
    ensure(rival.call("sweep")["reclaimed"] == [task], f"the claim of {task} did not lapse")
    (second,) = rival.call("claim", "rival")
    calls = {
        "receipt": (lease["token"], ["still here"]),
        "complete": (lease["token"], {"result": "late"}),
        "fail": (lease["token"], "late"),
        "release": (lease["token"], "late"),
    }
    for verb, args in calls.items():
        try:
            holder.call(verb, *args)
        except Refused as refused:
            ensure(refused.code == "lease_lost", f"{verb} was refused as {refused.code}")
        else:
            raise Violation(f"{verb} with the stale token of {task} was accepted")
    done = rival.call("complete", second["token"])["state"]
    ensure(done == "done", f"the new holder of {task} could not complete it")
    return len(calls)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    if not wait_until(condition, DEADLINE):
        raise TimeoutError(f"timed out waiting for {what}")
