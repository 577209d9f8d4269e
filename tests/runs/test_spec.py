"""How a batch is run, as it is kept: what comes back is what was declared."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.template import Item
from hypervisor.runs.spec import STRATEGIES, RunSpec, spec_data, spec_from, template_of

COUNT = st.none() | st.integers(0, 1 << 60)
SPECS = st.builds(
    RunSpec,
    cwd=st.text(min_size=1),
    command=st.lists(st.text()).map(tuple),
    function=st.none() | st.text(),
    shell=st.booleans(),
    python=st.none() | st.text(),
    stdin=st.sampled_from(["closed", "item"]),
    clean_env=st.booleans(),
    workers=COUNT,
    claim=COUNT,
    fail_fast=st.booleans(),
    strategy=st.sampled_from(STRATEGIES),
    time=COUNT,
    memory=COUNT,
    silence=COUNT,
    output=COUNT,
)


@given(SPECS)
def test_a_spec_survives_being_kept(spec):
    kept = json.loads(json.dumps(spec_data(spec)))
    assert kept == spec_data(spec), "so that a declaration can be compared with what is kept"
    assert spec_from(kept) == spec
    assert json.dumps(spec_data(spec_from(kept))) == json.dumps(kept), "declared again, the same"


def test_only_what_differs_from_the_defaults_is_kept():
    assert spec_data(RunSpec("/x")) == {"cwd": "/x"}
    assert spec_data(RunSpec("/x", ("a",), workers=2)) == {
        "cwd": "/x",
        "command": ["a"],
        "workers": 2,
    }


@pytest.mark.parametrize(
    "data",
    [None, [], "text", 5, {"cwd": "/", "teleport": True}, {}, {"command": ["true"]}],
)
def test_what_another_version_declared_is_refused_not_guessed(data):
    with pytest.raises(InvalidInput, match="declared by another version; declare it again"):
        spec_from(data)


def test_an_item_on_standard_input_is_no_argument():
    item = Item("x y", 1)
    assert template_of(RunSpec("/", ("cat",))).render(item) == ["cat", "x y"]
    assert template_of(RunSpec("/", ("cat",), stdin="item")).render(item) == ["cat"]
    assert template_of(RunSpec("/", ("cat", "{}"), stdin="item")).render(item) == ["cat", "x y"]
