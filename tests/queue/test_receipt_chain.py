"""The chain of receipts: any single change, removal, insertion or swap is found."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hypervisor.queue.receipt import GENESIS, ChainHead, Entry, Receipt, seal, verify

LINES = st.lists(
    st.tuples(
        st.sampled_from(["t1", "t2"]),
        st.integers(0, 3),
        st.integers(0, 9),
        st.sampled_from(["ann", "bob", ""]),
        st.text(max_size=5),
    ),
    min_size=1,
    max_size=8,
)
CHANGES = {
    "chain": st.just("other"),
    "number": st.integers(-1, 20),
    "task": st.text(max_size=3),
    "attempt": st.integers(0, 5),
    "at": st.integers(0, 20),
    "actor": st.text(max_size=5),
    "text": st.text(max_size=6),
    "hash": st.text(max_size=64),
}


def sealed(head, task, attempt, at, actor, text):
    return seal(head, Entry(task, attempt, actor, text), at)


def write(lines):
    head = ChainHead("c", 0, GENESIS)
    receipts = []
    for line in lines:
        receipts.append(sealed(head, *line))
        head = ChainHead("c", receipts[-1].number, receipts[-1].hash)
    return head, receipts


@given(LINES)
def test_an_untouched_chain_holds(lines):
    head, receipts = write(lines)
    assert verify(head, receipts) == ("c", len(lines), head.hash, None)


@given(LINES, st.data())
def test_a_changed_line_is_found(lines, data):
    head, receipts = write(lines)
    index = data.draw(st.integers(0, len(lines) - 1))
    field = data.draw(st.sampled_from(sorted(CHANGES)))
    value = data.draw(CHANGES[field])
    assume(value != getattr(receipts[index], field))
    receipts[index] = receipts[index]._replace(**{field: value})
    assert verify(head, receipts).problem


@given(LINES, st.data())
def test_a_changed_line_is_found_even_with_a_fresh_hash(lines, data):
    """Rewriting one line consistently breaks the next one, or the head."""
    head, receipts = write(lines)
    index = data.draw(st.integers(0, len(lines) - 1))
    before = receipts[index - 1].hash if index else GENESIS
    old = receipts[index]
    forged = sealed(
        ChainHead("c", index, before), old.task, old.attempt, old.at, old.actor, old.text + "!"
    )
    receipts[index] = forged
    assert verify(head, receipts).problem


@given(LINES, st.data())
def test_a_removed_line_is_found(lines, data):
    head, receipts = write(lines)
    del receipts[data.draw(st.integers(0, len(lines) - 1))]
    assert verify(head, receipts).problem


@given(LINES, st.data())
def test_a_removed_line_is_found_even_with_the_rest_renumbered(lines, data):
    head, receipts = write(lines)
    del receipts[data.draw(st.integers(0, len(lines) - 1))]
    renumbered = [receipt._replace(number=n) for n, receipt in enumerate(receipts, 1)]
    assert verify(head, renumbered).problem


@given(LINES, st.data())
def test_two_lines_swapped_are_found(lines, data):
    head, receipts = write(lines)
    assume(len(lines) > 1)
    a, b = sorted(data.draw(st.sets(st.integers(0, len(lines) - 1), min_size=2, max_size=2)))
    receipts[a], receipts[b] = receipts[b], receipts[a]
    assert verify(head, receipts).problem
    renumbered = [receipt._replace(number=n) for n, receipt in enumerate(receipts, 1)]
    assert verify(head, renumbered).problem


@given(LINES, st.data())
def test_an_inserted_line_is_found(lines, data):
    head, receipts = write(lines)
    index = data.draw(st.integers(0, len(lines)))
    before = receipts[index - 1].hash if index else GENESIS
    receipts.insert(index, sealed(ChainHead("c", index, before), "t1", 0, 0, "eve", "forged"))
    assert verify(head, receipts).problem


@pytest.mark.parametrize("head", [ChainHead("c", 0, GENESIS), ChainHead("c", 2, "0" * 64)])
def test_a_changed_head_is_found(head):
    _, receipts = write([("t", 1, 1, "a", "x"), ("t", 1, 2, "a", "y")])
    assert verify(head, receipts).problem


def test_the_same_words_in_other_fields_hash_differently():
    head = ChainHead("c", 0, GENESIS)
    made = {
        sealed(head, "t", 1, 2, "ab", "c").hash,
        sealed(head, "t", 1, 2, "a", "bc").hash,
        sealed(head, "t", 12, 2, "ab", "c").hash,
        sealed(head, "t1", 2, 2, "ab", "c").hash,
    }
    assert len(made) == 4


def test_an_empty_chain_holds():
    assert verify(ChainHead("c", 0, GENESIS), iter(())).problem is None
    assert Receipt._fields[:7] == ("chain", "number", "task", "attempt", "at", "actor", "text")


@pytest.mark.parametrize("field", Receipt._fields[:7])
def test_a_value_that_is_not_text_is_a_change(field):
    head, receipts = write([("t1", 1, 2, "ann", "did it")])
    changed = receipts[0]._replace(**{field: b"did it"})
    assert verify(head, [changed]).problem
