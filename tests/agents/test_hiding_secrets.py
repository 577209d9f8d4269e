"""Secrets are removed by processes that know only their fingerprints."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.agents.secrets import HIDDEN, TokenHider, marks_of
from hypervisor.queue.hide_tokens import hide_tokens

SALT = b"12345678"
KEY, OTHER = "sk-ant-planted-0123456789", "pass word/ü"


def hider(*secrets: str) -> TokenHider:
    return TokenHider(marks_of(secrets, SALT))


@pytest.mark.parametrize(
    "text", ["{}", "key={}", 'export KEY="{}"', "a {} b {} c", "({})", "Bearer {}\n", "x{}/{}y"]
)
def test_hides_a_secret_wherever_it_begins_a_word(text: str) -> None:
    spaced = text.replace("x{}", "x {}")
    assert hider(KEY, OTHER).clean(spaced.replace("{}", KEY)) == spaced.replace("{}", HIDDEN)


def test_hides_in_all_texts_of_a_value() -> None:
    value = {"receipts": [f"used {KEY}", 7, None], KEY: {"deep": f"'{OTHER}'"}}
    cleaned = hider(KEY, OTHER).clean_value(value)
    assert cleaned == {"receipts": [f"used {HIDDEN}", 7, None], HIDDEN: {"deep": f"'{HIDDEN}'"}}


@pytest.mark.parametrize("code", ["h4xz", "h4xz0123456789ab"])
def test_a_claims_token_loses_its_code(code: str) -> None:
    text = f"took 1q21sqwnjv5w.3.{code}, done"
    assert hider(KEY).clean(text) == hide_tokens(text) == "took 1q21sqwnjv5w.3.…, done"


def test_marks_do_not_hold_the_secrets() -> None:
    marks = marks_of([KEY, OTHER], SALT)
    assert KEY not in marks
    assert OTHER not in marks
    assert marks != marks_of([KEY, OTHER], b"another1")


def test_short_secrets_and_no_marks_hide_nothing() -> None:
    assert hider("12345", "678901").clean("12345 678901") == f"12345 {HIDDEN}"
    assert TokenHider().clean(KEY) == KEY
    assert TokenHider().clean_value([KEY]) == [KEY]


@given(st.text(), st.text())
def test_leaves_everything_else_as_it_is(before: str, after: str) -> None:
    text = f"{before} {KEY} {after}"
    assert hider(KEY).clean(text) == text.replace(KEY, HIDDEN)
    assert json.loads(json.dumps(hider(OTHER).clean(before))) == before
