"""A history of calls as their callers saw them, kept outside the store, and its checker.

Each process writes its own lines: a call is invoked, then it is answered or refused. A call
without either is unknown: its process died, and both outcomes are allowed. Times are of the
monotonic clock, which all processes of a host share.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

from hypervisor.core.errors import HypervisorError, StoreUnavailable
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context
from hypervisor.selftest import sql
from hypervisor.selftest.part import ensure


class Entry(NamedTuple):
    at: float
    pid: int
    call: int
    kind: str  # invoke, ok, fail
    verb: str
    tokens: list[str]  # invoke: that the call ends; ok: that it claimed or ended
    ids: list[str]  # of added tasks and receipts


class Hold(NamedTuple):
    """From when until when a process could believe that a task was its own."""

    since: float
    until: float
    attempt: int
    pid: int


class HistoryWriter:
    """The history of this process. A line is written before anything else happens."""

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, f"{os.getpid()}.history")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._calls = 0

    def call(
        self, verb: Callable[..., Any], *args: Any, ends: Iterable[str] = (), **named: Any
    ) -> Any:
        self._calls += 1
        self._note("invoke", verb.__name__, list(ends))
        try:
            answer = verb(*args, **named)
        except StoreUnavailable:
            raise  # it may have been carried out
        except HypervisorError:
            self._note("fail", verb.__name__)
            raise
        self._note("ok", verb.__name__, *_named_in(answer))
        return answer

    def _note(
        self, kind: str, verb: str, tokens: Iterable[str] = (), ids: Iterable[str] = ()
    ) -> None:
        entry = Entry(time.monotonic(), os.getpid(), self._calls, kind, verb, [*tokens], [*ids])
        os.write(self._file, json.dumps(entry).encode() + b"\n")


def _named_in(answer: Any) -> tuple[list[str], list[str]]:
    """The tokens and ids in an answer."""
    if hasattr(answer, "ids"):
        return [], list(answer.ids)
    if hasattr(answer, "leases"):
        settled = [each.token for each in answer.settled if not each.lost]
        return [lease.token for lease in answer.leases] + settled, []
    if hasattr(answer, "token"):
        return [answer.token], []
    if isinstance(answer, tuple) and answer and hasattr(answer[0], "hash"):
        return [], [receipt.hash for receipt in answer]
    if isinstance(answer, tuple):
        return [lease.token for lease in answer], []
    return [], []


def read(folder: Path) -> list[Entry]:
    """All histories in the folder, by time. A line that was cut off was not yet a fact."""
    entries = []
    for path in folder.glob("*.history"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            entries.append(Entry(*json.loads(line)))
    return sorted(entries)


def check(hv: Context, entries: list[Entry], deaths: dict[int, float]) -> dict[str, int]:
    """Raises Violation. Returns how much was checked."""
    holds = _holds(entries, deaths)
    for task, held in holds.items():
        _check_one_holder(task, sorted(held))
    _check_visible(hv, entries)
    calls = {(entry.pid, entry.call) for entry in entries if entry.kind == "invoke"}
    answered = {(entry.pid, entry.call) for entry in entries if entry.kind != "invoke"}
    return {
        "calls": len(calls),
        "calls without an answer": len(calls - answered),
        "claims": sum(map(len, holds.values())),
    }


def _holds(entries: list[Entry], deaths: dict[int, float]) -> dict[str, list[Hold]]:
    given_up: dict[str, float] = {}
    for entry in entries:
        if entry.kind == "invoke":
            for token in entry.tokens:
                given_up.setdefault(token, entry.at)
    holds: dict[str, list[Hold]] = defaultdict(list)
    seen: set[str] = set()
    for entry in entries:
        if entry.kind != "ok":
            continue
        for token in entry.tokens:
            task, attempt, _ = token.split(".")
            if token not in seen and given_up.get(token, inf) > entry.at:
                until = min(given_up.get(token, inf), deaths.get(entry.pid, inf))
                holds[task].append(Hold(entry.at, until, int(attempt), entry.pid))
            seen.add(token)
    return holds


def _check_one_holder(task: str, holds: list[Hold]) -> None:
    for before, after in pairwise(holds):
        ensure(
            after.since >= before.until,
            f"task {task} had two holders: process {before.pid} with attempt {before.attempt} "
            f"and process {after.pid} with attempt {after.attempt}",
        )
        ensure(
            after.attempt > before.attempt,
            f"the fence of task {task} went from {before.attempt} to {after.attempt}",
        )


def _check_visible(hv: Context, entries: list[Entry]) -> None:
    """Every acknowledged change is in the store."""
    tasks, attempts, receipts = hv.store.read(sql.rows, sql.TASKS, sql.ATTEMPTS, sql.RECEIPTS)
    known = {row[0] for row in tasks} | {row[0] for row in receipts}
    outcomes = {f"{task}.{n}.{nonce}": outcome for task, n, nonce, outcome, _ in attempts}
    ended: dict[str, str] = {}
    for entry in entries:
        if entry.kind != "ok":
            continue
        for name in entry.ids:
            ensure(name in known, f"{entry.verb} of {name} was acknowledged and is gone")
        for token in entry.tokens:
            ensure(token in outcomes, f"the claim {token} was acknowledged and is gone")
            if entry.verb == "complete":
                ended[token] = "done"
    for token, outcome in ended.items():
        ensure(
            outcomes[token] == outcome,
            f"{token} was acknowledged as {outcome} and is {outcomes[token]}",
        )
