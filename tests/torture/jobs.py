"""What the child processes do, all through the public Python API.

A job says something by `say`: one line of JSON to the test that started it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import time
from typing import Any

import hypervisor
from hypervisor.core.errors import HypervisorError, StoreUnavailable


def say(message: Any) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def puppet(where: str, relaxed: bool | None = None) -> None:
    """Call the operations that the test names, until the connection is closed."""
    with hypervisor.open(where, relaxed=relaxed) as hv:
        say("open")
        for line in sys.stdin:
            verb, args, named = json.loads(line)
            try:
                say({"answer": plain(getattr(hv, verb)(*args, **named))})
            except HypervisorError as error:
                say({"error": error.code, "message": str(error)})


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


def survivor(where: str, name: str, k: int, seed: int) -> None:
    """Work until all tasks have ended, as a careful worker does."""
    dice = random.Random(seed)
    with hypervisor.open(where) as hv:
        finished: list[tuple[str, Any]] = []
        while True:
            leases = hv.complete_and_claim(finished, name, limit=k).leases
            finished = []
            for lease in leases:
                if dice.random() < 0.3:
                    hv.receipt(lease.token, [f"{name} works on {lease.task.title}"])
                if dice.random() < 0.3:
                    hv.heartbeat([lease.token])
                time.sleep(dice.random() * 0.006)  # the work itself
                if dice.random() < 0.5:
                    hv.complete(lease.token, {"by": name})
                else:
                    finished.append((lease.token, {"by": name}))
            if not leases:
                if not hv.stats().remaining:
                    return
                time.sleep(0.01)


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


def plain(value: Any) -> Any:
    """A value as JSON can carry it, names kept."""
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def recorded(where: str, log: str, name: str, seed: int, turns: int, sync: bool) -> None:
    """Work on a recorded disk over two connections, noting what was acknowledged."""
    import apsw

    from hypervisor.store.sqlite import SqliteDatabase
    from tests.torture import disk

    recorder = disk.record(log)
    dice = random.Random(seed)
    really_sync = SqliteDatabase._sync

    def late_sync(database: SqliteDatabase) -> None:
        """Give the other processes time for checkpoints between a commit and its sync."""
        recorder.note("pause", os.getpid())
        time.sleep(dice.choice((0, 0, 0.005, 0.02)))
        recorder.note("resume", os.getpid())
        if sync:
            really_sync(database)

    SqliteDatabase._sync = late_sync  # type: ignore[method-assign,assignment]
    with hypervisor.open(where) as one, hypervisor.open(where) as two:
        for hv in (one, two):
            hv.store._log_limit = dice.choice((5, 20))  # type: ignore[attr-defined]
        reader = apsw.Connection(where)
        for turn in range(turns):
            _look_or_let_go(reader, dice)
            for acknowledged in _recorded_turn(dice.choice((one, two)), name, turn, dice):
                recorder.note("ack", acknowledged)
        reader.close()


def _look_or_let_go(reader: Any, dice: random.Random) -> None:
    """A reader that stays prevents a restart of the log; one that leaves allows it."""
    if reader.in_transaction:
        if dice.random() < 0.5:
            reader.execute("COMMIT")
    elif dice.random() < 0.1:
        reader.execute("BEGIN; SELECT count(*) FROM tasks").fetchall()


def _recorded_turn(hv: Any, name: str, turn: int, dice: random.Random) -> Any:
    """One worker's turn; yields what must survive from now on."""
    body = "x" * dice.choice((0, 100, 9_000))
    keys = (f"file{dice.randrange(3)}",) if dice.random() < 0.3 else ()
    first = hypervisor.NewTask(f"{name} {turn}", key=f"{name} {turn}", body=body, exclusive=keys)
    second = first._replace(key=f"{name} {turn} then", after=(first.key or "",), exclusive=())
    for task in hv.add([first, second][: dice.randint(1, 2)]).ids:
        yield "added", task
    leases = hv.claim(name, limit=dice.randint(1, 3))
    for lease in leases:
        yield "claimed", lease.token
    for lease in leases:
        if dice.random() < 0.3:
            hv.heartbeat([lease.token])
        if dice.random() < 0.4:
            receipt = hv.receipt(lease.token, [f"turn {turn}"])[0]
            yield "receipt", receipt.hash
        if dice.random() < 0.1:
            hv.fail(lease.token, "bad luck", retry_in=0)
            yield "failed", lease.token
        else:
            hv.complete(lease.token, {"turn": turn})
            yield "done", lease.token


def full_disk(folder: str, size: int, completing: bool) -> None:
    """On a file system of its own: fill the disk while working, free it, and continue."""
    from tests.torture import private

    problem = private.mount_small(folder, size)
    if problem:
        say({"skip": problem})
        return
    ballast = os.path.join(folder, "ballast")
    with open(ballast, "wb") as file:
        file.write(b"x" * (size // 3))
    say(_until_full(os.path.join(folder, "store.db"), completing, lambda: os.unlink(ballast)))


def opened_on_a_full_disk(folder: str, size: int) -> None:
    """Fill a small disk to the last byte, then open a store that is there and one that is not."""
    from tests.torture import private

    problem = private.mount_small(folder, size)
    if problem:
        say({"skip": problem})
        return
    there = os.path.join(folder, "there", "store.db")
    with hypervisor.open(there) as hv:
        hv.add([hypervisor.NewTask("kept")])
    private.fill(os.path.join(folder, "ballast"))
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
    from tests.torture.lookout import check_invariants, everything

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
        assert check_invariants(again) == after
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
