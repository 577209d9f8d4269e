"""What the end of an agent's run leaves behind: in the store, in its home, for the others."""

from __future__ import annotations

import errno
import os

import pytest

from hypervisor.adapters.host import LocalHost
from hypervisor.domain import checks
from hypervisor.domain.agents import heard as kinds
from hypervisor.domain.agents.brake import Brake
from hypervisor.domain.agents.heard import Heard, Tokens, Trouble
from hypervisor.domain.agents.session import NewSession
from hypervisor.domain.attempt import Ended
from hypervisor.domain.task import NewTask, TaskFilter
from hypervisor.operations.proposing import propose
from tests.services.agent_bench import ACCOUNT
from tests.services.benches import WELL

DONE = Heard(
    "s-1", Tokens(100, 10), 0.10, 1, 1, ended=True, ok=True, result={"status": "completed"}
)
LIMIT = Trouble(kinds.QUOTA, "too many requests", 429, retrying=True)


def test_a_failure_that_is_reported_is_final_and_has_its_evidence(bench):
    bench = bench()
    report = {"status": "failed", "reason": "no such thing", "evidence": "line 3"}
    task = bench.item("a", (DONE._replace(result=report), WELL), retries=5)
    bench.work()
    found = bench.task(task)
    assert (found.state, found.reason) == ("failed", "refused: no such thing")
    assert [each.text for each in bench.store.receipts_of_task(task)] == ["line 3"]


def test_a_block_without_a_next_step_names_none(bench):
    bench = bench()
    report = {"status": "blocked", "reason": "no key"}
    task = bench.item("a", (DONE._replace(result=report), WELL))
    bench.work()
    assert (bench.task(task).state, bench.task(task).unblock) == ("blocked", None)


def test_a_result_that_cannot_be_kept_is_a_failure(bench):
    """It is just small enough itself, but not with what was proposed before."""
    bench = bench()
    data = "x" * (checks.LONGEST_TEXT - 45)

    def proposes():
        propose(bench.hv, bench.runner.token, {"do": "delete", "path": "old.txt"})
        return (DONE._replace(result={"status": "completed", "data": data}), WELL)

    task = bench.item("a", proposes)
    bench.work()
    assert bench.outcomes_of(task) == ["failed"] and "no result: " in bench.task(task).reason


def test_a_reset_that_was_told_is_the_end_of_the_rest(bench):
    bench = bench()
    bench.item("a", Heard("s-1", trouble=Trouble(kinds.QUOTA, "try again in 300s", 429)))
    bench.work()
    (brake,) = bench.store.brakes()
    assert brake.until > bench.store.now() + 200_000


def test_a_limit_that_only_the_exit_code_tells_makes_the_account_rest_too(bench):
    bench = bench(agents=("gemini",))
    task = bench.item("a", (Heard("s-1", ended=True), Ended(173, None, 0.1, 0)))
    bench.work("gemini")
    (brake,) = bench.store.brakes()
    assert (brake.account, bench.outcomes_of(task)) == ("account:gemini", ["released"])
    assert brake.reason.startswith("quota: ")


def test_trouble_that_the_agent_deals_with_itself_does_not_end_it(bench):
    bench = bench()
    trying = Trouble(kinds.NETWORK, "cut off", retrying=True)
    task = bench.item("a", Heard("s-1", trouble=trying), None, (DONE, WELL))
    bench.work()
    assert "stop" not in bench.log and bench.outcomes_of(task) == ["done"]


def test_a_brake_is_lifted_by_an_answer_not_by_a_start(bench):
    bench = bench()
    bench.store.set_brake(Brake(ACCOUNT, bench.store.now() - 1, 1, "limit", 0), "t")
    seen = []

    def look():
        seen.append(len(bench.store.brakes()))

    bench.item("a", Heard("s-1"), look, Heard("s-1", tools=1), look, (DONE, WELL))
    bench.work()
    assert seen == [1, 0]


def test_what_is_decided_is_written_before_a_rest(bench):
    bench = bench()
    task = bench.item("a", Heard("s-1", trouble=LIMIT))
    seen = []

    def pause(seconds):
        seen.append(bench.outcomes_of(task))
        bench.runner.asked = "drain"

    bench.runner.pause = pause
    bench.work()
    assert seen == [["released"]]


def test_one_without_money_does_not_wait_for_more(bench):
    bench = bench(budget=50_000)
    tasks = [bench.item(text, (DONE, WELL)) for text in "ab"]
    looks: list[float] = []
    bench.runner.pause = looks.append  # nobody asks it to go
    bench.work()
    assert [bench.task(task).state for task in tasks] == ["done", "active"] and len(looks) == 1


def test_one_that_could_not_be_started_leaves_no_open_run(bench):
    bench = bench()
    bench.item("a", OSError(errno.ENOENT, "no such program"))
    bench.work()
    assert [run.outcome for run in bench.runs()] == ["stopped"]


def test_the_run_of_a_killed_worker_is_closed_by_the_next(bench):
    bench = bench()
    task = bench.item("a", (DONE, WELL))
    bench.store.open_session(NewSession("claude", ACCOUNT, bench.batch, "gone", task, 1))
    bench.work()
    assert sorted(run.outcome for run in bench.runs()) == ["completed", "crashed"]


def test_an_agent_that_cannot_resume_starts_anew(bench):
    bench = bench(agents=("agy",))
    bench.item("a", Heard("s-1", Tokens(5, 5), trouble=LIMIT))
    bench.work("agy")
    bench.store.lift_brake("account:agy", "t")
    bench.runner.items["a"] = [(DONE, WELL)]
    bench.work("agy")
    assert [brief[1] for brief in bench.runner.briefs] == ["", ""]


def test_a_task_needs_no_item(bench):
    bench = bench()
    for data in (None, {"item": 7}, ["odd"]):
        bench.store.add([NewTask("Write it", type="run", data=data)], "b", "t")
    bench.runner.items["Write it"] = [(DONE, WELL)]
    bench.work()
    assert [brief[0] for brief in bench.runner.briefs] == ["do Write it"] * 3


def test_an_agent_that_hung_is_told_of(bench):
    bench = bench()

    def hangs():
        bench.runner.hung = True
        return (DONE, WELL)

    task = bench.item("a", hangs)
    bench.item("b", (DONE, WELL))
    bench.work()
    (told,) = bench.events("leftovers")
    assert told.task == task and "did not end" in told.data["said"]


class TestChanges:
    """In a copy of the project: kept as a patch, unless nobody wants them."""

    def kept(self, bench, *answers, size=7):
        def keep(task, path):
            if isinstance(size, Exception):
                raise size
            return size

        bench.runner.keep_changes = keep
        task = bench.item("a", *answers)
        bench.work()
        return [(each.task == task, each.data["bytes"]) for each in bench.events("patch")]

    def test_of_one_that_ended(self, bench):
        bench = bench(workspace="scratch")
        assert self.kept(bench, (DONE, WELL)) == [(True, 7)]
        (told,) = bench.events("patch")
        assert told.data["path"].endswith(".patch") and told.data["path"] in told.data["said"]

    def test_of_one_that_was_stopped(self, bench):
        bench = bench(workspace="scratch", task_budget=1)
        assert self.kept(bench, Heard("s-1", Tokens(1, 1), 0.2), None) == [(True, 7)]

    def test_not_of_one_that_was_cancelled(self, bench):
        bench = bench(workspace="scratch")

        def cancel():
            (task,) = bench.store.list_tasks(TaskFilter(), 9)
            bench.store.ask_stop(task.id, "cancel", "enough", "somebody")

        assert self.kept(bench, cancel, None) == []

    def test_not_in_the_project_itself(self, bench):
        assert self.kept(bench(), (DONE, WELL)) == []

    @pytest.mark.parametrize(
        "size, said", [(0, "it changed nothing"), (OSError(28, "disk full"), "could not be kept")]
    )
    def test_none_or_no_room(self, bench, size, said):
        bench = bench(workspace="scratch")
        assert self.kept(bench, (DONE, WELL), size=size) == [(True, 0)]
        (told,) = bench.events("patch")
        assert said in told.data["said"] and told.data["path"] == ""


def test_homes_of_dead_workers_go_and_those_of_living_ones_stay(bench):
    bench = bench()
    start = LocalHost().process_start(os.getpid())
    assert start is not None
    dead, alive, odd = f"{os.getpid()}-{start + 1}", f"{os.getpid()}-{start}", "7-x"
    for name in (dead, alive, odd):
        bench.homes.prepare(name)
    bench.work()
    assert [bench.homes.exists(name) for name in (dead, alive, odd)] == [False, True, True]


def test_after_a_long_attempt_budgets_and_brakes_are_asked_too(bench, monkeypatch):
    monkeypatch.setattr("hypervisor.services.worker.FLUSH", -1.0)  # each was a long one
    bench = bench(budget=150_000)
    tasks = [bench.item(text, (DONE, WELL)) for text in "abcd"]
    bench.work()
    assert [bench.task(task).state for task in tasks] == ["done"] * 2 + ["active"] * 2


def test_nor_does_a_long_attempt_claim_for_an_account_that_rests(bench, monkeypatch):
    monkeypatch.setattr("hypervisor.services.worker.FLUSH", -1.0)
    bench = bench()
    bench.item("a", Heard("s-1", trouble=LIMIT))
    other = bench.item("b", (DONE, WELL))
    bench.work()
    assert bench.outcomes_of(other) == []
