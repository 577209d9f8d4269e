"""Text that can be stored is returned exactly; all other text is refused and leaves no trace."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hypervisor
from hypervisor.core import validate

ANYTHING = st.text(st.characters(), max_size=60)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANYTHING,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANYTHING, inner, max_size=3),
    max_leaves=8,
)


def can_be_kept(text, empty):
    try:
        validate.text("it", text, validate.MAX_TITLE_LENGTH, empty)
    except hypervisor.RequestError:
        return False
    return True


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    with hypervisor.open(tmp_path_factory.mktemp("round") / "x.db", relaxed=True) as opened:
        yield opened


@settings(max_examples=400, deadline=None)
@given(title=ANYTHING, body=ANYTHING, key=st.none() | ANYTHING, data=JSON)
def test_add_and_show(ledger, title, body, key, data):
    new = hypervisor.NewTask(title, body=body, key=key, data=data)
    before = ledger.stats().total
    kept = all(
        [can_be_kept(title, False), can_be_kept(body, True), key is None or can_be_kept(key, False)]
    )
    if not kept:
        with pytest.raises(hypervisor.RequestError):
            ledger.add([new])
        assert ledger.stats().total == before
        return
    added = ledger.add([new])
    task = added.ids[0] if added.ids else added.duplicates[0].task
    found = ledger.show(task).detail.task
    assert found.key == key
    if added.ids:
        assert (found.title, found.body, found.data) == (title, body, data)


@settings(max_examples=100, deadline=None)
@given(reason=ANYTHING, result=JSON, line=ANYTHING)
def test_verdicts_and_receipts(ledger, reason, result, line):
    (task,) = ledger.add([hypervisor.NewTask("x", type="verdict", retries=1)]).ids
    (lease,) = ledger.claim("me", types=["verdict"])
    if can_be_kept(line, False):
        (receipt,) = ledger.receipt(lease.token, [line])
        assert ledger.show(task).receipts == (receipt,) and receipt.text == line
    if can_be_kept(reason, False):
        ledger.block(lease.token, reason, reason)
        found = ledger.show(task).detail
        assert (found.task.reason, found.task.unblock) == (reason, reason)
        assert found.attempts[0].reason == reason
        ledger.retry(task, reason)
        (lease,) = ledger.claim("me", types=["verdict"])
    ledger.complete(lease.token, result)
    assert ledger.show(task).detail.task.result == result
    assert all(report.problem is None for report in ledger.verify())


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(title=ANYTHING, data=JSON)
def test_through_the_command_line(hv, title, data):
    """Arguments cannot hold NUL, and what is not UTF-8 is refused."""
    title = title.replace("\0", "")
    given = json.dumps(data)
    if not can_be_kept(title, False):
        hv.refused(2, "add", f"--data={given}", "--", title.encode("utf-8", "surrogatepass"))
        return
    task = hv.ok("add", f"--data={given}", "--", title).strip()
    kept = hv.task(task)
    assert (kept["title"], kept["data"]) == (title, data)
    people = hv.ok("show", task)
    assert all(c.isprintable() or c in "\n\u200c\u200d" for c in people)
