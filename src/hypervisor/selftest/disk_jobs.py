"""Jobs of child processes on disks that are full."""

from __future__ import annotations

import itertools
import os
from typing import Any

import hypervisor
from hypervisor.core.errors import HypervisorError
from hypervisor.selftest.jobs import say
from hypervisor.selftest.part import ensure


def full_disk(folder: str, size: int, completing: bool) -> None:
    """On a file system of its own: fill the disk while working, free it, and continue."""
    from hypervisor.selftest import small_disk

    problem = small_disk.mount_small(folder, size)
    if problem:
        say({"skip": problem})
        return
    ballast = os.path.join(folder, "ballast")
    with open(ballast, "wb") as file:
        file.write(b"x" * (size // 3))
    say(_until_full(os.path.join(folder, "store.db"), completing, lambda: os.unlink(ballast)))


def opened_on_a_full_disk(folder: str, size: int) -> None:
    """Fill a small disk to the last byte, then open a store that is there and one that is not."""
    from hypervisor.selftest import small_disk

    problem = small_disk.mount_small(folder, size)
    if problem:
        say({"skip": problem})
        return
    there = os.path.join(folder, "there", "store.db")
    with hypervisor.open(there) as hv:
        hv.add([hypervisor.NewTask("kept")])
    small_disk.fill(os.path.join(folder, "ballast"))
    say([_refusal(where) for where in (there, os.path.join(folder, "new", "store.db"))])
    os.unlink(os.path.join(folder, "ballast"))
    with hypervisor.open(there) as hv:
        say(hv.stats().total)


def _refusal(where: str) -> dict[str, Any]:
    try:
        with hypervisor.open(where) as hv:
            hv.add([hypervisor.NewTask("no room for this")])
    except HypervisorError as error:
        return {"code": error.code, "message": str(error)}
    return {"code": None}


def short_files(folder: str, size: int, completing: bool) -> None:
    """The same with a limit on the size of a file, lifted later."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    lift = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))  # noqa: E731
    say(_until_full(os.path.join(folder, "store.db"), completing, lift))


def _until_full(where: str, completing: bool, make_room: Any) -> dict[str, Any]:
    from hypervisor.core.errors import StoreError
    from hypervisor.selftest.invariants import check_invariants, everything

    hv = hypervisor.open(where)
    hv.add([hypervisor.NewTask(f"first {n}") for n in range(50)])
    acknowledged, full = [], None
    steps = (_completions if completing else _additions)(hv)
    for step in itertools.islice(steps, 10_000):
        before = everything(where)
        try:
            acknowledged.append(step())
        except StoreError as error:
            full = error
            break
    kept = everything(where) == before
    told = {"code": full and full.code, "message": str(full), "kept": kept}
    checked = dict(check_invariants(hv))
    make_room()
    hv.add([hypervisor.NewTask("there is room again")])
    (lease,) = hv.claim("worker", limit=1)
    hv.complete(lease.token, {"filler": "x" * 8_000})
    after = check_invariants(hv)
    hv.close()
    with hypervisor.open(where) as again:
        integrity = again.store.facts()["integrity"]
        ensure(check_invariants(again) == after, "the store has changed by being opened")
    return {
        **told,
        "before": checked,
        "after": dict(after),
        "integrity": integrity,
        "acknowledged": len(acknowledged),
    }


def _additions(hv: Any) -> Any:
    while True:
        yield lambda: hv.add([hypervisor.NewTask("filler", body="x" * 3_000)] * 3)


def _completions(hv: Any) -> Any:
    while True:
        leases: list[Any] = []
        yield lambda leases=leases: leases.extend(hv.claim("worker", limit=3))
        for lease in leases:
            yield lambda lease=lease: hv.complete(lease.token, {"filler": "x" * 8_000})
            yield lambda lease=lease: hv.retry(lease.task.id)
