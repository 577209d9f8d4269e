"""hv learn as people use it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import hypervisor
from hypervisor.learning import sql
from hypervisor.learning.learn import gain_of_skill, learned_about
from hypervisor.learning.posterior import posterior
from hypervisor.learning.record import Record, Sample, Work, add_to_record, record_data, record_from
from hypervisor.runs.spec import spec_data
from tests.cli.conftest import until
from tests.learning.test_estimator import evidence_of
from tests.support.specs import run_spec
from tests.support.workloads import WORLDS


def test_nothing_yet(hv):
    hv.add()
    assert "nothing learned yet" in hv.ok("learn")
    assert hv.json("learn") == []
    assert "hv learn" in hv.refused(4, "learn", "unheard")


def test_what_is_kept_comes_back():
    """Also in the older format, in which the last samples were not stored separately."""
    record = Record("call", evidence=evidence_of(WORLDS["cpu"], (1, 2, 4), 30), done=30)
    data = json.loads(json.dumps(record_data(record)))
    again = record_from(data)
    assert len(again.evidence.fresh) == 4 and record_data(again) == record_data(record)
    del data["fresh"]
    older = record_from({**data, "odd": [[2, 1.5]]}).evidence
    assert not older.fresh and posterior(older).throughput(2).mean > 1.5


def test_what_was_stored_is_reported_with_its_plot(hv):
    hv.add()
    said = hv.ok("learn", "search", "--benefit", "0.75", "--notes", "many folders")
    assert "no samples yet" in said and ": 0.75: many folders" in said
    assert "█" in said and "parallel benefit 0." in said and "by your estimate" in said
    (found,) = hv.json("learn", "search")
    assert found["stated"]["benefit"] == 0.75 and found["next"]["workers"] >= 3
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


def keep(hv, kind, record):
    """As the learner would have stored it."""
    hv.add()
    with hypervisor.open(str(hv.folder / ".hypervisor" / "store.db")) as opened:
        host = opened.probe.host()
        opened.store.write_unsynced(sql.save, host, 0, {kind: record})


class TestFoundingExamples:
    def test_searches_are_always_parallel_and_it_says_why(self, hv):
        record = Record("codebase_search", evidence=evidence_of(WORLDS["sleep"], (1, 4, 8), 60))
        keep(hv, "codebase_search", record._replace(done=60))
        said = hv.ok("learn", "codebase_search", "--workers", "10")
        assert "next time: 10 workers: 10 at once save " in said
        assert "parallel benefit 0.9" in said or "parallel benefit 0.8" in said

    def test_calls_that_gain_a_tenth_run_in_sequence(self, hv):
        evidence = evidence_of(WORLDS["ten percent"], (1, 2, 4), 120, spread=0.1)
        keep(hv, "api_call", Record("api_call", evidence=evidence, done=120))
        said = hv.ok("learn", "api_call", "--workers", "4")
        assert "next time: 1 worker: one at a time: " in said
        assert re.search("[234] at once would save (?:only )?([5-9]|1[0-5]) % ", said), said
        assert "would save only" in said


def test_what_is_short_is_reported_in_milliseconds(hv):
    samples = [Sample(seconds, 1, "done") for seconds in (0.0004, 0.0123, 0.0999, 0.1, 4.26)]
    for name, some in (("blink", samples[:2]), ("nap", samples[2:4]), ("sleep", samples[4:])):
        record = Record(name)
        for sample in some:
            record = add_to_record(record, sample)
        keep(hv, name, record)
    assert "takes 0.4 ms (90 % within 12 ms)" in hv.ok("learn", "blink")
    assert "takes 100 ms (90 % within 0.1 s)" in hv.ok("learn", "nap")
    assert "takes 4.3 s (90 % within 4.3 s)" in hv.ok("learn", "sleep")


def test_what_a_skill_gains_is_in_its_record(hv):
    record = Record("run", evidence=evidence_of(WORLDS["sleep"], (1, 4, 8), 60), skill="sweep")
    keep(hv, "skill sweep", add_to_record(record, Sample(1.0, 1, "done")))
    with hypervisor.open(str(hv.folder / ".hypervisor" / "store.db")) as opened:
        found = gain_of_skill(opened, "sweep")
        assert found is not None and found.skill == "sweep" and found.samples == 1
        assert found.parallel_benefit.mean > 0.8 and found.next.best == 8
        assert gain_of_skill(opened, "other") is None
        work = Work.of_batch(spec_data(run_spec("/", ("true",), skill="sweep")))
        assert [each.name for each in learned_about(opened, work, ["run"])] == ["skill sweep"]
        work = Work.of_batch(spec_data(run_spec("/", ("true",))))
        assert learned_about(opened, work, ["run"]) == ()


def test_a_command_is_not_estimated_by_what_agents_did(hv):
    sample = Sample(1.0, 1, "done")
    keep(hv, "run (codex)", add_to_record(Record("run", agent="codex"), sample))
    keep(hv, "run: true", add_to_record(Record("run"), sample))
    with hypervisor.open(str(hv.folder / ".hypervisor" / "store.db")) as opened:
        work = Work.of_batch(spec_data(run_spec("/", ("true",))))
        assert [each.name for each in learned_about(opened, work, ["run"])] == ["run: true"]
        assert [each.name for each in learned_about(opened, Work(), ["run"])] == ["run (codex)"]


def test_the_report_of_a_batch_draws_it(hv):
    hv("run", "--type", "quick", "--name", "b", "--", "true", stdin="a\nb\nc\n")
    until(lambda: hv.json("learn"), "a sample")
    page = Path(hv.ok("report", "b").strip()).read_text(encoding="utf-8")
    assert "Throughput by number of workers" in page and 'class="band"' in page
    assert "quick" in page.split("<h3>")[1].split("</h3>")[0]
