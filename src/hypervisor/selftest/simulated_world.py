"""Simulated processes on a real store: every step is checked against what its callers were told.

A step is a name and some numbers, which are taken modulo what there is to choose from. So any part
of a history is a history, and a failing one can be shortened (`shrink.py`).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypervisor.core.errors import LeaseLost, StoreError, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.queue import add, claim, receipts, rescue, steer
from hypervisor.queue.context import Context
from hypervisor.queue.task import NewTask
from hypervisor.selftest import sql
from hypervisor.selftest.invariants import check_invariants
from hypervisor.selftest.part import Violation, ensure
from hypervisor.selftest.simulated_disk import PowerCut, SimulatedDisk
from hypervisor.selftest.simulated_host import SimulatedClocks, SimulatedHost

Step = Sequence[Any]

PROCESSES = 4
LEASE = 60_000
LATE = 10_000  # a claim without a process must lapse within this time after its lease
ADVANCES = (1, 900, 5_000, LEASE // 2, LEASE + 1, 3_600_000)
JUMPS = (-3_600_000, -5_000, 5_000, 3_600_000, 86_400_000)
ENDINGS = {"complete": "done", "fail": "failed", "release": "released", "block": "blocked"}


class Claimed(NamedTuple):
    """A claim as its holder knows it."""

    task: str
    attempt: int
    pid: int  # 0: no process
    uptime: int | None  # when the lease began, by the clock that cannot be set; None: another boot


class Store(NamedTuple):
    """How the world opens its store, and what is under it."""

    open: Callable[[Path, SimulatedClocks], Any]  # a database
    disk: SimulatedDisk | None  # None: it cannot lose power here


class World:
    def __init__(self, store: Store, folder: Path, seed: int) -> None:
        self._store, self._folder, self._dice = store, folder, random.Random(seed)
        self._lives = 0
        self.host = SimulatedHost()
        self.pids = [self.host.start_process() for _ in range(PROCESSES)]
        self.tasks: list[str] = []
        self.claims: dict[str, Claimed] = {}
        self.outcomes: dict[str, str | None] = {}  # by token, as the store has them
        self.acknowledged: dict[str, str] = {}  # outcomes by token
        self.expected: dict[str, str] = {}  # outcomes by token that this step may cause
        self.touched: set[str] = set()  # tasks whose claims this step may revoke
        self.lapsing = False  # this step may take claims back
        self._last: tuple[str, tuple[Any, ...]] | None = None
        self._open()

    # Playing

    def play(self, steps: Sequence[Step]) -> None:
        try:
            for number, step in enumerate(steps):
                try:
                    self._play(step)
                except Violation as violation:
                    raise Violation(f"step {number} ({step[0]}): {violation}") from None
            if self._store.disk is not None:
                self._store.disk.behave()
            self._check_receipts()
        finally:
            self._close()

    def _play(self, step: Step) -> None:
        name, *numbers = step
        self.expected, self.touched, self.lapsing = {}, set(), False
        try:
            getattr(self, f"do_{name}")(*numbers)
        except PowerCut:
            self._lose_power()
        except Exception as error:
            disk = self._store.disk
            if disk is None:
                raise
            if disk.is_off:
                self._lose_power()
            elif disk.has_failed and isinstance(error, StoreError):
                self._last = None  # the change may be there or not
            else:
                raise
        if self._store.disk is not None:
            self._store.disk.has_failed = False
        self._check()

    def _close(self) -> None:
        """The files are not used any more, so it does not matter what the end writes."""
        if self._store.disk is not None:
            self._store.disk.is_off = True
        with suppress(Exception):
            self.hv.store.close()

    def _open(self) -> None:
        self._lives += 1
        database = self._store.open(self._folder, SimulatedClocks(self.host))
        self.hv = Context(database, self.host, "simulation")  # type: ignore[arg-type]

    # Steps: adding and claiming

    def do_add(self, count: int, shape: int) -> None:
        dice = random.Random(shape)
        tasks: list[NewTask] = []
        for _ in range(count % 3 + 1):
            number = len(self.tasks) + len(tasks)
            after = (f"t{dice.randrange(number)}",) if number and dice.random() < 0.3 else ()
            exclusive = (f"file{dice.randrange(2)}",) if dice.random() < 0.3 else ()
            delay = dice.choice(ADVANCES) if dice.random() < 0.1 else None
            tasks.append(
                NewTask(
                    f"task {number}",
                    key=f"t{number}",
                    after=after,
                    exclusive=exclusive,
                    retries=dice.randrange(2),
                    priority=dice.choice(("high", "medium")),
                    start_at=None if delay is None else self.hv.now() + delay,
                )
            )
        self._add(tasks)

    def _add(self, tasks: Sequence[NewTask]) -> None:
        self._last = ("_add", (tasks,))
        added = add.add(self.hv, tasks, batch="simulated")
        known = [duplicate.task for duplicate in added.duplicates]
        self.tasks += [task for task in (*known, *added.ids) if task not in self.tasks]

    def do_claim(self, process: int, count: int, has_process: int) -> None:
        self._last, self.lapsing = None, True
        pid = self.pids[process % PROCESSES] if has_process % 4 else 0
        began = self.host.uptime
        leases = claim.claim(self.hv, f"p{process % PROCESSES}", count % 3 + 1, LEASE, pid=pid)
        for lease in leases:
            task, attempt, _ = lease.token.split(".")
            ensure(lease.token not in self.claims, f"the token {lease.token} was given twice")
            known = [each.attempt for each in self.claims.values() if each.task == task]
            last = max(known, default=0)
            ensure(int(attempt) > last, f"the fence of {task} went from {last} to {attempt}")
            self.claims[lease.token] = Claimed(task, int(attempt), pid, began)

    def do_heartbeat(self, which: int) -> None:
        token = self._token(which)
        if token is None:
            return
        alive = claim.heartbeat(self.hv, [token], LEASE).alive
        is_live = self.outcomes[token] is None
        ensure(bool(alive) == is_live, f"the heartbeat of {token} was answered wrongly")
        if alive:
            self.claims[token] = self.claims[token]._replace(uptime=self.host.uptime)

    # Steps: ending

    def do_complete(self, which: int) -> None:
        self._end("complete", self._token(which))

    def do_fail(self, which: int) -> None:
        self._end("fail", self._token(which))

    def do_release(self, which: int) -> None:
        self._end("release", self._token(which))

    def do_block(self, which: int) -> None:
        self._end("block", self._token(which))

    def _end(self, verb: str, token: str | None) -> None:
        if token is None:
            return
        self._last = ("_end", (verb, token))
        before, outcome = self.outcomes[token], ENDINGS[verb]
        call = getattr(claim, verb)
        args = (token,) if verb in ("complete", "release") else (token, "simulated")
        if before is None:
            self.expected[token] = outcome
        try:
            answer = call(self.hv, *args)
        except LeaseLost:
            ok = before is not None and before != outcome
            ensure(ok, f"{verb} of the live claim {token} was refused")
            return
        ok = before is None or before == outcome
        ensure(ok, f"{verb} with {token} was accepted, which had ended as {before}")
        ensure(answer.outcome == outcome, f"{verb} of {token} was answered {answer.outcome}")
        self.acknowledged[token] = outcome

    def do_receipt(self, which: int) -> None:
        token = self._token(which)
        if token is None:
            return
        is_live = self.outcomes[token] is None
        try:
            receipts.receipt(self.hv, token, ["simulated"])
        except LeaseLost:
            ensure(not is_live, f"a receipt of the live claim {token} was refused")
            return
        ensure(is_live, f"a receipt with the stale token {token} was accepted")

    def do_repeat(self) -> None:
        """The answer was lost: the same call again changes nothing."""
        if self._last is not None:
            name, args = self._last
            getattr(self, name)(*args)

    # Steps: people, crashes, time

    def do_cancel(self, which: int) -> None:
        self._steer(steer.cancel, which)

    def do_retry(self, which: int) -> None:
        self._steer(steer.retry, which)

    def _steer(self, verb: Callable[..., Any], which: int) -> None:
        if self.tasks:
            task = self.tasks[which % len(self.tasks)]
            self.touched = {task}
            with suppress(WrongState):
                verb(self.hv, task)

    def do_crash(self, process: int) -> None:
        """A process dies; another takes its place."""
        index = process % PROCESSES
        self.host.end_process(self.pids[index])
        self.pids[index] = self.host.start_process()

    def do_sweep(self) -> None:
        self.lapsing = True
        rescue.sweep(self.hv)
        for token, outcome in self._read_outcomes().items():
            held = self.claims.get(token)
            if outcome is None and held and not held.pid and held.uptime is not None:
                overdue = self.host.uptime - held.uptime - LEASE
                ensure(overdue <= LATE, f"the claim {token} outlived its lease by {overdue} ms")

    def do_advance(self, which: int) -> None:
        self.host.uptime += ADVANCES[which % len(ADVANCES)]

    def do_set_clock(self, which: int) -> None:
        self.host.wall_offset += JUMPS[which % len(JUMPS)]

    # Steps: the disk

    def do_cut(self) -> None:
        if self._store.disk is not None:
            raise PowerCut

    def do_cut_within(self, operations: int) -> None:
        """The power is cut in the middle of what comes next, which may be the recovery."""
        if self._store.disk is not None:
            self._store.disk.cut_after(operations % 30)

    def do_fail_sync(self) -> None:
        if self._store.disk is not None:
            self._store.disk.fail_next_sync()

    def _lose_power(self) -> None:
        """Everything stops, and the host starts again with what is on the disk."""
        disk = self._store.disk
        if disk is None:
            raise Violation("the store lost power")
        self._close()
        old, self._folder = self._folder, self._folder.with_name(f"life{self._lives}")
        disk.cut(self._folder, self._dice)
        shutil.rmtree(old, ignore_errors=True)
        self.host.reboot()
        self.pids = [self.host.start_process() for _ in range(PROCESSES)]
        self._last = None
        try:
            self._open()
        except Exception as error:
            raise Violation(f"after a power cut, the store does not open: {error}") from error
        self._check_kept()

    # Checks

    def _check(self) -> None:
        try:
            check_invariants(self.hv)
            now = self._read_outcomes()
        except Exception:
            if self._store.disk is None or not self._store.disk.is_off:
                raise
            self._lose_power()
            return
        for token, held in self.claims.items():
            ensure(token in now, f"the claim {token} was acknowledged and is gone")
            before, after = self.outcomes.get(token), now[token]
            if before != after:
                self._explain(token, held, before, after)
        self.outcomes = now
        known = {row[0] for row in self.hv.store.read(sql.rows, sql.TASKS)[0]}
        gone = [task for task in self.tasks if task not in known]
        ensure(not gone, f"acknowledged tasks are gone: {gone[:3]}")

    def _explain(self, token: str, held: Claimed, before: str | None, after: str | None) -> None:
        """An attempt ends once, and for a reason."""
        ensure(before is None, f"the attempt {token} ended as {before} and is now {after}")
        if after == self.expected.get(token) or held.task in self.touched:
            return
        ensure(after == "crashed" and self.lapsing, f"{token} ended as {after} without a reason")
        alive = held.pid and self.host.process_start(held.pid) is not None
        ensure(not alive, f"{token} was taken from process {held.pid}, which lives")
        if not held.pid and held.uptime is not None:
            early = held.uptime + LEASE - self.host.uptime
            ensure(early <= 0, f"{token} was taken back {early} ms before its lease ended")

    def _check_kept(self) -> None:
        """After a power cut: what was acknowledged as ended is there. A claim may be gone with its
        holder, and a change without an answer may be there or not."""
        now = self._read_outcomes()
        for token, outcome in self.acknowledged.items():
            found = now.get(token, "gone")
            ensure(found == outcome, f"{token} was {outcome} before a power cut, now {found}")
        self.claims = {
            token: held._replace(uptime=None) for token, held in self.claims.items() if token in now
        }
        self.outcomes = {token: now[token] for token in self.claims}

    def _check_receipts(self) -> None:
        from hypervisor.batches.receipts import verify

        broken = [report.problem for report in verify(self.hv) if report.problem]
        ensure(not broken, f"a chain of receipts is broken: {broken[:1]}")

    def _read_outcomes(self) -> dict[str, str | None]:
        (rows,) = self.hv.store.read(sql.rows, sql.ATTEMPTS)
        return {f"{task}.{n}.{nonce}": outcome for task, n, nonce, outcome, _ in rows}

    def _token(self, which: int) -> str | None:
        """Mostly a recent claim."""
        tokens = list(self.claims)
        if not tokens:
            return None
        return tokens[-1 - which % min(len(tokens), 4 if which % 3 else len(tokens))]
