"""Agents tick by tick: which agent works on what, how many, and what happens around a cooldown."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from hypervisor.agents.agent_settings import AgentSettings
from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.profile import AgentProfile
from hypervisor.queue.agent_session import NewSession, Tokens
from hypervisor.runs.config import Settings
from hypervisor.runs.spec import spec_data
from tests.support.benches import closed_after
from tests.support.specs import run_spec
from tests.support.stage import BEGIN, BOOT, Stage, worker_of

AGENTS = {
    "cla": AgentProfile("cla", "cla", provider="anthropic", memory=100, keys=("KEY",)),
    "cod": AgentProfile("cod", "cod", provider="openai", memory=200, capabilities=("browser",)),
    "few": AgentProfile("few", "few", provider="google", memory=300, workers=2),
}
MINUTE = 60_000
DAY = 24 * 60 * MINUTE


class AgentStage(Stage):
    def agent_batch(self, name, tasks=1, agent="cla", requires=(), **spec):
        made = run_spec("/", agent=agent, prompt="do it", **spec)
        batch = self.store.declare(name, spec_data(made), "t", self.now)
        self.add(name, tasks, requires=requires)
        return batch.id

    def run_for(self, milliseconds, step=50):
        for _ in range(0, milliseconds, step):
            self.tick(after=step)
            self.host.arrive(self.now)

    def pools(self):
        """The number of live workers per agent that are not draining."""
        leaving = self.supervisor.staffing.workers.leaving
        here = self.store.at_work(BOOT)
        return Counter(each.agent for each in here if each.worker.id not in leaving)

    def cooldown(self, account="anthropic:login", seconds=30):
        cooldown = Cooldown(account, self.now + seconds * 1000, 1, "429", self.now)
        self.store.start_cooldown(cooldown, "w", self.now)

    def let_go(self):
        """All workers that were asked to exit do so."""
        for pid, _ in self.host.asked:
            if pid in self.host.alive:
                self.host.leave(pid)

    def session(self, pid, batch, account="anthropic:login", **more):
        new = NewSession("cla", account, batch, worker_of(pid).id, **more)
        return self.store.open_session(new, self.now)


@pytest.fixture
def make(tmp_path):
    def make(number, settings=None, **how):
        how["settings"] = settings
        how["agent_settings"] = AgentSettings(AGENTS)
        return AgentStage(tmp_path / f"{number}.db", **how)

    with closed_after(make) as maker:
        yield maker


@pytest.fixture
def stage(make):
    return make(cores=2)


class TestHowMany:
    def test_five_on_a_host_however_few_its_cores(self, stage):
        stage.agent_batch("b", 50)
        stage.run_for(5_000)
        assert stage.pools() == {"cla": 5}

    def test_as_many_as_the_run_asks_for(self, stage):
        stage.agent_batch("b", 50, workers=8)
        stage.run_for(5_000)
        assert stage.pools() == {"cla": 8}

    def test_no_more_of_an_agent_than_its_profile_says_in_all_batches(self, stage):
        stage.agent_batch("a", 50, agent="few")
        stage.agent_batch("b", 50, agent="few", workers=4)
        stage.run_for(5_000)
        assert stage.pools() == {"few": 2}

    def test_commands_and_agents_have_limits_of_their_own(self, stage):
        stage.agent_batch("b", 50)
        stage.batch("c", 50)
        stage.run_for(5_000)
        assert stage.pools() == {"cla": 5, "": 2}

    def test_what_the_settings_say_of_the_host_counts_for_all(self, make):
        stage = make(settings=Settings(workers=3))
        stage.agent_batch("b", 50)
        stage.batch("c", 50)
        stage.run_for(5_000)
        assert sum(stage.pools().values()) == 3

    def test_a_batch_shares_its_limit_among_its_agents(self, stage):
        stage.agent_batch("b", 20, "auto", ("agent:cla",), agents=("cla", "cod"), workers=4)
        stage.add("b", 20, requires=("agent:cod",))
        stage.run_for(5_000)
        pools = stage.pools()
        assert sum(pools.values()) == 4 and pools["cla"] >= 1 and pools["cod"] >= 1

    def test_starts_are_staggered(self, stage):
        stage.agent_batch("b", 50)
        seen = []
        for _ in range(40):
            stage.tick(after=50)
            seen += [stage.now - BEGIN] * len(stage.started())
        assert len(seen) == 5
        assert all(b - a >= 300 for a, b in pairwise(seen))

    def test_so_they_are_on_average_with_the_usual_ticks(self, stage):
        stage.agent_batch("b", 50, workers=10)
        for _ in range(14):
            stage.tick()
            assert len(stage.started()) <= 1
        assert len(stage.host.started) == 10, "in 3.5 seconds"

    def test_a_clock_that_is_put_back_does_not_stop_them(self, stage):
        stage.agent_batch("b", 50)
        stage.tick()
        stage.now -= 3_600_000
        stage.run_for(3_000)
        assert stage.pools() == {"cla": 5}

    def test_commands_are_not(self, stage):
        stage.batch("c", 50)
        stage.tick()
        assert len(stage.started()) == 2


class TestMemory:
    def test_the_profile_s_until_it_was_learned(self, stage):
        stage.agent_batch("b", 5)
        stage.tick()
        assert stage.governor.seen[-1].next == 100
        stage.store.set_memory_peak(170, agent="cla")
        stage.run_for(1_000)
        assert stage.governor.seen[-1].next == 170
        assert {each.footprint.expected for each in stage.governor.seen[-1].running} == {170}


class TestRouting:
    def test_each_agent_gets_workers_for_its_own_tasks(self, stage):
        stage.agent_batch("b", 1, "auto", ("agent:cla",), agents=("cla", "cod"))
        stage.add("b", 2, requires=("agent:cod", "browser"))
        stage.run_for(3_000)
        assert stage.pools() == {"cla": 1, "cod": 2}

    def test_nobody_is_started_for_what_no_agent_can_do(self, stage):
        stage.agent_batch("b", 3, requires=("gpu",))
        assert stage.tick()
        assert not stage.tick(after=3_000), "nor is anything waited for"
        assert stage.host.started == []

    def test_an_agent_of_a_command_s_past_is_sent_away(self, stage):
        stage.agent_batch("b", 5)
        stage.run_for(3_000)
        stage.batch("b", 0)
        stage.tick()
        assert len(stage.host.asked) == 5


class TestBrake:
    def test_all_of_the_account_rest_and_others_continue(self, stage):
        stage.agent_batch("b", 50)
        stage.agent_batch("o", 50, agent="cod")
        stage.run_for(3_000)
        before = stage.pools()
        stage.cooldown()
        stage.tick()
        assert {what for _, what in stage.host.asked} == {"drain"}
        assert len(stage.host.asked) == before["cla"] > 0
        assert stage.pools()["cla"] == 0 and stage.pools()["cod"] == before["cod"]

    def test_another_key_is_another_account(self, stage):
        stage.host.keys[stage.agent_batch("other", 1)] = "0a1b"
        stage.agent_batch("b", 1)
        stage.cooldown()
        stage.run_for(2_000)
        (worker,) = stage.store.at_work(BOOT)
        assert worker.batch == stage.store.batch("other").id

    def test_one_goes_first_and_then_all(self, stage):
        batch = stage.agent_batch("b", 50)
        stage.agent_batch("c", 50)
        stage.cooldown(seconds=30)
        stage.run_for(29_000)
        assert stage.host.started == []
        stage.run_for(5_000)
        assert len(stage.host.started) == 1, "one of both batches together"
        made = stage.session(100, stage.host.started[0][1])
        stage.run_for(2_000)
        assert len(stage.host.started) == 1, "it has not been answered"
        stage.store.hear_session(made, "s", Tokens(9, 1), None, False, 1, stage.now)
        stage.run_for(3_000)
        assert stage.store.cooldowns() == []
        assert stage.pools() == {"cla": 5}
        kinds = [e.kind for e in stage.store.events(0, 999) if e.kind.startswith("cooldown")]
        assert [kind for kind in kinds if kind != "cooldown_wait"] == ["cooldown", "cooldown_end"]
        assert batch

    def test_one_that_continues_for_a_while_was_let_through(self, stage):
        batch = stage.agent_batch("b", 50)
        stage.cooldown(seconds=1)
        stage.run_for(2_000)
        stage.session(100, batch)
        stage.run_for(44_000)
        assert len(stage.host.started) == 1
        stage.run_for(2_000)
        assert len(stage.host.started) > 1

    @pytest.mark.parametrize("outcome", ["network", "server_error", "stream_error", "overload"])
    def test_one_that_meets_the_outage_again_was_not_let_through(self, stage, outcome):
        batch = stage.agent_batch("b", 50)
        stage.cooldown(seconds=1)
        stage.run_for(2_000)
        made = stage.session(100, batch)
        stage.store.close_session(made, outcome, Tokens(), None, False, 0, stage.now)
        stage.run_for(2_000)
        assert len(stage.store.cooldowns()) == 1 and len(stage.host.started) == 1

    def test_a_first_one_that_meets_the_limit_again_lets_nobody_follow(self, stage):
        batch = stage.agent_batch("b", 50)
        stage.cooldown(seconds=1)
        stage.run_for(2_000)
        made = stage.session(100, batch)
        stage.store.close_session(made, "quota", Tokens(), None, False, 0, stage.now)
        stage.cooldown(seconds=60)
        stage.host.leave(100)
        stage.run_for(59_000)
        assert len(stage.host.started) == 1
        stage.run_for(3_000)
        assert len(stage.host.started) == 2

    def test_those_who_work_on_do_not_keep_the_first_one_from_starting(self, stage):
        stage.agent_batch("b", 50)
        stage.run_for(3_000)
        for pid in range(100, 105):
            stage.claim(pid)
        stage.cooldown(seconds=10)
        stage.run_for(9_000)
        assert len(stage.host.asked) == 5 and len(stage.host.started) == 5
        stage.run_for(3_000)
        assert len(stage.host.started) == 6

    def test_a_fallback_takes_over_and_steps_back(self, stage):
        stage.agent_batch("b", 50, agents=("cla", "cod"), fallback="cod")
        stage.run_for(3_000)
        assert stage.pools() == {"cla": 5}
        stage.cooldown(seconds=20)
        stage.tick()
        stage.let_go()
        stage.run_for(3_000)
        assert stage.pools() == {"cod": 5}
        stage.run_for(18_000)
        stage.let_go()
        stage.run_for(2_000)
        assert stage.pools() == {"cod": 4, "cla": 1}, "until the first one is through"
        (first,) = (each for each in stage.store.at_work(BOOT) if each.agent == "cla")
        made = stage.session(first.worker.pid, first.batch)
        stage.store.close_session(made, "completed", Tokens(1, 1), None, False, 1, stage.now)
        stage.tick()
        stage.let_go()
        stage.run_for(3_000)
        assert stage.pools() == {"cla": 5}

    def test_a_fallback_takes_what_was_routed_to_others(self, stage):
        stage.agent_batch(
            "b", 2, "auto", ("agent:cla",), agents=("cla", "few", "cod"), fallback="cod"
        )
        stage.add("b", 1, requires=("agent:few",))
        stage.cooldown()
        stage.run_for(3_000)
        assert stage.pools() == {"cod": 2, "few": 1}

    def test_a_brake_that_ends_today_is_waited_for_and_told_once(self, stage):
        stage.agent_batch("b", 5)
        stage.cooldown(seconds=3600)
        for _ in range(50):
            assert stage.tick(after=MINUTE)
        assert not stage.supervisor.is_waiting, "no need to look around often"
        (event,) = (e for e in stage.store.events(0, 999) if e.kind == "cooldown_wait")
        assert "anthropic is rate-limited until" in event.data["message"]

    def test_nothing_is_reported_while_others_work(self, stage):
        stage.agent_batch("b", 50, agents=("cla", "cod"), fallback="cod")
        stage.cooldown()
        stage.run_for(3_000)
        assert [e for e in stage.store.events(0, 999) if e.kind == "cooldown_wait"] == []

    def test_a_brake_of_days_is_not(self, stage):
        stage.agent_batch("b", 5)
        stage.cooldown(seconds=3 * 24 * 3600)
        assert stage.tick()
        assert not stage.tick(after=3_000)

    def test_nor_is_a_brake_without_work(self, stage):
        stage.cooldown()
        assert stage.tick()
        assert not stage.tick(after=3_000)


class TestInVain:
    def come_and_go(self, stage):
        stage.run_for(500)
        for each in stage.store.at_work(BOOT):
            stage.host.leave(each.worker.pid)
        stage.tick()

    def test_those_who_find_nothing_do_not_come_forever(self, stage):
        batch = stage.agent_batch("b", 1)
        for _ in range(10):
            self.come_and_go(stage)
        (pause,) = stage.store.pauses()
        assert pause.name == batch and "claimed no task" in pause.reason
        assert len(stage.host.started) <= 4

    def test_those_who_leave_for_a_brake_did_not_come_in_vain(self, stage):
        stage.agent_batch("b", 1)
        for _ in range(5):
            stage.run_for(500)
            stage.cooldown(seconds=1)
            stage.tick()
            stage.let_go()
            stage.run_for(1_500)
        assert stage.store.pauses() == []

    def test_those_who_began_something_may(self, stage):
        batch = stage.agent_batch("b", 1)
        for _ in range(6):
            stage.run_for(500)
            for each in stage.store.at_work(BOOT):
                stage.session(each.worker.pid, batch)
                stage.host.leave(each.worker.pid)
            stage.tick()
        assert stage.store.pauses() == []
        assert len(stage.host.started) >= 6


def test_the_sessions_of_a_dead_worker_are_closed(stage):
    batch = stage.agent_batch("b", 1)
    stage.run_for(500)
    (lease,) = stage.claim(100)
    made = stage.session(100, batch, task=lease.task.id, attempt=1)
    stage.store.hear_session(made, "s-1", Tokens(5, 6, 7), 8, True, 9, stage.now)
    stage.host.die(100)
    stage.tick(after=1_000)
    (ended,) = stage.store.sessions(task=lease.task.id)
    assert (ended.outcome, ended.session, ended.tokens) == ("crashed", "s-1", Tokens(5, 6, 7))
    assert (ended.cost_micros, ended.estimated, ended.turns) == (8, True, 9)
    assert stage.host.scrubbed == [(100, lease.task.id, ended.agent)]
