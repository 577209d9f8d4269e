"""When two texts say the same, when they contradict each other, and words of any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.hive.similarity import (
    contradiction,
    digest_text,
    jaccard,
    same,
    search_words,
    signature,
    words,
)

SAME = [
    (
        "Login form is vulnerable to SQL injection in auth/login.py:40",
        "auth/login.py:40: SQL injection vulnerability in login form",
    ),
    ("The config file is read twice at start.", "the config file is read twice, at start"),
    (
        "login.py builds its SQL query from raw user input",
        "login.py constructs its SQL query directly from raw user input",
    ),
    (
        "The upload folder of the shop on this host is writable by all users",
        "The upload folder of the shop on this host is writable by all users, see nginx.conf",
    ),
    ("Größe wird nicht geprüft", "GROSSE wird nicht gepruft"),
    (
        "The input of the form is validated before it is stored in the table",
        "Validation of the input of the form before it is stored in the table",
    ),
    ("the orders table has no index", "the orders table has no index on it"),
    ("👍", " 👍\n"),
]
DIFFERENT = [
    ("SQL injection in login.py line 40", "SQL injection in login.py line 90"),
    ("The parser is safe", "The parser is not safe"),
    ("The test fails on Windows", "The test passes on Windows"),
    ("There is no limit on uploads", "There is a limit on uploads"),
    ("Python 3.11 is required", "Python 3.12 is required"),
    (
        "The function parse_header in module http lacks a docstring",
        "The function parse_body in module http lacks a docstring",
    ),
    (
        "The user table of the main database has no index on its email column",
        "The order table of the main database has no index on its email column",
    ),
    (
        "the transaction service in the Berlin cluster writes its log file as root user",
        "the translation service in the Berlin cluster writes its log file as root user",
    ),
    (
        "the internal port of the backup host in Berlin is never closed by anybody",
        "the internet port of the backup host in Berlin is never closed by anybody",
    ),
    (
        "the product database of the shop in Berlin has a backup every single night",
        "the production database of the shop in Berlin has a backup every single night",
    ),
    ("👍", "👎"),
    ("🔥🔥", "✅ ✅"),
    ("!!!", "???"),
    ("it was there", "that is it"),
    ("the deploy to Berlin 👍", "the deploy to Berlin 👎"),
    ("the loop ends when i < n", "the loop ends when i > n"),
    ("the result is checked: a == b", "the result is checked: a != b"),
    ("the call returns 1", "the call returns -1"),
    ("किताब दिन", "किताब दान"),
    ("ガラス", "カラス"),
    ("Users are stored in Redis", "Sessions are signed with a key"),
]
AGAINST = [
    ("The parser is safe", "The parser is vulnerable", "opposite verdicts"),
    ("The parser is not vulnerable", "The parser is vulnerable", "opposite verdicts"),
    ("The test suite passes on Windows", "The test suite fails on Windows", "opposite verdicts"),
    ("timeout is 30 seconds", "timeout is 60 seconds", "different numbers: 30 and 60"),
    ("uploads have a size limit", "uploads have no size limit", "one of them says not"),
    ("debug mode is on", "debug mode is off", "opposite verdicts"),
    ("debug mode is turned on here", "debug mode is disabled here", "opposite verdicts"),
    ("debug mode is on by default", "debug mode is not on by default", "opposite verdicts"),
]
NOT_AGAINST = [
    ("SQL injection in login.py line 40", "SQL injection in login.py line 90"),
    ("login.py:40 leaks memory", "login.py:90 leaks memory"),
    ("The parser is safe", "The cache is unsafe"),
    ("The parser is safe", "The parser is fast"),
    ("the orders table has no index", "the orders table has no index on it"),
    ("the flag is on the cookie", "the flag is off"),
    ("👍", "no"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_they_say_the_same(one, other):
    assert same(digest_text(one), digest_text(other)) and same(digest_text(other), digest_text(one))
    assert set(signature(digest_text(one))) & set(signature(digest_text(other)))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_they_do_not_say_the_same(one, other):
    assert not same(digest_text(one), digest_text(other))


@pytest.mark.parametrize(("one", "other", "why"), AGAINST)
def test_they_may_contradict_each_other(one, other, why):
    assert contradiction(digest_text(one), digest_text(other)) == why
    assert contradiction(digest_text(other), digest_text(one)).split(":")[0] == why.split(":")[0]
    assert set(signature(digest_text(one))) & set(signature(digest_text(other))), (
        "they find each other"
    )


@pytest.mark.parametrize(("one", "other"), NOT_AGAINST)
def test_nothing_speaks_against_each_other(one, other):
    assert contradiction(digest_text(one), digest_text(other)) == ""


@given(st.text(max_size=300))
def test_any_text_is_like_itself(text):
    mine = digest_text(text)
    assert same(mine, digest_text(text)) and contradiction(mine, digest_text(text)) == ""
    assert signature(mine) == signature(digest_text(text)) and len(signature(mine)) == 12
    assert words(text) == words(text.upper().lower()) or not text.isascii()
    assert all(word and not word.isspace() for word in words(text))
    assert jaccard(mine.words, mine.words) == 1.0


def test_texts_without_spaces_are_found_letter_by_letter():
    assert set(words("注入")) <= set(words("登录页面有注入漏洞"))


def test_a_query_has_telling_words_only_unless_it_has_none():
    assert search_words("the SQL of the login", 9) == ["sql", "login"]
    assert search_words("to be or not to be", 2) == ["not"]
    assert search_words("the of", 9) == ["the", "of"]
    assert search_words("... !!", 9) == []


def test_many_words_are_cut():
    assert len(words("a b c " * 100_000)) == 5_000


@pytest.mark.parametrize("end", ["", "s", "ies", "ie", "漢"])
def test_any_word_is_cut(end):
    """PostgreSQL refuses words of more than 2,046 bytes, asked for or stored."""
    long = "a" * 3_000 + end
    assert max(map(len, words(f"{long} 漢{long}"))) == 64
    assert words(long)[0] == words("a" * 4_000)[0]


def test_letters_of_any_kind_are_small_ones():
    assert words("𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ＬＯＧＩＮ ℌello") == ["unicode", "login", "hello"]
