"""What the child processes of the self-test do, all through the public Python API.

A job says something by `say`: one line of JSON to the part that started it.
"""

from __future__ import annotations

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


def plain(value: Any) -> Any:
    """A value as JSON can carry it, names kept."""
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def storm_worker(where: str, name: str, per_claim: int, seed: int, folder: str) -> None:
    """Work until all tasks have ended, as a careful worker does, and keep a history."""
    from hypervisor.selftest.history import HistoryWriter

    dice = random.Random(seed)
    history = HistoryWriter(folder)
    with hypervisor.open(where) as hv:
        finished: list[tuple[str, Any]] = []
        while True:
            turn = history.call(
                hv.complete_and_claim,
                finished,
                name,
                limit=per_claim,
                ends=[token for token, _ in finished],
            )
            finished = []
            for lease in turn.leases:
                if dice.random() < 0.3:
                    history.call(hv.receipt, lease.token, [f"{name} works on {lease.task.title}"])
                if dice.random() < 0.3:
                    hv.heartbeat([lease.token])
                time.sleep(dice.random() * 0.006)  # the work itself
                if dice.random() < 0.5:
                    history.call(hv.complete, lease.token, {"by": name}, ends=[lease.token])
                else:
                    finished.append((lease.token, {"by": name}))
            if not turn.leases:
                if not hv.stats().remaining:
                    return
                time.sleep(0.01)


def recorded(where: str, log: str, name: str, seed: int, turns: int) -> None:
    """Work on a recorded disk over two connections, noting what was acknowledged."""
    import apsw

    from hypervisor.selftest import recorded_disk
    from hypervisor.store.sqlite import SqliteDatabase

    recorder = recorded_disk.record(log)
    dice = random.Random(seed)
    really_sync = SqliteDatabase._sync

    def late_sync(database: SqliteDatabase) -> None:
        """Give the other processes time for checkpoints between a commit and its sync."""
        recorder.note("pause", os.getpid())
        time.sleep(dice.choice((0, 0, 0.005, 0.02)))
        recorder.note("resume", os.getpid())
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


def network_worker(where: str, name: str, folder: str) -> None:
    """Add, claim and complete until told to stop; a call without an answer is repeated."""
    import select

    from hypervisor.selftest.history import HistoryWriter

    history = HistoryWriter(folder)
    hv = insist(hypervisor.open, where)
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        number += 1
        task = hypervisor.NewTask("task", key=f"{name} {number}", assignee=name)
        insist(history.call, hv.add, [task])
        for lease in insist(history.call, hv.claim, name, assignee=name):
            insist(history.call, hv.complete, lease.token, {"by": name}, ends=[lease.token])
        if number == 1:
            say("working")
    hv.close()


def insist(operation: Any, *args: Any, **named: Any) -> Any:
    """Repeat a call that got no answer: with the same key or token this is safe."""
    while True:
        try:
            return operation(*args, **named)
        except StoreUnavailable:
            time.sleep(0.01)
