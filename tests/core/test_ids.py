"""Ids sort by time, can be typed, and are unique."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hypervisor
from hypervisor.core import ids, randomness
from hypervisor.core.errors import InvalidInput

NUMBERS = st.integers(0, 2**60 - 1)
NOW = ids.EPOCH + 60_000_000_000


@given(NUMBERS)
@example(0)
@example(2**60 - 1)
def test_encoding_can_be_undone(number):
    text = ids.encode(number)
    assert len(text) == ids.LENGTH and set(text) <= set(ids.ALPHABET)
    assert ids.decode(text) == number
    assert ids.clean(text) == text


@given(NUMBERS, NUMBERS)
def test_ids_sort_as_their_numbers(a, b):
    assert (a < b) == (ids.encode(a) < ids.encode(b))


@given(st.integers(0, 2**39), st.integers(1, 2**30), st.integers(0, 2**20 - 1))
def test_later_is_larger_whatever_the_chance(at, later, entropy):
    (first,) = ids.new_numbers(1, ids.EPOCH + at, 2**20 - 1)
    (second,) = ids.new_numbers(1, ids.EPOCH + at + later, entropy)
    assert ids.encode(first) < ids.encode(second)


def test_tasks_of_one_call_keep_their_order():
    made = [ids.encode(number) for number in ids.new_numbers(5000, NOW, 2**20 - 10)]
    assert made == sorted(set(made))


def test_a_clock_before_the_epoch_makes_small_ids():
    assert ids.new_numbers(1, 0, 5)[0] == 5


def test_chance_is_twenty_bits():
    drawn = [randomness.entropy() for _ in range(200)]
    assert all(0 <= n < 2**20 for n in drawn) and len(set(drawn)) > 190


@given(NUMBERS)
def test_what_people_write_is_read_as_meant(number):
    text = ids.encode(number)
    for written in (
        text.upper(),
        f"  {text}\n",
        text.replace("1", "l").replace("0", "o"),
        text.replace("1", "I").replace("0", "O"),
        "-".join((text[:4], text[4:8], text[8:])),
    ):
        assert ids.clean(written) == text


@pytest.mark.parametrize(
    "text", ["", " ", "-", "u", "abc def", "abc.1", "x" * 13, "é", "1\n2", "\x1b", "٣", "a/b"]
)
def test_what_is_not_an_id(text):
    with pytest.raises(InvalidInput, match=r"invalid id .* \(ids look like "):
        ids.clean(text)


def test_two_adders_in_the_same_millisecond_that_draw_the_same_ids(tmp_path, monkeypatch):
    """The second call gets new ids; nothing is lost, duplicated or half written."""
    monkeypatch.setattr(randomness, "entropy", lambda: 7)
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as one:
        with hypervisor.open(tmp_path / "x.db", relaxed=True) as two:
            first = one.add([hypervisor.NewTask("a"), hypervisor.NewTask("b")], now=NOW).ids
            second = two.add([hypervisor.NewTask("c"), hypervisor.NewTask("d")], now=NOW).ids
        titles = [task.title for task in one.list_tasks()]
        events = one.events()
    assert len({*first, *second}) == 4
    assert titles == ["d", "c", "b", "a"]
    assert [event.task for event in events if event.kind == "add"] == [*first, *second]


def test_prefixes(tmp_path):
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as hv:
        (task,) = hv.add([hypervisor.NewTask("a")], now=NOW).ids
        for length in range(ids.MIN_PREFIX_LENGTH, ids.LENGTH + 1):
            assert hv.show(task[:length]).detail.task.id == task
        with pytest.raises(InvalidInput, match=f"at least {ids.MIN_PREFIX_LENGTH} characters"):
            hv.show(task[: ids.MIN_PREFIX_LENGTH - 1])
        (other,) = hv.add([hypervisor.NewTask("b")], now=NOW + 1).ids
        shared = 0
        while task[shared] == other[shared]:
            shared += 1
        with pytest.raises(hypervisor.RequestError, match=f"matches several tasks, such as {task}"):
            hv.show(task[:shared])
        assert hv.show(task[: shared + 1]).detail.task.id == task
        with pytest.raises(hypervisor.RequestError, match="no id of a task begins with 'zzzz'"):
            hv.show("zzzz")
