"""Random histories of the ledger, step by step against a plain model, on both databases.

Hypothesis drives every verb of the store. After each step the tables are read directly:
one live lease per task, terminal stays terminal, readiness equals its definition, exclusive
keys exclude without losing a wake-up, lanes follow the pauses, the event log is complete.
`--machine-seed` repeats a run.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import lru_cache
from itertools import pairwise, product
from typing import Any, ClassVar, cast

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from hypervisor.core import ids, randomness
from hypervisor.core.errors import DependencyCycle, HypervisorError, LeaseLost, WrongState
from hypervisor.queue import settle
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, EndEvent, Token, Worker, parse_token
from hypervisor.queue.task import Changes, NewTask
from hypervisor.runs.spec import Pause
from tests.queue import invariants
from tests.queue.model import WEEK, Model
from tests.support.databases import Store
from tests.support.ledger import Ledger

STEPS = 20_000
STEPS_LONG = 200_000
STEPS_PER_EXAMPLE = 60
EXAMPLES_PER_ROUND = 25
READ_EVERY = 5
MOST_TASKS = 14
CHUNKED = 1  # the batch that is cut into chunks
START = 1_800_000_000_000
LEASE = 60_000

WORKERS = (
    Worker("w1", "ann", "here", "boot1", 101, 1),
    Worker("w2", "bob", "here", "boot1", 102, 1),
    Worker("w3", "ann", "there", "boot2", 103, 1),
    Worker("w4", "eve", "here", "boot1"),
)

# One draw for many fields: few draws keep a step cheap, the first choices are the simplest.
KINDS = list(
    product(
        ("task", "test"),
        ("medium", "low", "high", "critical"),
        ((), ("gpu",)),
        ("", "ann"),
        ("", "b1"),
    )
)
COMMON = [KINDS[0], ("test", "medium", (), "", "")]
# Tasks of this branch have no keys: turns over them can be plain.
NO_KEYS = "plain"
PLAIN = [("task", "medium", (), "", NO_KEYS)] * 2 + [("test", "high", (), "", NO_KEYS)]
EXCLUSIVE = [
    (),
    (),
    ("k",),
    ("k",),
    ("k",),
    ("l",),
    ("k", "l"),
    ("l", "m"),
    ("m", "k"),
    ("k", "l", "m"),
]
DELAYS = [None, None, None, None, None, None, 5_000, 100_000, -1, 0]
DEDUPE = [None, None, None, None, None, None, "u1", "u2", "u3"]
# Mostly the same few tasks are needed and most tasks are alike, so that they meet.
AFTER = [
    (),
    (),
    (),
    (0,),
    (0,),
    (0,),
    (1,),
    (2,),
    (0, 1),
    (2, 3),
    (7,),
    ("u1",),
    ("u2",),
    ("u3", 0),
]
SPECS = st.tuples(
    st.sampled_from(COMMON[:1] * 64 + COMMON[1:] * 32 + PLAIN * 40 + KINDS),
    st.sampled_from(EXCLUSIVE),
    st.sampled_from(DELAYS),
    st.sampled_from(DEDUPE),
    st.sampled_from(AFTER),
    st.integers(0, 9),
    st.sampled_from([0, 0, 1, 1, 2, 3]),
)
EVERYTHING = ClaimFilter(capabilities=("gpu", "net"))
FILTERS = st.sampled_from(
    [EVERYTHING] * 4
    + [
        ClaimFilter(),
        ClaimFilter(types=("test",)),
        ClaimFilter(types=("task", "test"), priorities=("high", "critical")),
        ClaimFilter(branch="b1", capabilities=("gpu",)),
        ClaimFilter(branch=""),
        ClaimFilter(batch=""),
        ClaimFilter(batch="FIRST", capabilities=("gpu",)),
        ClaimFilter(assignee="ann", capabilities=("gpu",)),
        ClaimFilter(assignee="", priorities=("low", "medium")),
        ClaimFilter(types=("none",)),
    ]
)
CLAIMS = st.tuples(st.sampled_from(WORKERS), st.integers(1, 5), FILTERS)
VERDICTS = st.tuples(
    st.integers(0, 40),
    st.sampled_from(
        ["complete"] * 9
        + ["release", "fail", "block", "back_off", "back_off soon", "back_off later"]
    ),
    st.sampled_from(["live"] * 9 + ["any", "foreign", "other attempt", "no task"]),
)
STALE = st.tuples(
    st.integers(0, 40),
    st.sampled_from(["complete", "complete", "release", "fail", "block", "back_off soon"]),
    st.sampled_from(["any", "any", "foreign", "other attempt"]),
)
BACK = {"inbox", "blocked", "done", "failed", "cancelled"}
INDEX = st.integers(0, MOST_TASKS)
BATCH = st.sampled_from([0, 0, 0, 1, 2])
PICKS = st.lists(st.tuples(INDEX, st.booleans()), min_size=1, max_size=3)
BOOTS = st.sampled_from(["boot1", "boot2", "boot3"])
VERBS = st.sampled_from(["cancel", "cancel", "reopen", "accept", "take_back", "take_back"])
BACK_VERBS = st.sampled_from(["reopen", "reopen", "accept"])
CHANGES = st.sampled_from(
    [
        Changes(title="new", data={"n": 1}),
        Changes(priority="critical"),
        Changes(priority="low", retries=2),
        Changes(type="test"),
        Changes(type="task", branch=""),
        Changes(branch="b1"),
        Changes(requires=("gpu",)),
        Changes(requires=()),
        Changes(assignee="ann"),
        Changes(assignee="", type="test"),
        Changes(start_at=5_000),
        Changes(start_at=100_000),
        Changes(start_at=-1),
    ]
)
# A number stands for a batch, of which 0 is none; no task is of the type "none".
PAUSES = st.sampled_from(
    [
        ("all", ""),
        ("batch", 1),
        ("batch", 1),
        ("batch", 2),
        ("batch", 0),
        ("type", "task"),
        ("type", "test"),
        ("type", "test"),
        ("type", "none"),
    ]
)


ACTIONS: dict[str, tuple[int, str, st.SearchStrategy]] = {}


def action(weight: int, when: str = "", **arguments: st.SearchStrategy):
    """A kind of step, how often it is taken, and what must be there for it to make sense.

    Not `@rule`: of those, Hypothesis leaves out some in each example, and histories without
    a claim or an add show little.
    """

    def remember(function):
        ACTIONS[function.__name__] = (weight, when, st.fixed_dictionaries(arguments))
        return function

    return remember


# A run that never met one of these has proven little. (`+Counter` drops the zeros.)
SITUATIONS = {
    "add refused: not_found",
    "add refused: dependency_cycle",
    "duplicate",
    "claim",
    "claim keyed",
    "applied done",
    "applied failed",
    "applied blocked",
    "applied released",
    "repeated done",
    "repeated failed",
    "lost ",
    "heartbeat",
    "heartbeat refused",
    "crash: queued",
    "cancel",
    "reopen done",
    "accept",
    "due",
    "receipt refused",
    "update refused: dependency_cycle",
    "update refused: wrong_state",
    "ready",
    "hold",
    "pause",
    "resume",
    "paused twice",
    "not paused",
    "pauses overlap",
    "claim beside a pause",
    "held back by a pause",
    "ready seen",
    "ready seen beside a pause",
    "released: not started",
    "fast path",
    "fast path with nothing left",
    "no fast path",
    "decide",
    "chunk opened",
    "claims seen",
    "decide refused: wrong_state",
    "decide refused: not_found",
    "chunk retried",
}


class LedgerMachine(RuleBasedStateMachine):
    store: ClassVar[Store]
    databases: ClassVar[list[Any]]
    steps: ClassVar[int] = 0
    met: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.store.wipe()
        # Ids and nonces come from here, so that a failing example can be repeated.
        source = random.Random(1)
        randomness.entropy = lambda: source.getrandbits(ids.ENTROPY_BITS)
        randomness.nonces = lambda count: [
            "".join(source.choices(ids.ALPHABET, k=ids.CODE_LENGTH)) for _ in range(count)
        ]
        self.ledgers = [Ledger(database) for database in self.databases]
        for ledger in self.ledgers:
            ledger.memories.of(settle.ClaimMemory).agents.add(WORKERS[0].id)
        self.model = Model()
        self.now = START
        self.batches = [""]
        self.batch_names: dict[str, str | None] = {"": None}
        for name in ("first", "second"):
            self.ledgers[0].add([], name, "me", self.now)
            batch = self.ledgers[0].batch(name).id
            self.batches.append(batch)
            self.batch_names[batch] = name
        self.ledgers[0].declare("first", {"command": ["true"]}, "me", self.now)
        chunks = self.ledgers[0].declare_chunks(
            self.batches[CHUNKED], ["1th", "2th", "3th"], "each"
        )
        self.model.chunks = {(chunk.batch, chunk.number): chunk.state for chunk in chunks}
        self.replayed: dict[str, str] = {}
        self.seen = invariants.Seen(self.store)
        self.unread = self.seen.events
        self.told = 0
        self.turn = 0
        self.agreed = False

    @property
    def ledger(self) -> Ledger:
        """Several processes share a store: each step goes through another ledger."""
        self.turn += 1
        return self.ledgers[self.turn % len(self.ledgers)]

    @rule(data=st.data())
    def step(self, data):
        self.agreed = False
        name = data.draw(_choice(self._possible()))
        getattr(self, name)(**data.draw(ACTIONS[name][2], name))

    def _possible(self) -> frozenset[str]:
        states = set(self.seen.states.values())
        there = {
            "": True,
            "tasks": bool(self.model.tasks),
            "room": len(self.model.tasks) < MOST_TASKS,
            "tokens": bool(self.model.tokens),
            "active": "active" in states,
            "in_progress": "in_progress" in states,
            "closed": bool(BACK & states),
            "paused": bool(self.model.pauses),
        }
        return frozenset(when for when, possible in there.items() if possible)

    # Steps: adding

    @initialize(specs=st.lists(SPECS, min_size=3, max_size=6), batch=st.sampled_from([1, 0, 1]))
    def start(self, specs, batch):
        self.add_tasks(specs, batch)

    @action(4, when="room", specs=st.lists(SPECS, min_size=1, max_size=4), batch=BATCH)
    def add(self, specs, batch):
        self.add_tasks(specs, batch)

    def add_tasks(self, specs, batch):
        new = [self._new(i, spec) for i, spec in enumerate(specs)]
        if batch == CHUNKED:
            new = [task._replace(chunk=spec[-1]) for task, spec in zip(new, specs, strict=True)]
        batch = self.batches[batch]
        refusal = self.model.refusal_of_add(new, batch)
        if refusal:
            self.met[f"add refused: {refusal.code}"] += 1
            with pytest.raises(refusal):
                self.ledger.add(new, self.batch_names[batch], "me", self.now)
            return
        added = self.ledger.add(new, self.batch_names[batch], "me", self.now)
        doubles = self.model.add(new, batch, "me", added.ids, self.now)
        assert [(d.key, d.task) for d in added.duplicates] == doubles
        for double in added.duplicates:
            self.met["duplicate"] += 1
            assert double.state == self.seen.states.get(double.task, "new in this call")

    def _new(self, index: int, spec) -> NewTask:
        (kind, priority, requires, assignee, branch), exclusive, delay, key, after, luck, _ = spec
        known = list(self.model.tasks)
        names = [
            known[ref % len(known)] if isinstance(ref, int) and known else str(ref) for ref in after
        ]
        names = [name for name in names if not name.isdecimal() or len(name) == 12]
        return NewTask(
            f"task {index}",
            type=kind,
            priority=priority,
            requires=requires,
            assignee=assignee,
            branch=branch,
            exclusive=() if branch == NO_KEYS else exclusive,
            key=key,
            after=tuple(names),
            retries=luck % 2,
            start_at=None if delay is None else self.now + delay,
            inbox=luck == 9,
        )

    # Steps: the claim protocol

    @action(8, when="active", worker=st.sampled_from(WORKERS), limit=st.integers(1, 5))
    def claim(self, worker, limit):
        self.claim_some((worker, limit, EVERYTHING))

    @action(3, claim=CLAIMS)
    def claim_filtered(self, claim):
        self.claim_some(claim)

    def claim_some(self, claim):
        request = self._request(claim)
        leases = self.ledger.claim(request, self.now)
        # The choice among rivals for a key has been made before: those active are known.
        best = self.model.claimable(
            self.seen.in_state("active"), request.wanted, request.worker.name
        )[: request.limit]
        expected: list[str] = []
        busy: set[str] = set()
        for task_id in best:
            keys = self.model.tasks[task_id].keys
            if not busy & keys:
                expected.append(task_id)
                busy |= keys
        assert [lease.task.id for lease in leases] == expected
        self.met["claim beside a pause"] += bool(leases and self.model.pauses)
        self.met["held back by a pause"] += any(
            self.model.paused(task) and self.model.fits(task, request.wanted, request.worker.name)
            for task in map(self.model.tasks.__getitem__, self.seen.in_state("active"))
        )
        self._take(leases, request)

    @action(9, when="in_progress", verdicts=st.lists(VERDICTS, min_size=1, max_size=4))
    def settle(self, verdicts):
        made = [self._verdict(*verdict) for verdict in verdicts]
        self._check_answers(made, self.ledger.settle(made, self.now))

    @action(2, when="tokens", verdicts=st.lists(STALE, min_size=1, max_size=3))
    def settle_stale(self, verdicts):
        made = [self._verdict(*verdict) for verdict in verdicts]
        self._check_answers(made, self.ledger.settle(made, self.now))

    @action(
        4, when="in_progress", verdicts=st.lists(VERDICTS, min_size=1, max_size=2), claim=CLAIMS
    )
    def settle_and_claim(self, verdicts, claim):
        made = [self._verdict(*verdict) for verdict in verdicts]
        request = self._request(claim)
        answers, leases = self.ledger.settle_and_claim(made, request, self.now)
        self._check_answers(made, answers)
        taken = [lease.task.id for lease in leases]
        assert taken == sorted(taken, key=lambda t: self.model.tasks[t].rank)
        plain = [t.id for t in self.model.tasks.values() if self.model.state(t) == "active"]
        best = self.model.claimable(plain, request.wanted, request.worker.name)
        plain_taken = [t for t in taken if not self.model.tasks[t].keys]
        assert plain_taken == best[: len(plain_taken)]
        for task_id in taken:
            assert self.model.may_claim(
                self.model.tasks[task_id], request.wanted, request.worker.name
            )
        if not any(t.keys and self.model.state(t) is None for t in self.model.tasks.values()):
            assert taken == best[: request.limit]
        self._take(leases, request)

    @action(
        7,
        when="in_progress",
        pick=st.integers(0, 40),
        aim=st.sampled_from(["live"] * 9 + ["any"]),
        worker=st.sampled_from(WORKERS),
    )
    def turn_without_keys(self, pick, aim, worker):
        self.settle_and_claim([(pick, "complete", aim)], (worker, 1, ClaimFilter(branch=NO_KEYS)))

    @action(2, when="tokens", picks=PICKS)
    def heartbeat(self, picks):
        tokens = [
            self._foreign(token) if foreign and pick % 3 == 0 else token
            for pick, foreign in picks
            for token in [self.model.tokens[-1 - pick % len(self.model.tokens)]]
        ]
        held = self.ledger.heartbeat(tokens, 2 * LEASE, self.now)
        assert held == self.model.heartbeat(tokens, self.now + 2 * LEASE)
        self.met["heartbeat"] += len(held)
        self.met["heartbeat refused"] += len(set(tokens) - held)

    @action(4, when="in_progress", boot=BOOTS, pick=INDEX, renewed=st.integers(0, 5))
    def sweep(self, boot, pick, renewed):
        found = self.ledger.holders(boot, self.now)
        assert {holder.task: holder for holder in found} == self.model.holders(boot, self.now)
        assert [holder.until for holder in found] == sorted(holder.until for holder in found)
        if not found:
            return
        holder = sorted(found)[pick % len(found)]
        if renewed == 5:
            stale = [
                holder._replace(until=holder.until - 1),
                holder._replace(attempt=holder.attempt + 1),
            ]
            assert not self.ledger.reclaim(stale[pick % 2], "gone", self.now)
            return
        started = renewed != 4
        assert self.ledger.reclaim(holder, "gone", self.now, started)
        token = Token(holder.task, holder.attempt, "")
        event: EndEvent = "crash" if started else "release"
        state = self.model.end(holder.task, AttemptResult(token, event, reason="gone"))
        self.met[f"crash: {state}" if started else "released: not started"] += 1

    # Steps: chunks

    @action(4, when="tasks", number=st.integers(1, 4))
    def decide(self, number):
        batch = self.batches[CHUNKED]
        try:
            opened = self.model.decide(batch, number, "ann")
        except HypervisorError as refusal:
            self.met[f"decide refused: {refusal.code}"] += 1
            with pytest.raises(type(refusal)):
                self.ledger.decide_chunk(batch, number, "approved", "", "ann", self.now)
            return
        self.met["decide"] += 1
        self.met["chunk opened"] += opened is not None
        assert self.ledger.decide_chunk(batch, number, "approved", "", "ann", self.now) == (
            [opened] if opened else []
        )

    @action(3, when="closed", number=st.integers(1, 3), picks=PICKS)
    def retry_chunk(self, number, picks):
        batch, known = self.batches[CHUNKED], list(self.model.tasks)
        tasks = list(dict.fromkeys(known[pick % len(known)] for pick, _ in picks))
        try:
            count = self.model.retry_chunk(batch, number, tasks, "ann")
        except HypervisorError as refusal:
            with pytest.raises(type(refusal)):
                self.ledger.retry_chunk(batch, number, tasks, "why", "ann", self.now)
            return
        self.met["chunk retried"] += count > 0
        assert self.ledger.retry_chunk(batch, number, tasks, "why", "ann", self.now) == count

    # Steps: pausing

    @action(2, which=PAUSES)
    def pause(self, which):
        scope, name = self._which(which)
        overlap = len(self.model.pauses) > 0
        new = self.model.pause(scope, name, "ann")
        assert self.ledger.pause(Pause(scope, name, "why", "ann", 0), self.now) == new
        self.met["pause" if new else "paused twice"] += 1
        self.met["pauses overlap"] += new and overlap

    @action(4, when="paused", pick=INDEX)
    def resume(self, pick):
        scope, name = sorted(self.model.pauses)[pick % len(self.model.pauses)]
        assert self.model.resume(scope, name, "bob")
        assert self.ledger.resume(Pause(scope, name, "", "bob", 0), self.now)
        self.met["resume"] += 1

    @action(1, which=PAUSES)
    def resume_any(self, which):
        scope, name = self._which(which)
        old = self.model.resume(scope, name, "bob")
        assert self.ledger.resume(Pause(scope, name, "", "bob", 0), self.now) == old
        self.met["resume" if old else "not paused"] += 1

    @action(3, when="active", capabilities=st.sampled_from([("gpu",), ()]))
    def look_at_ready(self, capabilities):
        """By one ledger only: looking makes it read the lanes, which a claim must do itself."""
        found = self.ledger.ready(capabilities)
        active, run_batches = self.seen.in_state("active"), self.batches[1:2]
        assert found == self.model.ready(active, run_batches, capabilities)
        self.met["ready seen"] += len(found)
        self.met["ready seen beside a pause"] += bool(found and self.model.pauses)

    @action(2, when="active")
    def look_at_all_ready(self):
        active, run_batches = self.seen.in_state("active"), self.batches[1:2]
        found = self.ledger.ready(None)
        assert [each.rank for each in found] == sorted(each.rank for each in found)
        assert set(found) == self.model.ready_whatever_it_takes(active, run_batches)

    @action(2, when="tokens", pick=INDEX)
    def look_at_claims(self, pick):
        worker = WORKERS[0]
        held = self.ledger.claims_of(worker.id)
        assert [parse_token(each.token) for each in held] == self.model.claims_of(worker.id)
        assert all(each.task.lease_until == each.until for each in held)
        token = self.model.tokens[-1 - pick % len(self.model.tokens)]
        assert self.ledger.ended_claim(token) == self.model.ended_claim(token)
        self.met["claims seen"] += len(held)

    # Steps: steering

    @action(3, when="tasks", pick=INDEX, verb=VERBS)
    def steer(self, pick, verb):
        task = self._pick(pick)
        calls = {
            "cancel": (
                lambda: self.ledger.cancel(task, "no need", "me", self.now),
                lambda: self.model.cancel(task, "no need", "me"),
            ),
            "reopen": (
                lambda: self.ledger.reopen(task, "again", "me", self.now),
                lambda: self.model.reopen(task, "me"),
            ),
            "accept": (
                lambda: self.ledger.accept(task, "me", self.now),
                lambda: self.model.accept(task, "me", self.now),
            ),
            "take_back": (
                lambda: self.ledger.take_back(task, "hand over", "me", self.now),
                lambda: self.model.take_back(task, "hand over", "me"),
            ),
        }
        real, plain = calls[verb]
        try:
            plain()
        except WrongState:
            with pytest.raises(WrongState):
                real()
            return
        self.met[verb] += 1
        self._check_state(task, real())

    @action(6, when="closed", pick=INDEX, verb=BACK_VERBS)
    def bring_back(self, pick, verb):
        """Like `steer`, but aimed at a task for which it is possible."""
        fit = [
            t
            for t in self.model.tasks
            if self.model.tasks[t].state in BACK
            and (self.model.tasks[t].state == "inbox") == (verb == "accept")
        ]
        if fit:
            task = fit[pick % len(fit)]
            if verb == "accept":
                state = self.ledger.accept(task, "me", self.now)
                self.model.accept(task, "me", self.now)
            else:
                self.met["reopen done"] += self.model.tasks[task].state == "done"
                state = self.ledger.reopen(task, "", "me", self.now)
                self.model.reopen(task, "me")
            self._check_state(task, state)

    @action(4, when="tasks", pick=INDEX, changes=CHANGES)
    def update(self, pick, changes):
        task = self._pick(pick)
        if changes.start_at is not None:
            changes = changes._replace(start_at=self.now + changes.start_at)
        try:
            self.model.update(task, changes, "me", self.now)
        except WrongState:
            self.met["start refused"] += 1
            with pytest.raises(WrongState):
                self.ledger.update(task, changes, "me", self.now)
            return
        self._check_state(task, self.ledger.update(task, changes, "me", self.now))

    @action(4, when="tasks", pick=INDEX, needs=st.lists(INDEX, max_size=3))
    def update_after(self, pick, needs):
        task = self._pick(pick)
        changes = Changes(after=tuple(dict.fromkeys(self._pick(need) for need in needs)))
        try:
            self.model.update(task, changes, "me", self.now)
        except HypervisorError as refused:
            self.met[f"update refused: {refused.code}"] += 1
            with pytest.raises(type(refused)) as caught:
                self.ledger.update(task, changes, "me", self.now)
            if isinstance(caught.value, DependencyCycle):
                self._check_cycle(task, changes.after, caught.value.cycle)
            return
        self._check_state(task, self.ledger.update(task, changes, "me", self.now))

    # Steps: time and receipts

    @action(4, length=st.sampled_from([1, 6_000, LEASE, 110_000, WEEK // 2, WEEK]))
    def pass_time(self, length):
        self.now += length
        expected = self.model.promote_due(self.now)
        self.met["due"] += expected
        assert self.ledger.due(self.now) == bool(expected)
        assert self.ledger.promote_due(self.now) == expected

    @action(1, when="tasks", pick=INDEX, count=st.integers(1, 3))
    def append(self, pick, count):
        task = self._pick(pick)
        texts = [f"line {n} ü" for n in range(count)]
        self.ledger.append(task, "me", texts, self.now)
        self.model.append(task, texts, "me", None)
        self._check_receipts()

    @action(2, when="tokens", pick=INDEX, foreign=st.integers(0, 4))
    def append_under_claim(self, pick, foreign):
        token = self.model.tokens[-1 - pick % len(self.model.tokens)]
        if foreign == 4:
            token = self._foreign(token)
        try:
            self.model.append_under_claim(token, ["under claim"])
        except LeaseLost:
            self.met["receipt refused"] += 1
            with pytest.raises(LeaseLost):
                self.ledger.append_under_claim(token, ["under claim"], self.now)
            return
        self.ledger.append_under_claim(token, ["under claim"], self.now)
        self._check_receipts()

    # After every step

    @invariant()
    def agrees(self):
        seen = self.seen = invariants.Seen(self.store, self.seen.last)
        invariants.check_tasks(self.model, seen)
        invariants.check_leases(self.model, seen)
        invariants.check_keys(self.model, seen)
        invariants.check_pauses(self.model, seen)
        invariants.check_events(self.model, self.replayed, seen, self.now)
        self.met.update(event.kind for event in seen.events)
        self.unread += seen.events
        if self.turn % READ_EVERY == 0:
            self.read_events()
        self.model.events.clear()
        self.agreed = True
        self.now += 1
        if self.turn:
            LedgerMachine.steps += 1

    def read_events(self):
        """Reading numbers events on PostgreSQL, which takes a transaction: not at every step."""
        invariants.check_numbers(self.ledgers[0].events(self.told, 10_000), self.unread, self.told)
        self.told += len(self.unread)
        self.unread = []

    def teardown(self):
        if self.agreed:  # otherwise the step that went wrong is the thing to report
            self.read_events()
            assert self.store.integrity() == "ok"

    # Helpers

    def _pick(self, index: int) -> str:
        return list(self.model.tasks)[index % len(self.model.tasks)]

    def _which(self, which) -> tuple[str, str]:
        scope, name = which
        return scope, self.batches[name] if scope == "batch" else name

    def _request(self, claim) -> ClaimRequest:
        worker, limit, wanted = claim
        if wanted.batch:
            wanted = wanted._replace(batch=self.batches[1])
        return ClaimRequest(worker, limit, LEASE, wanted)

    def _verdict(self, pick: int, event: str, aim: str) -> AttemptResult:
        tokens = self.model.tokens
        if aim == "live":
            tokens = [token for token in tokens if self.model.holds(token)] or tokens
        if aim == "no task" or not tokens:
            return AttemptResult(Token("0" * 12, 1, "0000"), "complete")
        token = tokens[-1 - pick % len(tokens)]
        if aim == "foreign":
            token = self._foreign(token)
        if aim == "other attempt":
            token = token._replace(attempt=token.attempt + (1 if pick % 2 else -1))
        event, _, when = event.partition(" ")
        delay = {"": None, "soon": 5_000, "later": 100_000}[when]
        return AttemptResult(
            token,
            cast(EndEvent, event),
            result={"ok": True} if event == "complete" else None,
            reason=None if event == "complete" else f"{event} it",
            unblock="ask ann" if event == "block" else None,
            retry_at=None if delay is None else self.now + delay,
        )

    @staticmethod
    def _foreign(token: Token) -> Token:
        return token._replace(nonce="0000" if token.nonce != "0000" else "1111")

    def _check_answers(self, verdicts, answers) -> None:
        assert len(answers) == len(verdicts)
        for verdict, answer in zip(verdicts, answers, strict=True):
            how, outcome, state = self.model.settle(verdict)
            self.met[f"{how} {outcome or ''}"] += 1
            assert (answer.token, answer.task) == (str(verdict.token), verdict.token.task)
            assert (answer.lost is not None) == (how == "lost"), (answer, how)
            if how != "lost":
                assert answer.outcome == outcome
                assert answer.repeated == (how == "repeated")
                assert answer.state == (state or answer.state)
                assert state or answer.state in ("waiting", "active")
                attempt = self.model.tasks[verdict.token.task].attempts[verdict.token.attempt - 1]
                attempt.answered = answer.state

    def _take(self, leases, request) -> None:
        for lease in leases:
            self.met["claim keyed" if self.model.tasks[lease.task.id].keys else "claim"] += 1
            token = parse_token(lease.token)
            assert lease.until == self.now + request.lease == lease.task.lease_until
            assert lease.task.state == "in_progress" and lease.task.attempts == token.attempt
            self.model.claim(lease.task.id, token, request.worker, lease.until)

    def _check_state(self, task: str, state: str) -> None:
        expected = self.model.state(self.model.tasks[task])
        assert state == expected or (expected is None and state in ("waiting", "active"))

    def _check_cycle(self, task: str, needs, cycle: list[str]) -> None:
        assert cycle[0] == cycle[-1] == task and len(set(cycle)) == len(cycle) - 1
        for lower, upper in pairwise(cycle):
            assert upper in (needs if lower == task else self.model.tasks[lower].needs)

    def _check_receipts(self) -> None:
        reports = self.ledger.check_receipts(None)
        assert all(report.problem is None for report in reports)
        assert {r.chain: r.receipts for r in reports} == {
            chain: len(texts) for chain, texts in self.model.chains.items()
        }
        for chain, texts in self.model.chains.items():
            assert [r.text for r in self.ledger.receipts_of_chain(chain)] == texts


@lru_cache
def _choice(possible: frozenset[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(
        [
            name
            for name, (weight, when, _) in ACTIONS.items()
            if when in possible
            for _ in range(weight)
        ]
    )


def test_the_ledger_agrees_with_the_model(store, long, request, capsys, monkeypatch):
    monkeypatch.setattr(randomness, "entropy", randomness.entropy)  # put back at the end
    monkeypatch.setattr(randomness, "nonces", randomness.nonces)
    wanted = STEPS_LONG if long else STEPS
    repeat = request.config.getoption("--machine-seed")
    first = repeat or random.SystemRandom().randrange(2**32)
    LedgerMachine.store = store
    LedgerMachine.databases = [_watched(store.database()), _watched(store.database())]
    LedgerMachine.steps = 0
    LedgerMachine.met = Counter()
    began = time.monotonic()
    number = first
    try:
        while LedgerMachine.steps < wanted or (_missing() and LedgerMachine.steps < 5 * wanted):
            run_state_machine_as_test(seed(number)(LedgerMachine), settings=_settings(repeat))
            number += 1
    except BaseException:
        print(f"repeat and shrink with: --machine-seed {number}")
        raise
    finally:
        for database in LedgerMachine.databases:
            database.close()
    with capsys.disabled():
        took = time.monotonic() - began
        print(f"\n{store.kind}: {LedgerMachine.steps} steps in {took:.0f} s, from seed {first}")
    assert LedgerMachine.steps >= wanted
    assert not _missing(), "some situations were never met"


def _missing():
    """The situations that nobody has met yet; the rarest come up some eight times in a run."""
    return SITUATIONS - set(+LedgerMachine.met)


def _watched(database):
    """Counts what takes the fast path."""
    really_run = database.run

    def run(path):
        row = really_run(path)
        LedgerMachine.met["no fast path" if row is None else "fast path"] += 1
        LedgerMachine.met["fast path with nothing left"] += row is not None and row[0] is None
        return row

    database.run = run
    return database


def _settings(repeat: int | None) -> settings:
    """A failing history is shrunk, which takes minutes, only when it is repeated by its seed."""
    return settings(
        max_examples=EXAMPLES_PER_ROUND,
        stateful_step_count=STEPS_PER_EXAMPLE,
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink) if repeat else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
