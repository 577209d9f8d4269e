"""The state machine without its steps: a store, the model beside it, and what is compared."""

from __future__ import annotations

import random
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hypervisor.core import ids, randomness
from hypervisor.queue import settle
from hypervisor.queue.lease import AttemptResult, ClaimRequest, EndEvent, Token, parse_token
from hypervisor.queue.sql import lanes
from tests.queue import invariants
from tests.queue.machine_draws import BACK, CHUNKED, LEASE, MAX_TASKS, MERGING, WORKERS
from tests.queue.model import Model
from tests.support.databases import Store
from tests.support.ledger import Ledger

READ_EVERY = 5
START = 1_800_000_000_000
ACTIONS: dict[str, tuple[int, str, st.SearchStrategy]] = {}


def action(weight: int, when: str = "", **arguments: st.SearchStrategy):
    """A kind of step, how often it is taken, and its precondition.

    Not `@rule`: of those, Hypothesis leaves out some in each example, and histories without
    a claim or an add show little.
    """

    def remember(function):
        ACTIONS[function.__name__] = (weight, when, st.fixed_dictionaries(arguments))
        return function

    return remember


class QueueMachine(RuleBasedStateMachine):
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
            ledger.caches.of(settle.ClaimMemory).agents.add(WORKERS[0].id)
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
        self.ledgers[0].write(lanes.set_merges, self.batches[MERGING], True)
        self.model.merging_batches = {self.batches[MERGING]}
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
            "room": len(self.model.tasks) < MAX_TASKS,
            "tokens": bool(self.model.tokens),
            "active": "active" in states,
            "in_progress": "in_progress" in states,
            "closed": bool(BACK & states),
            "merging": "merging" in states,
            "review": "review" in states,
            "paused": bool(self.model.pauses),
        }
        return frozenset(when for when, possible in there.items() if possible)

    # After every step

    @invariant()
    def agrees(self):
        seen = self.seen = invariants.Seen(self.store, self.seen.last)
        invariants.check_tasks(self.model, seen)
        invariants.check_leases(self.model, seen)
        invariants.check_keys(self.model, seen)
        invariants.check_pauses(self.model, seen)
        invariants.check_submissions(self.model, seen)
        if self.store.kind == "sqlite" or self.turn % READ_EVERY == 0:
            invariants.check_counts(self.ledgers[0], seen)
        invariants.check_events(self.model, self.replayed, seen, self.now)
        self.met.update(event.kind for event in seen.events)
        self.unread += seen.events
        if self.turn % READ_EVERY == 0:
            self.read_events()
        self.model.events.clear()
        self.agreed = True
        self.now += 1
        if self.turn:
            type(self).steps += 1

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
