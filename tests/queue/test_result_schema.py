"""`--schema` is enforced: data that does not match is refused once, then the task fails."""

from __future__ import annotations

import json

import pytest

from hypervisor.core.errors import InvalidInput, SchemaMismatch
from hypervisor.queue.claim import complete
from hypervisor.queue.lease import AttemptResult
from hypervisor.queue.result_schema import check_schema, mismatch_of
from hypervisor.queue.steer import retry
from hypervisor.runs.check_spec import check_spec
from hypervisor.runs.spec import agent_of
from tests.support.specs import changed, run_spec
from tests.support.submitted_runs import claim, hv, run

__all__ = ["hv"]
SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "names": {"items": {"type": "string"}}},
    "required": ["count"],
}
SPEC = run_spec("/", agent="claude", agents=("claude",), prompt="do it", schema=json.dumps(SCHEMA))


@pytest.mark.parametrize(
    "result, mismatch",
    [
        ({"data": {"count": 1}}, None),
        ({"data": {"count": "x"}}, "data.count: 'x' is not of type 'integer'"),
        ({"data": {"count": 1, "names": ["a", 2]}}, "data.names[1]: 2 is not of type 'string'"),
        ({"data": {}}, "data: 'count' is a required property"),
        ({"summary": "no data"}, "data is missing"),
        (None, "data is missing"),
    ],
)
def test_the_first_mismatch_is_named(result, mismatch):
    assert mismatch_of(agent_of(SPEC).schema, result) == mismatch


def test_a_mismatch_is_never_long():
    found = mismatch_of(agent_of(SPEC).schema, {"data": {"count": "x" * 10_000}})
    assert found is not None and len(found) == 500


def test_nothing_is_fetched_for_a_schema():
    schema = json.dumps({"$ref": "http://127.0.0.1:9/schema.json"})
    found = mismatch_of(schema, {"data": 1})
    assert found is not None and "http://127.0.0.1:9/schema.json" in found


@pytest.mark.parametrize("wrong", [{"type": "strin"}, {"properties": {"a": {"minimum": "x"}}}])
def test_a_schema_that_is_none_is_refused_before_anything_starts(wrong):
    with pytest.raises(InvalidInput, match="invalid JSON Schema"):
        check_schema(json.dumps(wrong))
    with pytest.raises(InvalidInput, match="invalid JSON Schema"):
        check_spec(changed(SPEC, schema=json.dumps(wrong)))


def test_data_that_does_not_fit_is_refused_once_then_the_task_fails(hv):
    run(hv, "a", spec=SPEC)
    (token,) = claim(hv)
    with pytest.raises(SchemaMismatch, match=r"data.count: 'x' is not of type 'integer'.*again"):
        complete(hv, str(token), {"data": {"count": "x"}})
    assert hv.store.task(token.task).state == "in_progress"
    with pytest.raises(SchemaMismatch, match=r"data is missing.*has failed"):
        complete(hv, str(token))
    task = hv.store.task(token.task)
    assert task.state == "failed"
    assert task.reason == "the data does not match the schema: data is missing"
    texts = [each.text for each in hv.store.receipts_of_task(task.id)]
    assert len(texts) == 2 and all("does not match" in text for text in texts)


def test_data_that_was_corrected_is_taken(hv):
    run(hv, "a", spec=SPEC)
    (token,) = claim(hv)
    with pytest.raises(SchemaMismatch):
        complete(hv, str(token), {"count": "x"})
    assert complete(hv, str(token), {"count": 2}).state == "done"
    assert hv.store.task(token.task).result == {"data": {"count": 2}}
    assert complete(hv, str(token), {"count": "x"}).repeated, "the first answer stays"


def test_who_tries_again_after_a_failure_has_both_chances(hv):
    run(hv, "a", spec=SPEC)
    (token,) = claim(hv)
    with pytest.raises(SchemaMismatch):
        complete(hv, str(token), {"count": "x"})
    hv.store.settle([AttemptResult(token, "fail", reason="so")])
    retry(hv, token.task)
    (token,) = claim(hv)
    with pytest.raises(SchemaMismatch, match="again"):
        complete(hv, str(token), {"count": "x"})


def test_without_a_schema_any_result_will_do(hv):
    run(hv, "a", spec=changed(SPEC, schema=""))
    (token,) = claim(hv)
    assert complete(hv, str(token), "anything").state == "done"
    assert hv.store.task(token.task).result == "anything"
