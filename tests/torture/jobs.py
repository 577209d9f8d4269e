"""What the child processes do, all through the public Python API.

A job says something by `say`: one line of JSON to the test that started it.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import hypervisor
from hypervisor.core.errors import HypervisorError, StoreUnavailable
from hypervisor.selftest.disk_jobs import full_disk, opened_on_a_full_disk, short_files
from hypervisor.selftest.jobs import plain, puppet, recorded, say

__all__ = ["full_disk", "opened_on_a_full_disk", "puppet", "recorded", "short_files"]


def add_and_stay(where: str, tasks: int) -> None:
    """Add some tasks and keep the store open until killed."""
    hv = hypervisor.open(where)
    for number in range(tasks):
        hv.add([hypervisor.NewTask(f"later {number}")])
    say("added")
    sys.stdin.readline()


def claim_and_exit(where: str, lease: int) -> None:
    """Exit normally without ending a claim."""
    with hypervisor.open(where) as hv:
        say(plain(hv.claim("leaver", lease=lease)))


def drain(where: str, name: str, k: int, relaxed: bool) -> None:
    """Complete all tasks and report which claims were completed."""
    done: list[str] = []
    with hypervisor.open(where, relaxed=relaxed) as hv:
        say("open")
        sys.stdin.readline()
        leases = hv.claim(name, limit=k)
        while leases:
            finished = [(lease.token, None) for lease in leases]
            turn = hv.complete_and_claim(finished, name, limit=k)
            assert not any(settled.lost or settled.repeated for settled in turn.settled)
            done += [settled.token for settled in turn.settled]
            leases = turn.leases
        left = hv.stats().states["active"]
    say([done, left])


def acknowledger(where: str, name: str) -> None:
    """Add, claim and complete forever; report each acknowledgement immediately."""
    hv = hypervisor.open(where)
    number = 0
    while True:
        number += 1
        task = hypervisor.NewTask("task", key=f"{name} {number}", assignee=name)
        added = insist(hv.add, [task])
        say(["added", added.ids[0] if added.ids else added.duplicates[0].task])
        for lease in insist(hv.claim, name, assignee=name):
            say(["done", insist(hv.complete, lease.token, {"by": name}).token])


def insist(operation: Any, *args: Any, **named: Any) -> Any:
    """Repeat a call that got no answer: with the same key or token this is safe."""
    while True:
        try:
            return operation(*args, **named)
        except StoreUnavailable as error:
            say(["unavailable", str(error)])
            time.sleep(0.01)


def as_nobody(where: str, elsewhere: str) -> None:
    """Open and add as a user without rights, for whom permission bits count."""
    with hypervisor.open(elsewhere) as hv:  # loads files that the user nobody may be unable to read
        hv.add([hypervisor.NewTask("rehearsal")])
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    try:
        with hypervisor.open(where) as hv:
            hv.add([hypervisor.NewTask("not allowed")])
        say({"code": None})
    except HypervisorError as error:
        say({"code": error.code, "message": str(error)})


def use_after_fork(where: str) -> None:
    """Use a store in a child that was forked after it was opened."""
    hv = hypervisor.open(where)
    hv.add([hypervisor.NewTask("before the fork")])
    child = os.fork()
    if child == 0:
        for use in (hv.stats, lambda: hv.add([hypervisor.NewTask("no")]), lambda: hv.claim("w")):
            try:
                use()
                say({"code": None})
            except HypervisorError as error:
                say({"code": error.code, "message": str(error)})
        hv.close()
        with hypervisor.open(where) as own:
            say({"own": len(own.add([hypervisor.NewTask("from the child")]).ids)})
        os._exit(0)
    os.waitpid(child, 0)
    say({"parent": hv.stats().total})
