"""The tables of pipelines, on both databases."""

from __future__ import annotations

import pytest

from hypervisor.batches.sql import pipelines
from hypervisor.batches.sql.pipelines import Pipeline

ONE = Pipeline(("b1", "b2"), "b3", "t1", fail_fast=True)


@pytest.fixture
def database(ledger):
    return ledger._db


def test_every_batch_knows_its_pipeline(database):
    database.write(pipelines.save, ONE)
    assert [database.read(pipelines.of_batch, batch) for batch in ONE.batches] == [ONE] * 3
    assert database.read(pipelines.of_batch, "b4") is None
    other = Pipeline(("b1", "b4"))
    database.write(pipelines.save, other)
    found = [database.read(pipelines.of_batch, f"b{n}") for n in (1, 2, 3, 4)]
    assert found == [other, None, None, other]
    database.write(pipelines.remove, "b1")
    assert database.read(pipelines.of_batch, "b4") is None


def test_a_reduce_is_pending_until_the_last_submission_is_released(database):
    database.write(pipelines.save, ONE)
    assert database.read(pipelines.pending) == []
    for _ in range(2):
        database.write(pipelines.save, ONE, pending=True)
    assert database.read(pipelines.pending) == ["b1"]
    assert database.read(pipelines.pending_submission, "b1") == 2
    database.write(pipelines.release, "b1", 1)
    assert database.read(pipelines.pending) == ["b1"]
    database.write(pipelines.release, "b1", 2)
    database.write(pipelines.release, "b1", 1)
    assert database.read(pipelines.pending_submission, "b1") == 0
    database.write(pipelines.save, ONE, pending=True)
    database.write(pipelines.save, Pipeline(("b1",)))
    assert database.read(pipelines.pending) == []


def test_what_a_reduce_was_given_is_kept_while_its_claim_lasts(ledger, add, claim, settle):
    add("a")
    token = claim()
    assert ledger.reduce_input(token.task) is None
    assert ledger.set_reduce_input(token, "1")
    assert not ledger.set_reduce_input(token._replace(nonce="0" * 16), "2")
    settle(token, "release")
    assert not ledger.set_reduce_input(token, "3")
    assert ledger.reduce_input(token.task) == "1"


def test_a_release_does_not_count_for_a_pipeline_that_came_later(database):
    for _ in range(5):
        database.write(pipelines.save, ONE, pending=True)
    under_way = database.read(pipelines.pending_submission, "b1")
    database.write(pipelines.remove, "b1")
    assert database.read(pipelines.pending) == []
    database.write(pipelines.save, ONE, pending=True)
    database.write(pipelines.release, "b1", under_way)
    assert database.read(pipelines.pending) == ["b1"]


def test_a_pipeline_whose_batches_belong_to_another_is_none(database):
    database.write(pipelines.save, ONE)
    database.write(pipelines.save, Pipeline(("c1", "b1", "b2")))
    assert database.read(pipelines.of_batch, "b3") is None
    assert database.read(pipelines.of_batch, "b1") == Pipeline(("c1", "b1", "b2"))
