"""Random histories of sessions, brakes and cursors against plain dictionaries, on both databases.

Two ledgers take turns, as several processes on one store do.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.sql.cooldowns import NEWS
from hypervisor.queue.agent_session import AgentSession, NewSession, Spent, Tokens
from hypervisor.queue.event import Cursor
from tests.support.databases import Store
from tests.support.ledger import Ledger

START = 1_800_000_000_000
FIGURES: dict[str, Any] = {
    "tokens": st.builds(Tokens, st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)),
    "cost": st.none() | st.integers(0, 10**12),
    "estimated": st.booleans(),
    "turns": st.integers(0, 9),
    "pick": st.integers(0, 99),
}
BATCHES, TASKS, WORKERS = ("b1", "b2"), ("", "t1", "t2"), ("w1", "w2")
ACCOUNTS = st.sampled_from(["a:1", "a:2", "b:login"])
NAMES = st.sampled_from(["mail", "log"])


class AgentMachine(RuleBasedStateMachine):
    store: ClassVar[Store]
    ledgers: ClassVar[list[Ledger]]

    def __init__(self) -> None:
        super().__init__()
        self.store.wipe()
        self.now, self.turn = START, 0
        self.sessions: dict[str, AgentSession] = {}
        self.cooldowns: dict[str, Cooldown] = {}
        self.cursors: dict[str, Cursor] = {}
        self.kinds: list[str] = []

    @property
    def ledger(self) -> Ledger:
        self.turn += 1
        return self.ledgers[self.turn % len(self.ledgers)]

    def pick(self, number: int) -> AgentSession:
        return list(self.sessions.values())[number % len(self.sessions)]

    @rule(
        batch=st.sampled_from(BATCHES),
        task=st.sampled_from(TASKS),
        worker=st.sampled_from(WORKERS),
        resumes=st.sampled_from(["", "s0"]),
    )
    def open(self, batch, task, worker, resumes):
        new = NewSession("claude", "a:1", batch, worker, task, 1 if task else 0, resumes)
        made = self.ledger.open_session(new, self.now)
        self.sessions[made] = AgentSession(
            made, *new[:-1], "", self.now, None, None, Tokens(), None, False, 0
        )
        self.kinds.append("session")

    @precondition(lambda self: self.sessions)
    @rule(name=st.sampled_from(["", "s1", "s2"]), **FIGURES)
    def hear(self, name, tokens, cost, estimated, turns, pick):
        meant = self.pick(pick)
        self.ledger.hear_session(meant.id, name, tokens, cost, estimated, turns, self.now)
        if meant.outcome is None:
            self.sessions[meant.id] = meant._replace(
                session=name or meant.session,
                tokens=tokens,
                cost_micros=cost,
                estimated=estimated,
                turns=turns,
            )

    @precondition(lambda self: self.sessions)
    @rule(outcome=st.sampled_from(["completed", "quota", "crashed"]), **FIGURES)
    def close(self, outcome, tokens, cost, estimated, turns, pick):
        meant = self.pick(pick)
        self.ledger.close_session(meant.id, outcome, tokens, cost, estimated, turns, self.now)
        if meant.outcome is None:
            self.sessions[meant.id] = meant._replace(
                ended_at=self.now,
                outcome=outcome,
                tokens=tokens,
                cost_micros=cost,
                estimated=estimated,
                turns=turns,
            )
            self.kinds.append("session_end")

    @rule(
        account=ACCOUNTS,
        length=st.integers(-50, 100) | st.integers(0, 3 * NEWS),
        level=st.integers(0, 3),
    )
    def cooldown(self, account, length, level):
        new = Cooldown(account, self.now + length, level, "429", self.now)
        self.ledger.start_cooldown(new, "w1", self.now)
        old = self.cooldowns.get(account)
        if old is None or new.until >= old.until + NEWS or new.since >= old.until:
            self.cooldowns[account] = new
            self.kinds.append("cooldown")

    @rule(account=ACCOUNTS)
    def lift(self, account):
        assert self.ledger.end_cooldown(account, "me", self.now) == (account in self.cooldowns)
        if self.cooldowns.pop(account, None):
            self.kinds.append("cooldown_end")

    @rule(name=NAMES, number=st.integers(0, 99))
    def move(self, name, number):
        self.ledger.move_cursor(name, number, self.now)
        if name not in self.cursors or self.cursors[name].number < number:  # never back
            self.cursors[name] = Cursor(name, number, self.now)

    @rule(
        batch=st.sampled_from([None, *BATCHES]),
        task=st.sampled_from([None, *TASKS]),
        worker=st.sampled_from([None, *WORKERS]),
        back=st.integers(0, 20),
    )
    def look(self, batch, task, worker, back):
        def chosen(*fields: Any) -> list[AgentSession]:
            wanted = [(name, value) for name, value in fields if value is not None]
            return [
                each
                for each in sorted(self.sessions.values(), reverse=True)
                if all(getattr(each, name) == value for name, value in wanted) and task != ""
            ]

        of = (("batch", batch), ("task", task))
        assert self.ledger.sessions(batch, task, worker) == chosen(*of, ("worker", worker))
        since = self.now - back
        assert self.ledger.spent(batch, task, since) == _sum(
            [each for each in chosen(*of) if each.started_at >= since]
        )

    @invariant()
    def agrees(self):
        assert self.ledger.sessions() == sorted(self.sessions.values(), reverse=True)
        assert self.ledger.spent() == _sum(list(self.sessions.values()))
        assert self.ledger.cooldowns() == sorted(self.cooldowns.values())
        assert self.ledger.cursors() == sorted(self.cursors.values())
        assert [self.ledger.cursor(name) for name in ("mail", "log")] == [
            self.cursors[name].number if name in self.cursors else 0 for name in ("mail", "log")
        ]
        self.now += 1

    def teardown(self):
        (last,) = self.store.query("SELECT kind FROM events ORDER BY id")
        assert [kind for (kind,) in last] == self.kinds


def _sum(sessions: list[AgentSession]) -> Spent:
    return Spent(
        sum(sum(each.tokens) for each in sessions),
        sum(each.cost_micros or 0 for each in sessions),
        any(each.estimated and each.cost_micros for each in sessions),
        sum(each.cost_micros is None and sum(each.tokens) > 0 for each in sessions),
    )


def test_agents_agree_with_the_model(store):
    databases = [store.database(), store.database()]
    AgentMachine.store = store
    AgentMachine.ledgers = [Ledger(each) for each in databases]
    try:
        run_state_machine_as_test(
            AgentMachine,
            settings=settings(
                max_examples=30,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        for each in databases:
            each.close()
