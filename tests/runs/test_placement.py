"""Which host may work on a batch, and its share of the workers."""

from __future__ import annotations

from typing import Any

import pytest

from hypervisor.queue.host import Host, labels_of
from hypervisor.resources.limits import Limits
from hypervisor.runs import placement
from hypervisor.runs.placement import Need, share_of
from hypervisor.runs.spec import AgentSpec
from tests.support.specs import run_spec

NOW = 1_800_000_000_000
SPEC = run_spec("/", ("true",))


def host(name: str, *labels: str, **changed: Any) -> Host:
    usual = Host(
        name, name, "boot", "up", 1, 60_000, NOW + 60_000, 0, NOW, 1, 1, "local",
        labels_of(name, labels), {"cpus": 4, "memory": 8 << 30, "agents": ["claude"]}, {}, "", 0,
        {},
    )  # fmt: skip
    return usual._replace(**changed)


A, B, C = host("a"), host("b", "gpu"), host("c")


@pytest.mark.parametrize("total", [1, 2, 3, 7, 100])
def test_shares_add_up(total):
    shares = [share_of(h.id, [C, A, B], Need(total, None, 1000), SPEC, 4) for h in (A, B, C)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1


def test_a_host_has_all_of_it_if_it_is_alone_or_not_registered():
    assert share_of("a", [A], Need(7, None, 9), SPEC, 4) == 7
    assert share_of("a", [], Need(None, None, 9), SPEC, 4) == 4
    assert share_of("a", [], Need(7, 2, 9), SPEC, 4) == 2


def test_no_host_has_more_than_its_limit():
    assert share_of("b", [A, B], Need(None, 2, 9), SPEC, 4) == 2
    assert share_of("b", [A, B], Need(20, 3, 90), SPEC, 4) == 3


def test_packing_fills_one_host_after_another():
    pack = SPEC._replace(pack=True)

    def shares(work, **limits):
        need = Need(limits.get("total"), limits.get("per_host"), work)
        return [share_of(h.id, [A, B, C], need, pack, 4) for h in (A, B, C)]

    assert shares(3) == [3, 0, 0]
    assert shares(9) == [4, 4, 1]
    assert shares(50, total=6) == [4, 2, 0]
    assert shares(50, per_host=2) == [2, 2, 2]


def test_what_a_host_must_have():
    gpu = SPEC._replace(on=("gpu",))
    assert [placement.can_serve(h, "x", gpu) for h in (A, B)] == [False, True]
    named = SPEC._replace(on=("a",))
    assert [placement.can_serve(h, "x", named) for h in (A, B)] == [True, False]
    agent = SPEC._replace(work=AgentSpec("codex", prompt="do it"))
    has = host("d", resources={"agents": ["codex"]})
    assert [placement.can_serve(h, "x", agent) for h in (A, has)] == [False, True]
    refusing = host("e", status={"refused": {"x": "has no /project"}})
    assert [placement.can_serve(refusing, batch, SPEC) for batch in ("x", "y")] == [False, True]


def test_memory_counts_only_if_another_host_has_enough():
    big = SPEC._replace(limits=Limits(memory=16 << 30))
    more = host("m", resources={"memory": 64 << 30})
    assert "has 8" in placement.lacking_memory(big, "a", [A, more])
    assert placement.lacking_memory(big, "m", [A, more]) == ""
    assert placement.lacking_memory(big, "a", [A, B]) == ""


def test_it_says_which_label_no_host_has():
    text = placement.no_host_text(3, ("on:lab", "browser"), [A, B], NOW)
    assert text == "3 tasks need the label lab, which no live host has (a, b)"
    assert placement.no_host_text(1, ("on:gpu",), [A, B], NOW) == ""
    gone = B._replace(lease_until=NOW - 1)
    text = placement.no_host_text(1, ("on:gpu",), [A, gone], NOW)
    assert text == "1 task needs the label gpu, which no live host has (a)"
    both = placement.no_host_text(1, ("on:a", "on:gpu"), [A, B], NOW)
    assert "which no live host has together" in both


def test_it_says_why_every_host_refuses():
    refuses = B._replace(status={"refused": {"x": "has no /project; mount it"}})
    assert placement.refusal_text("x", [refuses], NOW) == "host b has no /project; mount it"
    assert placement.refusal_text("x", [A, refuses], NOW) == ""
