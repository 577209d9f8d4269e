"""The learner on a real store: scripted attempts and a settable clock."""

from __future__ import annotations

import pytest

from hypervisor.learning import learner as module
from hypervisor.learning import sql
from hypervisor.learning.concurrency import ConcurrencyTracker
from hypervisor.learning.learn import learn_parallelization, learnings
from hypervisor.learning.learner import Learner
from hypervisor.learning.record import Sample
from hypervisor.learning.sql import records
from hypervisor.queue.agent_session import NewSession, Tokens
from hypervisor.queue.event import Event
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Usage, Worker, parse_token
from hypervisor.queue.task import NewTask
from hypervisor.runs.config import Settings
from hypervisor.runs.spec import spec_data
from tests.support.intercept import intercept
from tests.support.specs import run_spec
from tests.support.stage import BEGIN, BOOT, Stage


def event(seq, at, kind, task, worker, batch="b"):
    return Event(seq, at, kind, task, batch, 1, None, f"{worker}@host/1.x", None)


class TestAtOnce:
    def test_alone(self):
        ran = ConcurrencyTracker().follow(
            [event(1, 0, "claim", "t", "w"), event(2, 500, "complete", "t", "w")]
        )
        assert [(each.took, each.at_once) for each in ran] == [(500, 1)]

    def test_two_all_the_time(self):
        events = [
            event(1, 0, "claim", "t", "w"),
            event(2, 0, "claim", "u", "v"),
            event(3, 500, "complete", "t", "w"),
            event(4, 500, "complete", "u", "v"),
        ]
        assert [each.at_once for each in ConcurrencyTracker().follow(events)] == [2, 2]

    def test_others_come_and_go(self):
        """Alone for half of the time, one of two for the other half: it got three quarters."""
        events = [
            event(1, 0, "claim", "t", "w"),
            event(2, 500, "claim", "u", "v"),
            event(3, 1000, "complete", "t", "w"),
        ]
        (ran,) = ConcurrencyTracker().follow(events)
        assert ran.at_once == pytest.approx(1 / 0.75) and ran.at_first == 1

    def test_how_many_there_were_when_each_began(self):
        events = [
            event(1, 0, "claim", "t", "w"),
            event(2, 0, "claim", "x", "w"),
            event(3, 200, "claim", "u", "v"),
            event(4, 300, "complete", "t", "w"),
            event(5, 400, "complete", "x", "w"),
            event(6, 500, "complete", "u", "v"),
        ]
        found = {each.task: each.at_first for each in ConcurrencyTracker().follow(events)}
        assert found == {"t": 1, "x": 2, "u": 2}

    def test_what_was_claimed_together_runs_in_sequence(self):
        events = [
            event(1, 0, "claim", "t", "w"),
            event(2, 0, "claim", "u", "w"),
            event(3, 300, "complete", "t", "w"),
            event(4, 400, "complete", "u", "w"),
        ]
        ran = ConcurrencyTracker().follow(events)
        assert [(each.took, each.at_once) for each in ran] == [(300, 1), (100, 1)]

    def test_what_ends_in_the_same_moment_shares_the_time(self):
        events = [event(n, 0, "claim", f"t{n}", "w") for n in range(4)]
        events += [event(9, 40, "complete", f"t{n}", "w") for n in range(4)]
        assert [each.took for each in ConcurrencyTracker().follow(events)] == [10, 10, 10, 10]

    def test_what_was_given_back_did_not_run(self):
        events = [
            event(1, 0, "claim", "t", "w"),
            event(2, 0, "claim", "u", "w"),
            event(3, 300, "release", "u", "w"),
            event(4, 400, "complete", "t", "w"),
        ]
        assert [(each.task, each.took) for each in ConcurrencyTracker().follow(events)] == [
            ("t", 400)
        ]

    def test_what_began_unseen_is_not_told(self):
        assert ConcurrencyTracker().follow([event(4, 400, "complete", "t", "w")]) == []

    def test_other_batches_and_hosts_do_not_count(self):
        other = Event(2, 0, "claim", "u", "b", 1, None, "w@elsewhere/1.x", None)
        events = [
            event(1, 0, "claim", "t", "w"),
            other,
            event(3, 0, "claim", "v", "w", "another"),
            event(4, 400, "complete", "t", "w"),
        ]
        assert [each.at_once for each in ConcurrencyTracker().follow(events)] == [1]


class Bench:
    """A store with scripted workers of this host."""

    def __init__(self, path, **more):
        self.stage = Stage(path, **more)
        self.hv, self.store, self.now = self.stage.hv, self.stage.store, BEGIN
        self.learner = Learner(self.hv)
        self.learner.tick(self.now)

    def batch(self, name, tasks, kind="nap", command=("true",)):
        made = self.store.declare(name, spec_data(run_spec("/", command)), "me", self.now)
        self.store.add([NewTask(f"t{n}", type=kind) for n in range(tasks)], name, "me", self.now)
        return made.id

    def work(self, batch, at_once, seconds, event="complete", cpu=0.0):
        """This many attempts in parallel, each by its own worker."""
        leases = []
        for seat in range(at_once):
            me = Worker(f"w{seat}@host/{seat}.x", f"w{seat}", "host", BOOT, 100 + seat, 7)
            self.store.register(me, batch, self.now)
            wanted = ClaimRequest(me, wanted=ClaimFilter(batch=batch))
            leases += self.store.claim(wanted, self.now)
        self.now += round(1000 * seconds)
        usage = Usage(0, round(1000 * cpu), 5_000, 0)
        for lease in leases:
            token = parse_token(lease.token)
            self.store.settle([AttemptResult(token, event, usage=usage)], self.now)
        return leases

    def look(self):
        self.now += 400
        self.learner.tick(self.now)

    def records(self):
        return records(self.hv, "host")


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "s.db")


class TestSamples:
    def test_every_attempt_is_one(self, bench):
        batch = bench.batch("b", 10)
        bench.work(batch, 2, 1.5, cpu=0.3)
        bench.work(batch, 1, 1.0, "fail")
        bench.look()
        (record,) = bench.records().values()
        assert (record.type, record.done, record.failed) == ("nap", 2, 1)
        first = record.recent[0]
        assert (first.seconds, first.at_once, first.cpu_seconds) == (1.5, 2, 0.3)
        assert first.peak_kb == 5_000 and first.outcome == "done"
        assert record.evidence.samples == 1  # neither a failure nor the first of a new number

    def test_a_sample_has_every_figure(self, bench):
        """Type, skill, agent, concurrency, duration, CPU, memory, outcome, tokens, cost, and
        waiting time."""
        spec = spec_data(run_spec("/", agent="claude", skill="audit"))
        batch = bench.store.declare("b", spec, "me", bench.now).id
        bench.store.add([NewTask("t", type="review")], "b", "me", bench.now)
        me = Worker("w@host/1.x", "w", "host", BOOT, 100, 7)
        bench.store.register(me, batch, bench.now, "claude")
        bench.now += 2_000
        wanted = ClaimRequest(me, wanted=ClaimFilter(batch=batch))
        token = parse_token(bench.store.claim(wanted, bench.now)[0].token)
        session = bench.store.open_session(
            NewSession("claude", "a:1", batch, me.id, token.task, token.attempt), bench.now
        )
        bench.now += 5_000
        bench.store.close_session(session, "ok", Tokens(70, 30, 9), 1_200, False, 2, bench.now)
        bench.store.settle(
            [AttemptResult(token, "complete", usage=Usage(0, 400, 512, 9))], bench.now
        )
        bench.look()
        ((kind, record),) = bench.records().items()
        assert kind == "skill audit: review (claude)"
        assert (record.type, record.skill, record.agent) == ("review", "audit", "claude")
        assert record.recent == (Sample(5.0, 1.0, "done", 0.4, 512, 2.0, 100, 1_200, False, 1),)
        (found,) = learnings(bench.hv, "review")
        assert (found.tokens, found.cost_micros, found.queued) == (100, 1_200, (2.0, 2.0))

    def test_none_counts_twice_after_kills(self, bench):
        batch = bench.batch("b", 10)
        bench.work(batch, 2, 1.0)
        bench.look()
        bench.work(batch, 2, 1.0)
        for _ in range(2):  # two others take over in sequence
            bench.learner = Learner(bench.hv)
            bench.look()
            bench.look()
        assert bench.records()["nap"].done == 4

    def test_who_takes_over_knows_who_was_at_work(self, bench):
        batch = bench.batch("b", 10)
        bench.work(batch, 1, 1.0)
        bench.look()
        before = bench.learner
        bench.learner = Learner(bench.hv)
        bench.work(batch, 3, 2.0)
        bench.look()
        assert before is not bench.learner
        assert [each.at_once for each in bench.records()["nap"].recent] == [1, 3, 3, 3]

    def test_what_has_no_type_is_told_apart_by_its_command(self, bench):
        for name, word in (("a", "x"), ("b", "y")):
            bench.work(bench.batch(name, 1, kind="run", command=(word, "{}")), 1, 1.0)
        bench.look()
        assert sorted(bench.records()) == ["run: x {}", "run: y {}"]

    def test_nothing_new_costs_one_look(self, bench, monkeypatch):
        asked = []
        real = bench.store.event_rows

        def events(since, limit):
            asked.append(since)
            return real(since, limit)

        monkeypatch.setattr(bench.store, "event_rows", events)
        intercept(monkeypatch, bench.store, sql.save, asked.append)
        bench.look()
        bench.learner.tick(bench.now + 1)
        assert len(asked) == 1

    def test_thousands_are_not_caught_up_with(self, bench, monkeypatch):
        monkeypatch.setattr(module, "PAGE", 8)
        monkeypatch.setattr(module, "BEHIND", 40)
        batch = bench.batch("b", 200)
        for _ in range(50):
            bench.work(batch, 2, 0.1)
        for _ in range(20):
            bench.now += module.REST_MS
            bench.look()
        kept = bench.records()["nap"]
        assert 0 < kept.done <= module.BEHIND // 2  # an attempt has two events
        assert {each.at_once for each in kept.recent} == {2}


class TestChoosing:
    def taught(self, bench, ratio, **more):
        batch = bench.batch("b", 200, **more)
        for n in (1, 2, 4):
            for _ in range(10):
                bench.work(batch, n, ratio(n))
            bench.look()
        return batch

    def test_searches_are_parallel_and_it_says_why(self, bench):
        self.taught(bench, lambda n: 1.0, kind="codebase_search")
        (found,) = learnings(bench.hv, "codebase_search", 10)
        assert found.next.best == 10 and found.next.workers > 4  # step by step: four is all it saw
        assert found.parallel_benefit.mean > 0.8
        assert found.bottleneck == "wait" and found.success == 1

    def test_calls_that_gain_a_tenth_are_not(self, bench):
        self.taught(bench, lambda n: max(1.0, 0.9 * n), kind="api_call")
        (found,) = learnings(bench.hv, "api_call", 4)
        assert found.next.workers == 1 and "would save only" in found.next.why

    def test_what_was_said_is_shown_beside_what_was_learned(self, bench):
        self.taught(bench, float, kind="locked")
        learn_parallelization(bench.hv, "locked", 0.85, "so it seems")
        (found,) = learnings(bench.hv, "locked", 4)
        assert found.stated is not None and found.stated["benefit"] == 0.85
        assert found.parallel_benefit.mean < 0.15 and found.next.workers == 1
        assert found.bottleneck == "lock"

    def test_what_was_said_counts_while_nothing_is_known(self, bench):
        learn_parallelization(bench.hv, "call", 0.05)
        assert bench.learner.choice("call", "call", 4, 0, 0).workers == 1
        learn_parallelization(bench.hv, "search", 0.75)
        assert bench.learner.choice("search", "search", 4, 0, 0).workers >= 3


class TestSupervisor:
    def test_begins_with_as_many_as_cores_and_follows_the_learner(self, tmp_path):
        stage = Stage(tmp_path / "s.db", cores=4)
        stage.supervisor.tick(stage.now)
        batch = stage.batch("b", 50, strategy="adaptive")
        stage.tick()
        assert len(stage.host.started) == 4
        assert [e.data["workers"] for e in learner_events(stage)] == [4]
        learn_parallelization(stage.hv, "run", 0.0)
        stage.supervisor.parts[1]._chosen.clear()
        stage.tick()
        assert [e.data["workers"] for e in learner_events(stage)] == [4, 1]
        assert "one at a time" in learner_events(stage)[-1].data["message"]
        assert batch

    def test_auto_does_not_ask_it(self, tmp_path):
        stage = Stage(tmp_path / "s.db", cores=4)
        learn_parallelization(stage.hv, "run", 0.0)
        stage.batch("b", 50)
        stage.tick()
        assert len(stage.host.started) == 4 and not learner_events(stage)

    def test_settings_can_make_it_usual(self, tmp_path):
        stage = Stage(tmp_path / "s.db", Settings(strategy="adaptive"), cores=4)
        learn_parallelization(stage.hv, "run", 0.0)
        stage.batch("b", 50)
        stage.tick()
        assert len(stage.host.started) == 1
        assert stage.governor.strategy == "auto"

    def test_what_the_governor_allows_is_the_limit(self, tmp_path):
        stage = Stage(tmp_path / "s.db", cores=4)
        stage.governor.most = 2
        stage.batch("b", 50, strategy="adaptive")
        for _ in range(4):
            stage.tick()
        assert len(stage.host.started) == 2
        assert len(learner_events(stage)) == 1  # told once


def learner_events(stage):
    return [event for event in stage.store.events(0, 10_000) if event.kind == "learner"]
