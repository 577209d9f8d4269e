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

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from hypervisor.core import randomness
from hypervisor.queue.sql import picking
from tests.queue.machine_claims import ClaimSteps
from tests.queue.machine_merging import MergingSteps
from tests.queue.machine_steering import SteeringSteps

STEPS = {"sqlite": 20_000, "postgres": 10_000}  # five times slower on PostgreSQL
STEPS_LONG = 200_000
STEPS_PER_EXAMPLE = 60
EXAMPLES_PER_ROUND = 25
LIMITS = picking.MAX_TRIED, picking.MAX_SKIPPED

# A run that never had one of these situations proves little. (`+Counter` drops the zeros.)
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
    "fast path from any lane",
    "picked among the first",
    "picked by the heads of lanes",
    "no fast path",
    "counts folded",
    "decide",
    "chunk opened",
    "claims seen",
    "decide refused: wrong_state",
    "decide refused: not_found",
    "chunk retried",
    "submit",
    "merge",
    "rework",
    "ask",
    "approve",
    "reject",
    "merger is late",
    "not in review",
}


class LedgerMachine(ClaimSteps, SteeringSteps, MergingSteps):
    pass


def test_the_ledger_agrees_with_the_model(store, long, request, capsys, monkeypatch):
    monkeypatch.setattr(randomness, "entropy", randomness.entropy)  # put back at the end
    monkeypatch.setattr(randomness, "nonces", randomness.nonces)
    wanted = STEPS_LONG if long else STEPS[store.kind]
    repeat = request.config.getoption("--machine-seed")
    first = repeat or random.SystemRandom().randrange(2**32)
    LedgerMachine.store = store
    LedgerMachine.databases = [_watched(store.database()), _watched(store.database())]
    LedgerMachine.steps = 0
    LedgerMachine.met = Counter()
    _count_picks(monkeypatch)
    began = time.monotonic()
    number = first
    try:
        while LedgerMachine.steps < wanted or (_missing() and LedgerMachine.steps < 5 * wanted):
            _limit_lanes(monkeypatch, number)
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
    """The situations that have not occurred yet; the rarest occur about eight times in a run."""
    return SITUATIONS - set(+LedgerMachine.met)


def _limit_lanes(monkeypatch, number):
    """In every second round a few lanes count as many, a few tasks in front as too many."""
    tried, skipped = (1, 2) if number % 2 else LIMITS
    monkeypatch.setattr(picking, "MAX_TRIED", tried)
    monkeypatch.setattr(picking, "MAX_SKIPPED", skipped)


def _count_picks(monkeypatch):
    """Counts in which way tasks are found."""

    def count(name, situation):
        really_pick = getattr(picking, name)

        def pick(*args):
            rows = really_pick(*args)
            LedgerMachine.met[situation] += bool(rows)
            return rows

        monkeypatch.setattr(picking, name, pick)

    count("_pick_among_first", "picked among the first")
    count("_pick_from_ready", "picked by the heads of lanes")


def _watched(database):
    """Counts what takes the fast path."""
    really_run = database.run

    def run(path):
        row = really_run(path)
        LedgerMachine.met["no fast path" if row is None else "fast path"] += 1
        LedgerMachine.met["fast path with nothing left"] += row is not None and row[0] is None
        LedgerMachine.met["fast path from any lane"] += row is not None and not path.lanes
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
