"""Steps of the state machine that decide, pause, look, steer, wait and write receipts."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from hypervisor.core.errors import DependencyCycle, HypervisorError, LeaseLost, WrongState
from hypervisor.queue.lease import parse_token
from hypervisor.queue.pause import Pause
from hypervisor.queue.sql import counts
from hypervisor.queue.task import Changes
from tests.queue.machine import QueueMachine, action
from tests.queue.machine_draws import (
    BACK,
    BACK_VERBS,
    CHANGES,
    CHUNKED,
    INDEX,
    LEASE,
    PAUSES,
    PICKS,
    VERBS,
    WORKERS,
)
from tests.queue.model_state import WEEK


class SteeringSteps(QueueMachine):
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

    # Steps: keeping the counts

    @action(2, when="tasks", numbered=st.booleans())
    def fold_counts(self, numbered):
        self.met["counts folded"] += 1
        self.ledger.write(counts.fold_all if numbered else counts.fold)

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
        """By one ledger only: this makes it read the lanes, which a claim must do itself."""
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
