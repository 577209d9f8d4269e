"""config.toml: valid settings, and how mistakes are reported."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.resources.limits import Limits
from hypervisor.resources.zones import Thresholds
from hypervisor.runs.config import Settings, limits_from, settings_from
from hypervisor.runs.config_readers import size, span

ALL = """
[store]
durability = "relaxed"

[run]
workers = 4
nice = 5
capabilities = ["git", "docker"]
grace = "1.5s"

[governor]
strategy = "parallel"
memory_limit = "6G"
cpu_warning = 0.5
cpu_danger = 0.7
ram_warning = 0.6
ram_danger = 0.8
ram_emergency = 0.9
stall = 30
ceiling = 0.85
margin = 0.04
hold = "5s"

[limits]
time = "2h"
memory = "4G"
silence = "15m"
output = "100M"
dry_run = true

[limits.types.explore]
time = "10m"
output = "off"

[outputs]
keep_days = 7
keep_size = "1G"
keep_each = "1M"
"""


def test_everything_that_can_be_said():
    assert settings_from(tomllib.loads(ALL)) == Settings(
        relaxed=True,
        workers=4,
        nice=5,
        capabilities=("docker", "git"),
        grace=1.5,
        strategy="parallel",
        memory_limit=6 << 30,
        thresholds=Thresholds(0.5, 0.7, 0.6, 0.8, 0.9, 30, 0.85, 0.04, 5000),
        limits=Limits(7_200_000, 4 << 30, 900_000, 100 << 20),
        limits_by_type={"explore": Limits(time=600_000, output=0)},
        dry_run=True,
        keep_days=7,
        keep_size=1 << 30,
        keep_each=1 << 20,
    )


def test_nothing_said_is_the_defaults():
    assert settings_from({}) == settings_from({"run": {}, "limits": {"types": {}}}) == Settings()
    assert Settings().limits == Limits(output=1 << 30)
    assert (Settings().nice, Settings().grace, Settings().keep_days) == (10, 3.0, 30)


def test_one_limit_leaves_the_default_of_the_others():
    assert settings_from({"limits": {"time": 5}}).limits == Limits(time=5000, output=1 << 30)


def test_a_number_of_workers_may_be_left_to_the_machine():
    assert settings_from({"run": {"workers": "auto"}}).workers is None


def test_limits_of_a_task():
    assert limits_from({"time": "90s", "memory": "1G"}) == Limits(90_000, 1 << 30)
    with pytest.raises(InvalidInput, match=r"limits must be a table"):
        limits_from("90s")


WRONG = [
    ({"goveror": {}}, "unknown key goveror; did you mean governor?"),
    ({"xyz": {}}, "unknown key xyz; use one of store, run, governor, limits, outputs, workspace, "),
    ({"run": {"worker": 3}}, "unknown key run.worker; did you mean run.workers?"),
    ({"governor": {"cpu_warn": 0.5}}, "did you mean governor.cpu_warning?"),
    ({"limits": {"types": {"t": {"tiem": 5}}}}, "unknown key limits.types.t.tiem; did you mean"),
    ({"limits": {"types": {"t": {"dry_run": True}}}}, "unknown key limits.types.t.dry_run"),
    ({"limits": {"types": 5}}, "limits.types must be tables, as in [limits.types.NAME]."),
    ({"limits": {"types": {"t": 5}}}, "limits.types.t must be a table, as in [limits.types.t]."),
    ({"run": 5}, "run must be a table, as in [run]."),
    ({"run": {"workers": 0}}, "run.workers must be a whole number between 1 and 10,000."),
    ({"run": {"workers": True}}, "run.workers must be a whole number"),
    ({"run": {"workers": 2.5}}, "run.workers must be a whole number"),
    ({"run": {"workers": "many"}}, 'run.workers must be a whole number or "auto".'),
    ({"run": {"nice": -5}}, "run.nice must be a whole number between 0 and 19."),
    ({"run": {"grace": "5m"}}, "run.grace must be at most 60 s."),
    ({"store": {"durability": "some"}}, "store.durability must be one of full, relaxed."),
    ({"governor": {"strategy": ["auto"]}}, "must be one of auto, parallel, sequential, adaptive."),
    ({"governor": {"cpu_warning": 60}}, "governor.cpu_warning must be a number between 0 and 1."),
    ({"governor": {"cpu_warning": 0.9}}, "cpu_warning must not be above governor.cpu_danger."),
    ({"governor": {"margin": 0.6}}, "governor.margin must be below every threshold, so below 0.2."),
    ({"governor": {"stall": 3}}, "governor.margin must be below every threshold, so below 0.03."),
    ({"governor": {"memory_limit": "0G"}}, "governor.memory_limit must be more than 0."),
    (
        {"governor": {"memory_limit": "lots"}},
        "governor.memory_limit: invalid size 'lots' (try 512M",
    ),
    ({"governor": {"memory_limit": [1]}}, "governor.memory_limit: invalid size '[1]'"),
    ({"limits": {"time": "soon"}}, "limits.time: invalid duration 'soon' (try 90s"),
    ({"limits": {"time": True}}, "limits.time: invalid duration 'True'"),
    ({"limits": {"dry_run": "yes"}}, "limits.dry_run must be true or false."),
    ({"outputs": {"keep_days": "30d"}}, "outputs.keep_days must be a number between 0 and 36,500."),
    ({"outputs": {"keep_days": float("nan")}}, "outputs.keep_days must be a number"),
]


@pytest.mark.parametrize("config, message", WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_is_named(config, message):
    with pytest.raises(InvalidInput) as caught:
        settings_from(config)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text, amount",
    [
        ("512M", 512 << 20),
        ("2G", 2 << 30),
        ("1.5G", 3 << 29),
        ("2g", 2 << 30),
        ("10", 10),
        ("3KB", 3072),
        ("3 KiB", 3072),
        ("7B", 7),
        ("1T", 1 << 40),
        (4096, 4096),
        (" 1M ", 1 << 20),
    ],
)
def test_sizes(text, amount):
    assert size(text) == amount


@pytest.mark.parametrize(
    "text, amount",
    [
        ("90s", 90_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("250ms", 250),
        ("1.5h", 5_400_000),
        ("10", 10_000),
        (10, 10_000),
        (0.5, 500),
        (" 5M ", 300_000),
    ],
)
def test_spans(text, amount):
    assert span(text) == amount


NO_AMOUNT = [
    "",
    "G",
    "-1G",
    "1X",
    "1GG",
    "nan",
    "inf",
    "1e999G",
    "9999999T",
    "1 2",
    "GB",
    "ms",
    "-1",
]


@pytest.mark.parametrize("text", [*NO_AMOUNT, None, True, [], -5])
def test_what_is_neither_size_nor_span(text):
    with pytest.raises(InvalidInput, match="invalid size"):
        size(text)
    with pytest.raises(InvalidInput, match="invalid duration"):
        span(text)


@given(st.text(max_size=12))
def test_any_text_is_an_amount_or_refused(text):
    for read in (size, span):
        try:
            assert 0 <= read(text) < 1 << 62
        except InvalidInput as error:
            assert str(error).startswith("invalid ")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = SCALARS | st.lists(SCALARS, max_size=1)
KEYS = st.sampled_from(["workers", "nice", "strategy", "time", "types", "stall", "durability", "x"])
TABLES = st.sampled_from(["store", "run", "governor", "limits", "outputs", "x"])


@given(TABLES, VALUES | st.dictionaries(KEYS, VALUES, max_size=2))
def test_any_text_is_understood_or_refused(table, value):
    try:
        assert isinstance(settings_from({table: value}), Settings)
    except InvalidInput as error:
        assert str(error)
