"""Small rules: priority and ageing, lanes, back-off, tokens, checks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.core import ids, validate
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.lane import (
    HEAD_START,
    PRIORITIES,
    ClaimFilter,
    Lane,
    check_priority,
    may_claim,
    rank,
)
from hypervisor.queue.lease import Token, parse_token
from hypervisor.queue.lifecycle import CRASH_LIMIT, back_off, is_poisoned
from hypervisor.store.clock import MAX_DELAY

NOW = ids.EPOCH + 60_000_000_000
WEEK = 7 * 24 * 3600 * 1000


def rank_at(at, priority, entropy=0):
    return rank(ids.new_numbers(1, at, entropy)[0], priority)


def test_priorities_come_in_order():
    ranks = [rank_at(NOW, priority) for priority in PRIORITIES]
    assert ranks == sorted(set(ranks)) and set(PRIORITIES) == set(HEAD_START)


@given(st.sampled_from(PRIORITIES), st.integers(0, 2**20 - 1), st.integers(0, 2**20 - 1))
def test_within_a_priority_the_older_goes_first(priority, a, b):
    assert rank_at(NOW, priority, a) < rank_at(NOW + 1, priority, b)


@pytest.mark.parametrize(
    "better, worse, weeks",
    [
        ("medium", "low", 1),
        ("high", "medium", 1),
        ("high", "low", 2),
        ("critical", "low", 6),
    ],
)
def test_waiting_makes_up_for_a_lower_priority(better, worse, weeks):
    waited = rank_at(NOW, worse)
    assert rank_at(NOW + weeks * WEEK - 1, better) < waited
    assert rank_at(NOW + weeks * WEEK + 1, better) > waited


def test_ranks_fit_a_database_integer():
    assert rank(2**60 - 1, "low") < 2**63


@pytest.mark.parametrize("value", ["urgent", "", "HIGH", None, 5, [], {}])
def test_unknown_priorities(value):
    with pytest.raises(InvalidInput, match="use one of critical, high, medium, low"):
        check_priority(value)


LANE = Lane("b", "t", "main", "high", ("docker", "git"), "", False)


@pytest.mark.parametrize(
    "lane, wanted, caller, may",
    [
        ({}, {}, "me", False),
        ({"requires": ()}, {}, "me", True),
        ({}, {"capabilities": ("docker",)}, "me", False),
        ({}, {"capabilities": ("docker", "git", "more")}, "me", True),
        ({"requires": ()}, {"batch": "b"}, "me", True),
        ({"requires": ()}, {"batch": "c"}, "me", False),
        ({"requires": (), "batch": ""}, {"batch": "b"}, "me", False),
        ({"requires": ()}, {"types": ("u", "t")}, "me", True),
        ({"requires": ()}, {"types": ("u",)}, "me", False),
        ({"requires": ()}, {"branch": "main"}, "me", True),
        ({"requires": ()}, {"branch": ""}, "me", False),
        ({"requires": ()}, {"priorities": ("low", "high")}, "me", True),
        ({"requires": ()}, {"priorities": ("low",)}, "me", False),
        ({"requires": (), "assignee": "me"}, {}, "me", True),
        ({"requires": (), "assignee": "you"}, {}, "me", False),
        ({"requires": (), "assignee": "you"}, {"assignee": "you"}, "me", True),
        ({"requires": ()}, {"assignee": "me"}, "me", False),
        ({"requires": ()}, {"assignee": ""}, "me", True),
    ],
)
def test_who_may_claim_what(lane, wanted, caller, may):
    assert may_claim(LANE._replace(**lane), ClaimFilter(**wanted), caller) is may


NAME = st.text(st.characters(exclude_categories=["Cc", "Cs", "Z"]), max_size=5)


@given(NAME, NAME, NAME, NAME)
def test_different_lanes_have_different_numbers(a, b, c, d):
    lanes = {
        Lane(a, b, c, "high", (), d, False),
        Lane(b, a, c, "high", (), d, False),
        Lane(a, b, "", "high", (c + "x",), d, False),
        Lane(a, b, c, "high", (), d, True),
    }
    assert len({lane.id for lane in lanes}) == len(lanes)
    assert all(0 < lane.id < 2**63 for lane in lanes)  # 0 means a running hold


def test_back_off_doubles_up_to_an_hour():
    delays = [back_off(failures) for failures in range(1, 12)]
    assert delays[:4] == [10_000, 20_000, 40_000, 80_000]
    assert delays == sorted(delays) and delays[-1] == MAX_DELAY
    assert [back_off(failures, first=500) for failures in range(1, 4)] == [500, 1_000, 2_000]
    assert back_off(10**9) == MAX_DELAY and back_off(0) == back_off(-5) == 10_000


def test_the_third_crash_is_one_too_many():
    assert [is_poisoned(n) for n in range(5)] == [False, False, False, True, True]
    assert CRASH_LIMIT == 3


@given(
    st.integers(0, 2**60 - 1),
    st.integers(0, 10**9 - 1),
    st.text(ids.ALPHABET, min_size=ids.CODE_LENGTH, max_size=ids.CODE_LENGTH),
    st.sampled_from([ids.CODE_LENGTH, ids.OLD_CODE_LENGTH]),
)
def test_tokens_can_be_read_back(number, attempt, nonce, length):
    token = Token(ids.encode(number), attempt, nonce[:length])
    assert parse_token(str(token)) == parse_token(f" {str(token).upper()}\n") == token


@given(st.text(max_size=30))
def test_anything_else_is_not_a_token(text):
    try:
        token = parse_token(text)
    except InvalidInput:
        return
    assert parse_token(str(token)) == token


TOO_DEEP: list[object] = []
for _ in range(validate.MAX_LEVELS):
    TOO_DEEP = [TOO_DEEP]
ROUND: list[object] = []
ROUND.append(ROUND)


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        [-math.inf],
        object(),
        {1, 2},
        b"x",
        10**5000,
        TOO_DEEP,
        ROUND,
        {"x": {"y": object()}},
        {(1, 2): 3},
        "x" * 4_000_001,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_json(value):
    with pytest.raises(InvalidInput):
        validate.json_value("it", value)


def test_json_just_deep_enough():
    assert validate.json_value("it", TOO_DEEP[0]) is TOO_DEEP[0]
    innermost: object = 5
    for _ in range(validate.MAX_LEVELS):
        innermost = {"x": innermost}
    assert validate.json_value("it", innermost) is innermost


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 0, 11, 10**30])
def test_what_is_not_a_number_between_one_and_ten(value):
    with pytest.raises(InvalidInput):
        validate.number("it", value, 1, 10)


@pytest.mark.parametrize("value", ["", "a b", "a\tb", "a\u00a0b", "\x1b", "a\0", "\ud800", 5, None])
def test_what_is_not_a_name(value):
    with pytest.raises(InvalidInput):
        validate.name("it", value)


def test_names_are_a_sorted_set():
    assert validate.names("it", ["b", "a", "b"]) == ("a", "b")
    for wrong in ("text", 5, None):
        with pytest.raises(InvalidInput):
            validate.names("it", wrong)
