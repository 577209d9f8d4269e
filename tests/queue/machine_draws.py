"""What the state machine draws from: tasks, claims, verdicts, changes, pauses."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import Worker
from hypervisor.queue.task import Changes

MAX_TASKS = 14
CHUNKED = 1  # the batch that is cut into chunks
MERGING = 2  # the batch whose work is merged
LEASE = 60_000

WORKERS = (
    Worker("w1", "ann", "here", "boot1", 101, 1),
    Worker("w2", "bob", "here", "boot1", 102, 1),
    Worker("w3", "ann", "there", "boot2", 103, 1),
    Worker("w4", "eve", "here", "boot1"),
)

# One draw for many fields: few draws keep a step cheap, the first choices are the simplest.
KINDS = list(
    product(
        ("task", "test"),
        ("medium", "low", "high", "critical"),
        ((), ("gpu",)),
        ("", "ann"),
        ("", "b1"),
    )
)
COMMON = [KINDS[0], ("test", "medium", (), "", "")]
# Tasks of this branch have no keys: turns over them can be plain.
NO_KEYS = "plain"
PLAIN = [("task", "medium", (), "", NO_KEYS)] * 2 + [("test", "high", (), "", NO_KEYS)]
EXCLUSIVE = [
    (),
    (),
    ("k",),
    ("k",),
    ("k",),
    ("l",),
    ("k", "l"),
    ("l", "m"),
    ("m", "k"),
    ("k", "l", "m"),
]
DELAYS = [None, None, None, None, None, None, 5_000, 100_000, -1, 0]
DEDUPE = [None, None, None, None, None, None, "u1", "u2", "u3"]
# Mostly the same few tasks are needed and most tasks are alike, so that they meet.
AFTER = [
    (),
    (),
    (),
    (0,),
    (0,),
    (0,),
    (1,),
    (2,),
    (0, 1),
    (2, 3),
    (7,),
    ("u1",),
    ("u2",),
    ("u3", 0),
]
SPECS = st.tuples(
    st.sampled_from(COMMON[:1] * 64 + COMMON[1:] * 32 + PLAIN * 40 + KINDS),
    st.sampled_from(EXCLUSIVE),
    st.sampled_from(DELAYS),
    st.sampled_from(DEDUPE),
    st.sampled_from(AFTER),
    st.integers(0, 9),
    st.sampled_from([0, 0, 1, 1, 2, 3]),
)
EVERYTHING = ClaimFilter(capabilities=("gpu", "net"))
FILTERS = st.sampled_from(
    [EVERYTHING] * 4
    + [
        ClaimFilter(),
        ClaimFilter(types=("test",)),
        ClaimFilter(types=("task", "test"), priorities=("high", "critical")),
        ClaimFilter(branch="b1", capabilities=("gpu",)),
        ClaimFilter(branch=""),
        ClaimFilter(batch=""),
        ClaimFilter(batch="FIRST", capabilities=("gpu",)),
        ClaimFilter(assignee="ann", capabilities=("gpu",)),
        ClaimFilter(assignee="", priorities=("low", "medium")),
        ClaimFilter(types=("none",)),
    ]
)
CLAIMS = st.tuples(st.sampled_from(WORKERS), st.integers(1, 5), FILTERS)
VERDICTS = st.tuples(
    st.integers(0, 40),
    st.sampled_from(
        ["complete"] * 9
        + ["release", "fail", "block", "back_off", "back_off soon", "back_off later"]
    ),
    st.sampled_from(["live"] * 9 + ["any", "foreign", "other attempt", "no task"]),
)
STALE = st.tuples(
    st.integers(0, 40),
    st.sampled_from(["complete", "complete", "release", "fail", "block", "back_off soon"]),
    st.sampled_from(["any", "any", "foreign", "other attempt"]),
)
BACK = {"inbox", "review", "blocked", "done", "failed", "cancelled"}
INDEX = st.integers(0, MAX_TASKS)
BATCH = st.sampled_from([0, 0, 0, 1, 2, 2])
PICKS = st.lists(st.tuples(INDEX, st.booleans()), min_size=1, max_size=3)
BOOTS = st.sampled_from(["boot1", "boot2", "boot3"])
VERBS = st.sampled_from(["cancel", "cancel", "reopen", "accept", "take_back", "take_back"])
BACK_VERBS = st.sampled_from(["reopen", "reopen", "accept"])
CHANGES = st.sampled_from(
    [
        Changes(title="new", data={"n": 1}),
        Changes(priority="critical"),
        Changes(priority="low", retries=2),
        Changes(type="test"),
        Changes(type="task", branch=""),
        Changes(branch="b1"),
        Changes(requires=("gpu",)),
        Changes(requires=()),
        Changes(assignee="ann"),
        Changes(assignee="", type="test"),
        Changes(start_at=5_000),
        Changes(start_at=100_000),
        Changes(start_at=-1),
    ]
)
# A number stands for a batch, of which 0 is none; no task is of the type "none".
PAUSES = st.sampled_from(
    [
        ("all", ""),
        ("batch", 1),
        ("batch", 1),
        ("batch", 2),
        ("batch", 0),
        ("type", "task"),
        ("type", "test"),
        ("type", "test"),
        ("type", "none"),
    ]
)
