"""The rules of preflight: metadata of files, overlaps, and dependencies."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.batches.preflight_findings import (
    BATCH,
    DIRECT,
    NOTHING,
    SEQUENTIAL,
    WORKERS,
    advice,
    chains,
    status_in_file,
)
from hypervisor.inputs import path_overlap
from hypervisor.inputs.named_files import names_in

NAMES = st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join), max_size=4)


@pytest.mark.parametrize(
    ("columns", "stands"),
    [
        (None, ""),
        ({}, ""),
        ({"status": "todo"}, ""),
        ({"status": "Done "}, "done"),
        ({"status": "closed"}, "done"),
        ({"status": "cancelled"}, "cancelled"),
        ({"status": "In-Progress", "assignee": "ann"}, "claimed"),
        ({"status": "in progress"}, ""),  # no worker has it
        ({"status": "in_progress", "assignee": "none"}, ""),
        ({"status": ["done"]}, ""),
    ],
)
def test_what_a_file_says_of_itself(columns, stands):
    assert status_in_file(columns) == stands


def test_names_come_as_a_list_or_as_one_text():
    assert names_in(["a", " b ", "", 3, None, ["x"]]) == ["a", "b", "3"]
    assert names_in("a, b;c") == ["a", "b", "c"]
    assert names_in({"a": 1}) == names_in(None) == []


@pytest.mark.parametrize(
    ("to_do", "linked", "steps", "same", "way"),
    [
        (0, 0, 0, False, NOTHING),
        (1, 0, 0, False, DIRECT),
        (2, 0, 0, False, WORKERS),
        (4, 0, 0, False, WORKERS),
        (5, 0, 0, False, BATCH),
        (300, 2, 3, False, BATCH),
        (5, 4, 5, False, SEQUENTIAL),
        (3, 2, 3, False, SEQUENTIAL),
        (5, 0, 0, True, SEQUENTIAL),
    ],
)
def test_advice(to_do, linked, steps, same, way):
    assert advice(to_do, linked, steps, same)[0] == way


class TestChains:
    def test_the_longest_chain_is_counted_in_items(self):
        found = chains({"a": [], "b": ["a"], "c": ["b", "a"], "d": ["a"]})
        assert found == (3, ())

    def test_a_circle_is_reported_without_what_only_waits_for_it(self):
        steps, cycles = chains({"x": ["a"], "a": ["b"], "b": ["c"], "c": ["a"], "y": []})
        assert steps == 1
        (cycle,) = cycles
        assert sorted(cycle) == ["a", "b", "c"]

    def test_a_long_chain_takes_no_long_time(self):
        graph = {str(n): [str(n - 1)] for n in range(50_000)}
        assert chains(graph) == (50_000, ())

    @given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdef"))))
    def test_a_circle_is_found_if_and_only_if_there_is_one(self, graph):
        from graphlib import CycleError, TopologicalSorter

        inner = {task: {need for need in needs if need in graph} for task, needs in graph.items()}
        try:
            TopologicalSorter(inner).prepare()
            there_is = False
        except CycleError:
            there_is = True
        _, cycles = chains(graph)
        assert bool(cycles) == there_is
        for cycle in cycles:
            for task, need in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
                assert need in graph[task]


def lies_in(name, other):
    return name == other or name.startswith(other + "/")


def overlaps(one, other):
    return any(lies_in(a, b) or lies_in(b, a) for a in one for b in other)


class TestOverlap:
    @given(st.lists(NAMES, max_size=6))
    def test_items_that_overlap_have_a_key_in_common_and_no_others_have_any(self, items):
        reduced = [path_overlap.outermost(names) for names in items]
        counts: dict[str, int] = {}
        for names in reduced:
            for name in names:
                counts[name] = counts.get(name, 0) + 1
        shared = path_overlap.shared(counts)
        keys = [
            {path_overlap.topmost(name, shared) for name in names} - {None} for names in reduced
        ]
        for one, other in combinations(range(len(items)), 2):
            if overlaps(items[one], items[other]):
                assert keys[one] & keys[other]
        for index, names in enumerate(items):
            rest = [other for at, other in enumerate(items) if at != index]
            if not any(overlaps(names, other) for other in rest):
                assert not keys[index]

    def test_many_names_become_few_folders_that_cover_them(self):
        names = {f"src/{folder}/{n}.py" for folder in range(10) for n in range(30)} | {"top.txt"}
        found = path_overlap.outermost(names)
        assert len(found) <= path_overlap.MAX_NAMES
        assert all(any(lies_in(name, folder) for folder in found) for name in names)

    def test_so_many_folders_end_at_the_root_and_at_an_end(self):
        names = {f"f{n}" for n in range(100)} | {f"/abs/{n}" for n in range(100)}
        assert path_overlap.outermost(names) <= {".", "/", "/abs"}

    @pytest.mark.parametrize(
        ("pattern", "fits", "does_not"),
        [
            ("src/*.py", ["src/a.py", "src/.py"], ["src/x/a.py", "src/a.pyc", "a.py"]),
            ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["src/a.txt", "other/a.py"]),
            ("src/**", ["src/a", "src/b/c"], ["srcs/a"]),
            ("a[0-9].t?t", ["a1.txt", "a9.tat"], ["ab.txt", "a1.t/t", "a12.txt"]),
            ("[!a]b", ["cb"], ["ab", "/b"]),
            ("a[b", ["a[b"], ["ab"]),
            ("a+(b).md", ["a+(b).md"], ["aa(b).md"]),
        ],
    )
    def test_patterns(self, pattern, fits, does_not):
        match = path_overlap.matcher(pattern).fullmatch
        assert [name for name in (*fits, *does_not) if match(name)] == fits

    def test_a_key_is_short_whatever_the_name(self):
        long = "x/" * 2000
        assert len(path_overlap.key(long)) < 1000
        assert path_overlap.key(long) != path_overlap.key(long + "y")
        assert path_overlap.key("a/b") == "file:a/b"
