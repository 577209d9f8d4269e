"""Items of every kind, and how they are read."""

import io

from hypothesis import strategies as st

from hypervisor.inputs.items import item_from_value, read_items
from hypervisor.inputs.template import Item
from hypervisor.queue.task import NewTask

BASE = NewTask("", type="convert", data={"run": 1})
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
COLUMNS = st.none() | st.dictionaries(TEXT, JSON, max_size=3)
NUMBERS = st.integers(1, 10**9)
ITEM = st.builds(Item, TEXT, NUMBERS, COLUMNS, st.just(""), st.just(())) | st.builds(
    item_from_value, st.lists(JSON, max_size=3), NUMBERS
)


def items(data, form="lines", null=False):
    data = data.encode() if isinstance(data, str) else data
    return list(read_items(io.BytesIO(data), form, null))
