"""Steps of the state machine that add tasks, claim them and end attempts."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, EndEvent, Token
from hypervisor.queue.task import NewTask
from tests.queue.machine import QueueMachine, action
from tests.queue.machine_draws import (
    BATCH,
    BOOTS,
    CHUNKED,
    CLAIMS,
    EVERYTHING,
    INDEX,
    LEASE,
    NO_KEYS,
    PICKS,
    SPECS,
    STALE,
    VERDICTS,
    WORKERS,
)


class ClaimSteps(QueueMachine):
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
