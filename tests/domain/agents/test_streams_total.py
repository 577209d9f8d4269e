"""No line makes a parser fail, whatever it is."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypervisor.domain.agents.budgeting import cost_micros
from hypervisor.domain.agents.heard import Heard, Tokens
from hypervisor.domain.agents.judging import judge
from hypervisor.domain.agents.outcome import OUTCOMES
from hypervisor.domain.agents.profile import STREAMS
from hypervisor.domain.agents.streams import hearing, with_usage
from hypervisor.domain.attempt import Ended
from tests.domain.agents.samples import NAMES, sample

LINES = sorted({line for name in NAMES for line in sample(name).lines if line.startswith("{")})
KEYS = sorted({key for line in LINES for key in json.loads(line)})
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from(["success", "error", "completed", "rejected", "hypervisor", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5) | st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@st.composite
def bent(draw):
    """A real line with one value exchanged for anything else."""
    event = json.loads(draw(st.sampled_from(LINES)))
    place = event
    for _ in range(draw(st.integers(0, 4))):
        inner = [each for each in place.values() if isinstance(each, dict) and each]
        lists = [each for each in place.values() if isinstance(each, list)]
        inner += [each for found in lists for each in found if isinstance(each, dict) and each]
        if not inner:
            break
        place = draw(st.sampled_from(inner))
    place[draw(st.sampled_from(sorted(place)))] = draw(ODD)
    return json.dumps(event)


ANY = bent() | st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape")) | (
    st.dictionaries(st.sampled_from(KEYS), ODD).map(json.dumps)
)  # fmt: skip


def check(heard: Heard) -> None:
    assert isinstance(heard.tokens, Tokens)
    assert all(type(count) is int and count >= 0 for count in heard.tokens)
    assert heard.cost is None or 0 <= heard.cost < 1 << 51
    assert heard.turns >= 0
    assert len(heard.session) <= 200 and len(heard.now) <= 200 and len(heard.denied) <= 50
    assert "\n" not in heard.now
    (heard.session + heard.said + heard.now + "".join(heard.denied)).encode()
    assert "\0" not in heard.session + heard.said + heard.now
    if heard.trouble is not None:
        heard.trouble.text.encode()
    for ended in (Ended(0, None, 0, 0), Ended(1, None, 0, 0), Ended(None, 9, 0, 0)):
        assert judge(heard, ended, None).name in OUTCOMES
    cost_micros(heard, None)


@pytest.mark.parametrize("stream", STREAMS)
@settings(max_examples=150)
@given(st.lists(ANY, max_size=6))
def test_any_lines(stream, lines):
    hear, heard = hearing(stream), Heard()
    for line in lines:
        heard = hear(heard, line)
        assert isinstance(heard, Heard)
    check(heard)


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_of_another_agent_is_only_not_understood(stream):
    for name in NAMES:
        check(sample(name)._replace(agent=stream).heard())


HUGE = [
    "x" * 10_000_000,
    '{"type":"assistant","message":{"content":[{"type":"text","text":"'
    + "y" * 10_000_000
    + '"}]}}',
    '{"a":' * 100_000,
    "[" * 100_000,
    '{"type":"result","usage":{"input_tokens":' + "9" * 5_000 + "}}",
    '{"type":"result","usage":{"input_tokens":NaN},"total_cost_usd":Infinity}',
    '{"type": "turn.completed", "usage": {"input_tokens": 1e400}}',
    "{" + '"a":1,' * 100_000 + '"b":2}',
    "\x00" * 1000,
    "{}",
    "null",
    '{"type":null}',
]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("line", HUGE, ids=range(len(HUGE)))
def test_huge_and_odd_lines(stream, line):
    heard = hearing(stream)(Heard(session="s"), line)
    check(heard)
    assert heard.session == "s" and len(heard.said) <= 1 << 20


def test_an_unknown_stream_is_plain_text():
    heard = hearing("no such")(Heard(), "COMPLETED: all")
    assert heard.said == "COMPLETED: all" and not heard.closes
    assert judge(heard, Ended(0, None, 0, 0), None).name == "completed"


def test_plain_text_keeps_its_end():
    hear, heard = hearing("text"), Heard()
    for number in range(30_000):
        heard = hear(heard, f"line {number}\n")
    assert heard.said.endswith("line 29998\nline 29999") and len(heard.said) < 200_000


@given(st.text() | ODD.map(json.dumps))
def test_any_file_of_usage(text):
    for stream in STREAMS:
        check(with_usage(stream, Heard(), text))
