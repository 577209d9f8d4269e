"""The worker of an agent that claims tasks itself: a real store, and scripted agents."""

from __future__ import annotations

import errno

import pytest

from hypervisor.agents import stream_state as kinds
from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.stream_state import StreamError, StreamState
from hypervisor.queue.agent_session import Tokens
from hypervisor.queue.attempt import Ended
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, parse_token
from hypervisor.runs.spec import spec_data
from tests.agents.agent_bench import ACCOUNT, AgentBench
from tests.support.benches import ME, WELL, closed_after
from tests.support.specs import changed

EMPTY = StreamState("s-1", Tokens(100, 10), 0.10, 1, 1, message="QUEUE EMPTY", ended=True, ok=True)
BADLY = Ended(1, None, 0.1, 0)


class KeptBench(AgentBench):
    """Its agents have no item: `runs` lists what successive runs do."""

    def __init__(self, folder, **how):
        super().__init__(folder, **how)
        self.held: list[str] = []

    def described(self, **spec):
        return super().described(mode="pull", pull=5, **spec)

    def agents_do(self, *runs):
        self.in_turn("", *runs)
        return self.work()

    def claims(self, count=1):
        """What an agent does first."""

        def claim():
            wanted = ClaimRequest(ME, count, wanted=ClaimFilter(batch=self.batch))
            self.held = [lease.token for lease in self.store.claim(wanted)]

        return claim

    def completes(self):
        self.store.settle([AttemptResult(parse_token(token), "complete") for token in self.held])

    def asks(self, word):
        def ask():
            self.runner.asked = word

        return ask


@pytest.fixture
def bench(tmp_path):
    with closed_after(lambda number, **how: KeptBench(tmp_path, **how)) as maker:
        yield maker


def test_runs_continue_as_long_as_there_is_work(bench):
    bench = bench()
    tasks = [bench.item(text) for text in "abc"]
    one = [bench.claims(), bench.completes, (EMPTY, WELL)]
    bench.agents_do(one, [bench.claims(2), bench.completes, (EMPTY, WELL)])
    assert [bench.outcomes_of(task) for task in tasks] == [["done"]] * 3
    assert [(run.outcome, run.task, run.session) for run in bench.runs()] == [
        ("completed", "", "s-1")
    ] * 2
    assert bench.runner.briefs[0][0] == "pull"
    assert "journal leader 77" in bench.log
    assert bench.store.memory_peak(agent="claude") == WELL.peak


def test_nothing_is_started_without_work_or_for_an_account_that_rests(bench):
    bench = bench()
    bench.agents_do()
    bench.item("a", requires=("browser",))
    bench.agents_do()
    bench.item("b")
    bench.store.start_cooldown(Cooldown(ACCOUNT, bench.store.now() + 60_000, 1, "limit", 0), "t")
    bench.agents_do()
    assert bench.runs() == []


def test_a_program_that_is_not_there_pauses_the_batch(bench):
    bench = bench()
    bench.item("a")
    bench.runner.fatal_error = "claude is not installed"
    bench.agents_do()
    assert bench.runs() == [] and "not installed" in bench.store.pauses()[0].reason


def test_one_that_cannot_be_started_pauses_it_too(bench):
    bench = bench()
    bench.item("a")
    bench.agents_do([OSError(errno.EACCES, "not allowed")])
    assert [run.outcome for run in bench.runs()] == ["stopped"]
    assert "cannot start claude" in bench.store.pauses()[0].reason


def test_a_claim_that_it_leaves_behind_counts_as_failed(bench):
    bench = bench()
    task = bench.item("a")
    bench.agents_do([bench.claims(), (EMPTY, WELL)])
    assert bench.outcomes_of(task) == ["failed"]
    assert "without ending its claim" in bench.task(task).reason


@pytest.mark.parametrize("kind", [kinds.QUOTA, kinds.OVERLOAD])
def test_a_limit_puts_its_claims_back_and_the_account_rests(bench, kind):
    bench = bench()
    task = bench.item("a")
    met = StreamState("s-1", error=StreamError(kind, "try again in 300s", retrying=True))
    bench.agents_do([bench.claims(), met, None])
    assert bench.outcomes_of(task) == ["released"] and "stop" in bench.log
    (cooldown,) = bench.store.cooldowns()
    assert cooldown.account == ACCOUNT and cooldown.until > bench.store.now() + 200_000
    assert bench.store.pauses() == []


def test_a_refused_key_pauses_the_batch_at_once(bench):
    bench = bench()
    task = bench.item("a")
    met = StreamState("s-1", error=StreamError(kinds.AUTH, "invalid key", 401))
    bench.agents_do([bench.claims(), met, None])
    assert bench.outcomes_of(task) == ["released"] and len(bench.runs()) == 1
    assert "claude: " in bench.store.pauses()[0].reason
    assert "Log in" in bench.store.pauses()[0].reason


def test_agents_that_claim_nothing_are_not_started_forever(bench):
    bench = bench()
    bench.item("a"), bench.item("b")
    idle = [None, (EMPTY, WELL)]
    busy = [bench.claims(), None, bench.completes, (EMPTY, WELL)]
    bench.agents_do(idle, idle, busy, idle, idle, idle)
    assert len(bench.runs()) == 6, "one that claimed makes up for those before it"
    assert "claimed nothing 3 times in a row" in bench.store.pauses()[0].reason


def test_a_cancelled_claim_ends_the_agent_and_the_others_go_back(bench):
    bench = bench()
    tasks = [bench.item(text) for text in "ab"]

    def cancel():
        bench.store.ask_stop(tasks[0], "cancel", "enough", "somebody")

    bench.agents_do([bench.claims(2), cancel, None], [bench.claims(), bench.asks("stop"), None])
    assert bench.task(tasks[0]).state == "cancelled"
    assert bench.outcomes_of(tasks[1])[0] == "released"
    assert bench.log.count("stop") == 2


def test_a_limit_of_the_run_fails_what_it_holds(bench):
    bench = bench(memory=1 << 20)
    task = bench.item("a")

    def grows():
        bench.runner.memory = 1 << 30

    bench.agents_do([bench.claims(), grows, None, None, None])
    assert bench.outcomes_of(task) == ["failed"] and "memory" in bench.task(task).reason
    assert bench.store.memory_peak(agent="claude") is None, "it was cut off"


def test_told_to_stop_it_gives_back_what_it_holds(bench):
    bench = bench()
    task = bench.item("a")
    bench.agents_do([bench.claims(), bench.asks("stop"), None])
    assert bench.outcomes_of(task) == ["released"]
    assert [run.outcome for run in bench.runs()] == ["stopped"]


def test_told_to_drain_it_may_finish_what_it_holds(bench):
    bench = bench()
    first, second = bench.item("a"), bench.item("b")

    def claims_more():
        held = bench.held
        bench.claims()()
        bench.held = held

    steps = [bench.claims(), bench.asks("drain"), claims_more, bench.completes, None]
    bench.agents_do(steps)
    assert bench.outcomes_of(first) == ["done"]
    assert bench.outcomes_of(second) == ["released"], "what came after that is not waited for"


def test_it_beats_for_what_the_agent_holds(bench, monkeypatch):
    monkeypatch.setattr("hypervisor.agents.pull_attempts.HEARTBEAT", 0.0)
    bench = bench()
    bench.item("a")
    ends = []

    def look():
        (lease,) = bench.store.claims_of(ME.id)
        ends.append(lease.until)

    def soon():
        wanted = ClaimRequest(ME, 1, 1_000, ClaimFilter(batch=bench.batch))
        bench.held = [lease.token for lease in bench.store.claim(wanted)]

    bench.agents_do([soon, look, look, bench.completes, (EMPTY, WELL)])
    assert ends[-1] > ends[0] - 1 and ends[-1] > bench.store.now() + 10_000


def test_a_brake_is_lifted_by_an_answer(bench):
    bench = bench()
    bench.item("a")
    bench.store.start_cooldown(Cooldown(ACCOUNT, bench.store.now() - 1, 1, "limit", 0), "t")
    seen = []

    def look():
        seen.append(len(bench.store.cooldowns()))

    said = StreamState("s-1", tools=1)
    bench.agents_do(
        [bench.claims(), StreamState("s-1"), look, said, look, bench.completes, (EMPTY, WELL)]
    )
    assert seen == [1, 0]


def test_a_budget_that_is_used_up_pauses_the_batch_while_the_agent_works(bench):
    bench = bench(budget=50_000)
    tasks = [bench.item(text) for text in "ab"]
    seen = []

    def look():
        seen.append(len(bench.store.pauses()))

    spends = StreamState("s-1", Tokens(1, 1), 0.10)
    bench.agents_do([bench.claims(), spends, None, look, bench.completes, (EMPTY, WELL)])
    assert seen == [1] and [bench.task(task).state for task in tasks] == ["done", "active"]


def test_its_home_goes_with_it(bench):
    bench = bench()
    home = f"{ME.pid}-{ME.pid_start}"
    bench.item("a")

    def moves_in():
        bench.homes.prepare(home)

    bench.agents_do([bench.claims(), moves_in, bench.completes, (EMPTY, WELL)])
    assert not bench.homes.exists(home)


def test_another_way_to_run_it_is_for_another_worker(bench):
    bench = bench()
    bench.item("a"), bench.item("b")

    def declares_anew():
        bench.store.declare("b", spec_data(changed(bench.spec, model="big")), "t")

    bench.agents_do([bench.claims(), declares_anew, bench.completes, (EMPTY, WELL)])
    assert len(bench.runs()) == 1


def test_a_limit_that_only_the_exit_code_tells_makes_the_account_rest_too(bench):
    bench = bench(agents=("gemini",))
    bench.item("a")
    bench.in_turn("", [(StreamState("s-1", ended=True), Ended(173, None, 0.1, 0))])
    bench.work("gemini")
    (cooldown,) = bench.store.cooldowns()
    assert cooldown.account == "account:gemini" and cooldown.reason
    assert bench.store.pauses() == []


def test_trouble_that_the_agent_deals_with_itself_does_not_end_it(bench):
    bench = bench()
    task = bench.item("a")
    trying = StreamState("s-1", error=StreamError(kinds.NETWORK, "cut off", retrying=True))
    bench.agents_do([bench.claims(), trying, None, bench.completes, (EMPTY, WELL)])
    assert "stop" not in bench.log and bench.outcomes_of(task) == ["done"]


def test_the_memory_that_was_seen_is_learned(bench):
    bench = bench()
    bench.item("a")

    def grows():
        bench.runner.memory = WELL.peak * 3

    bench.agents_do([bench.claims(), grows, None, bench.completes, (EMPTY, WELL)])
    assert bench.store.memory_peak(agent="claude") == WELL.peak * 3
