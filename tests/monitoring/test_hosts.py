"""Hosts with workers, and what agents cost per day, on both databases."""

from __future__ import annotations

from hypervisor.queue.agent_session import Figures, NewSession, Tokens
from hypervisor.queue.sql import agent_sessions
from hypervisor.runs import sql
from tests.support.given import ANN, NOW

DAY = agent_sessions.DAY


def test_hosts_are_those_whose_workers_have_not_signed_off(ledger):
    ledger.add([], "b", "me", NOW)
    batch = ledger.batch("b").id
    assert ledger.read(sql.hosts) == []
    ledger.register(ANN, batch, NOW)
    other = ANN._replace(id="w-other", host="there", boot="boot2")
    ledger.register(other, batch, NOW + 1)
    here, there = ledger.read(sql.hosts)
    assert (here.host, here.workers, here.since) == (ANN.host, 1, NOW)
    assert (there.host, there.boot) == ("there", "boot2")
    ledger.retire(other.id, NOW + 2)
    assert [host.host for host in ledger.read(sql.hosts)] == [ANN.host]


def test_costs_are_summed_up_by_agent_and_day(ledger):
    for at, agent in ((NOW, "a"), (NOW + 1, "a"), (NOW + DAY, "b")):
        new = NewSession(agent, "acc", "batch", "worker")
        session = ledger.write(agent_sessions.open_session, new, at)
        figures = Figures(Tokens(10, 5, 1), 2_000, False, 1)
        ledger.write(agent_sessions.update, session, "", figures)
    days = ledger.read(agent_sessions.by_day, 0)
    assert [(day.agent, day.runs, day.tokens, day.cost_micros) for day in days] == [
        ("b", 1, 16, 2_000),
        ("a", 2, 32, 4_000),
    ]
    assert days[0].day - days[1].day == DAY
    assert [day.agent for day in ledger.read(agent_sessions.by_day, NOW + DAY)] == ["b"]
