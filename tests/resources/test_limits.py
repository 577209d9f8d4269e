"""Limits: which one applies, and how amounts are parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.resources.limits import Limits, merged, size_text, span_text

AMOUNT = st.none() | st.integers(0, 10)
LIMITS = st.builds(Limits, AMOUNT, AMOUNT, AMOUNT, AMOUNT)


def test_the_first_that_says_something_counts():
    task, batch, defaults = Limits(time=5), Limits(time=9, memory=7), Limits(output=3)
    assert merged(task, batch, defaults) == Limits(time=5, memory=7, output=3)


def test_no_limit_is_something_that_can_be_said():
    assert merged(Limits(output=0), Limits(output=3)) == Limits(output=0)


def test_nothing_said_is_not_a_limit():
    assert merged() == merged(Limits(), Limits()) == Limits(None, None, None, None)


@given(LIMITS, LIMITS, LIMITS)
def test_merging_has_no_brackets(a, b, c):
    assert merged(merged(a, b), c) == merged(a, merged(b, c)) == merged(a, b, c)


@pytest.mark.parametrize(
    "size, text",
    [
        (0, "0 bytes"),
        (5, "5 bytes"),
        (1024, "1 KB"),
        (412 << 20, "412 MB"),
        (2150 << 20, "2.1 GB"),
        (1 << 30, "1 GB"),
        (1000 << 20, "0.977 GB"),
        (700 << 20, "700 MB"),
        (5000 << 40, "5000 TB"),
    ],
)
def test_sizes_read(size, text):
    assert size_text(size) == text


@pytest.mark.parametrize(
    "ms, text",
    [
        (0, "0 s"),
        (500, "0.5 s"),
        (61_000, "61 s"),
        (61_900, "61 s"),
        (599_000, "599 s"),
        (600_000, "10 min"),
        (605_000, "10 min 5 s"),
        (7_200_000, "2 h"),
        (9_000_000, "2 h 30 min"),
    ],
)
def test_spans_read(ms, text):
    assert span_text(ms) == text
