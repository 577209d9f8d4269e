"""hv learn as people use it."""

from __future__ import annotations

from tests.cli.conftest import until


def test_nothing_yet(hv):
    hv.add()
    assert "nothing has been learned yet" in hv.ok("learn")
    assert hv.json("learn") == []
    assert "hv learn" in hv.refused(4, "learn", "unheard")


def test_what_was_said_is_told_with_its_plot(hv):
    hv.add()
    said = hv.ok("learn", "search", "--benefit", "0.75", "--notes", "many folders")
    assert "no samples yet" in said and "benefit 0.75: many folders" in said
    assert "█" in said and "parallel benefit 0." in said and "as was claimed" in said
    (found,) = hv.json("learn", "search")
    assert found["said"]["benefit"] == 0.75 and found["next"]["workers"] >= 3
    assert [gain["workers"] for gain in found["gains"]] == [1, 2, 3, 4, 6, 8]


def test_every_run_teaches(hv):
    hv("run", "--type", "quick", "--strategy", "adaptive", "--", "true", stdin="a\nb\nc\n")
    (found,) = until(lambda: hv.json("learn"), "a sample")
    assert 1 <= found["samples"] <= 3 and found["success"] == 1
    assert "quick: " in hv.ok("learn", "quick")


def test_what_makes_no_sense_is_refused(hv):
    hv.add()
    hv.refused(2, "learn", "x", "--benefit", "3")
    hv.refused(2, "learn", "--benefit", "1")
    hv.refused(2, "learn", "x", "--notes", "n")
    hv.refused(2, "learn", "--workers", "0")
