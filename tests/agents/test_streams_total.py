"""No line makes a parser fail, whatever it contains."""

import json
from pkgutil import iter_modules

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypervisor.agents import streams
from hypervisor.agents.classify import classify
from hypervisor.agents.outcome import OUTCOMES
from hypervisor.agents.profile import STREAMS
from hypervisor.agents.session import cost_micros
from hypervisor.agents.stream_state import StreamState
from hypervisor.agents.streams import parser, with_usage
from hypervisor.queue.agent_session import Tokens
from hypervisor.queue.attempt import Ended
from tests.agents.samples import NAMES, sample, state_after

LINES = sorted({line for name in NAMES for line in sample(name).lines if line.startswith("{")})
KEYS = sorted({key for line in LINES for key in json.loads(line)})
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["success", "error", "completed", "rejected", "hypervisor", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=8,
)


@st.composite
def bent(draw):
    """A real line with one value replaced by any other."""
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


ANY = (
    bent()
    | st.text()
    | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))
    | (st.dictionaries(st.sampled_from(KEYS), ODD).map(json.dumps))
)


def check(state: StreamState) -> None:
    assert isinstance(state.tokens, Tokens)
    assert all(type(count) is int and count >= 0 for count in state.tokens)
    assert state.cost is None or 0 <= state.cost < 1 << 51
    assert state.turns >= 0
    assert len(state.session) <= 200 and len(state.activity) <= 200 and len(state.denied) <= 50
    assert "\n" not in state.activity
    (state.session + state.message + state.activity + "".join(state.denied)).encode()
    assert "\0" not in state.session + state.message + state.activity
    if state.error is not None:
        state.error.text.encode()
    for ended in (Ended(0, None, 0, 0), Ended(1, None, 0, 0), Ended(None, 9, 0, 0)):
        assert classify(state, ended, None).name in OUTCOMES
    cost_micros(state, None)


@pytest.mark.parametrize("stream", STREAMS)
@settings(max_examples=150)
@given(st.lists(ANY, max_size=6))
def test_any_lines(stream, lines):
    parse, state = parser(stream), StreamState()
    for line in lines:
        state = parse(state, line).state
        assert isinstance(state, StreamState)
    check(state)


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_of_another_agent_is_only_not_understood(stream):
    for name in NAMES:
        check(sample(name)._replace(agent=stream).state())


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
    state = state_after(stream, StreamState(session="s"), line)
    check(state)
    assert state.session == "s" and len(state.message) <= 1 << 20


def test_every_stream_has_its_module():
    assert sorted(module.name for module in iter_modules(streams.__path__)) == sorted(STREAMS)


def test_an_unknown_stream_is_plain_text():
    state = state_after("no such", StreamState(), "COMPLETED: all")
    assert state.message == "COMPLETED: all" and not state.closes
    assert classify(state, Ended(0, None, 0, 0), None).name == "completed"


def test_plain_text_keeps_its_end():
    parse, state = parser("text"), StreamState()
    for number in range(30_000):
        state = parse(state, f"line {number}\n").state
    assert state.message.endswith("line 29998\nline 29999") and len(state.message) < 200_000


@given(st.text() | ODD.map(json.dumps))
def test_any_file_of_usage(text):
    for stream in STREAMS:
        check(with_usage(stream, StreamState(), text))
