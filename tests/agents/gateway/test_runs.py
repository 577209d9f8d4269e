"""Whole runs through the gateway, with real processes: budgets, kills, keys."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from hypervisor.core.errors import EXIT_UNSUCCESSFUL
from hypervisor.queue.sql import agent_sessions
from hypervisor.resources.process_table import pids
from hypervisor.runs import sql as runs_sql
from tests.agents.gateway.calling_project import AGENT, CALL, ITEM, KEY, CallingProject
from tests.agents.real.model_server import ModelServer
from tests.agents.real.moves import Move, Turn, refuse, say
from tests.torture.fleet import wait_for


@pytest.fixture
def model():
    with ModelServer(keep_bodies=True) as server:
        server.script(ITEM, lambda turn: say("hello", tokens=(1000, 200, 0)))
        yield server


@pytest.fixture
def project(tmp_path, model):
    made: list[CallingProject] = []

    def make(calls: int, pause: float = 0) -> CallingProject:
        made.append(CallingProject(tmp_path, model, calls, pause))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_no_task_exceeds_its_budget_by_more_than_one_call(project, model):
    """Eight agents whose tasks would use ten times their cap."""
    here = project(calls=40)
    words = here.work(8, "--workers", "8", "--task-tokens", str(4 * CALL - 100))
    ended = here.ended(here.start(*words))
    assert ended.code == EXIT_UNSUCCESSFUL, ended.err + here.story()
    here.wait_until_left()
    assert here.states() == {"failed": 8}
    assert here.by_task() == [(4 * CALL, 4)] * 8
    assert len(model.bodies) == 32
    with here.open() as hv:
        reasons = {task.reason for task in hv.list_tasks()}
    assert all("token limit of the task is used up: 4,800 of 4,700" in text for text in reasons)


def test_a_batch_is_stopped_in_the_middle_and_its_tasks_go_back(project, model):
    here = project(calls=40)
    words = here.work(4, "--workers", "2", "--tokens", str(10 * CALL), "--detach")
    assert here.ended(here.start(*words)).code == 0
    with here.open() as hv:
        wait_for(lambda: bool(hv.status().pauses), "the pause", 120, here.story)
        (pause,) = hv.status().pauses
    here.wait_until_left()
    assert "the token limit of the batch is used up" in pause.reason
    assert here.states() == {"active": 4}
    assert len(model.bodies) <= 10 + 2, "one call more per running agent, at most"
    assert sum(tokens for tokens, _ in here.by_task()) == len(model.bodies) * CALL


def test_the_gateway_is_replaced_without_the_agents_noticing(project, model):
    here = project(calls=60, pause=0.02)
    client = here.start(*here.work(2, "--workers", "2"))
    first = here.gateway()
    for kills in range(2):
        asked = len(model.bodies)
        wait_for(partial(_has_more, model, asked + 5), "some calls", 60, here.story)
        pid = here.gateway()
        os.kill(pid, signal.SIGKILL)
        wait_for(partial(_is_replaced, here, pid), f"gateway {kills + 2}", 60, here.story)
    ended = here.ended(client)
    assert ended.code == 0, ended.err + here.story()
    here.wait_until_left()
    assert here.states() == {"done": 2} and here.gateway() != first
    with here.open() as hv:
        retried = [task.result["summary"] for task in hv.list_tasks()]
    assert set(retried) <= {f"retried {n}" for n in range(3)}, "at most one call per replacement"
    (rows,) = here.query("SELECT outcome, count(*) FROM attempts GROUP BY outcome")
    assert rows == [("done", 2)]


def _has_more(model: ModelServer, calls: int) -> bool:
    return len(model.bodies) > calls


def _is_replaced(here: CallingProject, gateway: int) -> bool:
    return here.gateway() != gateway


def test_an_agent_whose_worker_was_killed_makes_not_one_more_call(project, model):
    """Even if nobody stops it: the supervisor is stopped first, so nobody can."""
    here = project(calls=10_000, pause=0.01)
    here.start(*here.work(1, "--workers", "1"))
    here.gateway()
    wait_for(lambda: len(model.bodies) > 3, "some calls", 60, here.story)
    with here.open() as hv:
        supervisor = hv.launcher.supervisor()
        (worker,) = [w.worker.pid for w in hv.store.read(runs_sql.at_work, hv.probe.boot())]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: _is_dead(worker), "the end of the worker", 30)
        calls = len(model.bodies)
        refused = "SELECT refused, refusal FROM sessions"
        wait_for(lambda: here.query(refused)[0][0][0] == "claim", "a refused call", 30, here.story)
        assert here.query(refused) == [[("claim", "the worker of this attempt is gone")]]
        assert len(model.bodies) <= calls + 1  # one may have been on its way
    finally:
        os.kill(supervisor, signal.SIGCONT)


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_a_rate_limit_is_seen_once_and_the_tasks_go_back(project, model):
    model.scripts[:] = []
    is_over = threading.Event()

    def limited(turn: Turn) -> Move:
        return say("hello") if is_over.is_set() else refuse(429, 3600, error="slow down")

    model.script(ITEM, limited)
    here = project(calls=3)
    client = here.start(*here.work(4, "--workers", "4"))
    wait_for(lambda: bool(here.events("cooldown")), "a cooldown", 60, here.story)
    with here.open() as hv:
        wait_for(lambda: here.states() == {"active": 4}, "all tasks to go back", 60, here.story)
        assert len(model.bodies) < 4, "those that came later were not asked to try"
        assert {run.outcome for run in hv.store.read(agent_sessions.sessions)} == {"quota"}
        is_over.set()
        (cooldown,) = hv.cooldowns()
        assert cooldown.until > hv.now() + 3_000_000
        hv.end_cooldown(cooldown.account)
    ended = here.ended(client)
    assert ended.code == 0, ended.err + here.story()
    here.wait_until_left()
    assert here.states() == {"done": 4}
    with here.open() as hv:
        assert all(task.failures == 0 for task in hv.list_tasks())
    assert len(here.events("cooldown")) == 1


def test_the_key_is_nowhere_an_agent_could_be_given_it(project, model):
    here = project(calls=30, pause=0.02)
    seen: set[str] = set()
    looks = threading.Event()
    sampler = threading.Thread(target=_sample, args=(here, looks, seen), daemon=True)
    sampler.start()
    ended = here.ended(here.start(*here.work(3, "--workers", "3")))
    looks.set()
    sampler.join(30)
    assert ended.code == 0, ended.err + here.story()
    assert any("agent" in place for place in seen), "no agent was ever seen"
    assert not [place for place in seen if place.startswith("KEY")], seen
    here.wait_until_left()
    assert _with_key(here.folder) == []


ENDS = {
    "killed": ((), "failed"),
    "timed out": (("--timeout", "2s"), "failed"),
    "budget": (("--task-tokens", str(3 * CALL)), "failed"),
    "failed": ((), "failed"),
    "rate-limited": ((), "active"),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_key_is_nowhere_after_any_kind_of_end(project, model, end):
    words, state = ENDS[end]
    model.scripts[:] = []
    answers = {"failed": refuse(400, error="bad"), "rate-limited": refuse(429, 3600, error="slow")}
    asked = threading.Event()

    def moves(turn: Turn) -> Move:
        asked.set()
        return answers.get(end, say("hello", tokens=(1000, 200, 0)))

    model.script(ITEM, moves)
    here = project(calls=10_000, pause=0.02)
    seen: set[str] = set()
    looks = threading.Event()
    sampler = threading.Thread(target=_sample, args=(here, looks, seen), daemon=True)
    sampler.start()
    assert here.ended(here.start(*here.work(1, "--detach", *words))).code == 0
    assert asked.wait(60), here.story()
    if end == "killed":
        ((id,),) = here.query("SELECT id FROM tasks")[0]
        assert here.ended(here.start("kill", id)).code == 0
    ended = "SELECT outcome FROM attempts"
    wait_for(lambda: here.query(ended)[0][0][0] is not None, "its end", 60, here.story)
    looks.set()
    sampler.join(30)
    assert here.states() == {state: 1}, here.story()
    assert "agent" in seen and not [place for place in seen if place.startswith("KEY")], seen
    assert _with_key(here.folder) == []


def _sample(here: CallingProject, over: threading.Event, seen: set[str]) -> None:
    """Look at the environment and the command line of all agents, and at their homes."""
    while not over.wait(0.02):
        for pid in pids():
            text = f"/proc/{pid}"
            try:
                line = Path(text, "cmdline").read_bytes()
                if str(AGENT).encode() not in line:
                    continue
                given = Path(text, "environ").read_bytes()
            except OSError:
                continue
            seen.add("agent")
            if KEY.encode() in line + given:
                seen.add(f"KEY in process {pid}")
        seen.update(f"KEY in {path}" for path in _with_key(here.folder / ".hypervisor" / "agents"))


def _with_key(folder: Path) -> list[Path]:
    """The files that contain the key. Others may be removed at the same time."""
    found = []
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            with suppress(OSError):
                if path.is_file() and KEY.encode() in path.read_bytes():
                    found.append(path)
    return found
