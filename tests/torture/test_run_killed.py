"""Whatever is killed during a run: run again, everything is done, and nothing twice."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict

import pytest

from hypervisor.core.errors import EXIT_UNSUCCESSFUL
from hypervisor.resources.process_table import snapshot
from tests.torture.fleet import kill, wait_for

# Some take long enough to be watched, and some leave a process behind that must not stay.
APPEND = r"""
case $1 in
*0) sleep 0.4 ;;
*5) setsid sleep 300 & sleep 0.05 ;;
*) sleep 0.0$(($1 % 7)) ;;
esac
echo $1 >> appended
sleep 0.0$(($1 % 5))
"""
WORKERS = 4
MOSTLY = 0.8  # kill while commands run; otherwise at any time, such as during a start
EVERY = 0.12  # seconds between kills, on average
TARGETS = {"worker": 8, "child": 6, "supervisor": 5, "client": 3, "all": 3, "fork_server": 2}
AT_MOST = 600.0


@pytest.mark.parametrize(
    ("items", "strikes"), [(400, 25), pytest.param(2000, 300, marks=pytest.mark.long)]
)
def test_everything_is_done_and_nothing_finished_is_repeated(project, items, strikes):
    storm = Storm(project, items, random.Random(20261116 + items))
    storm.rage(strikes)
    storm.calm()
    project.wait_until_left()
    assert storm.orphans() == []
    story = Ledger(project).account(project, items, storm.killed)
    print(f"{items} items, {storm.strikes} strikes at {dict(storm.hits())}: {story}")


class Storm:
    def __init__(self, project, items, dice):
        self._project, self._items, self._dice = project, items, dice
        self._until = time.monotonic() + AT_MOST
        self._sessions = {}
        self.strikes = 0
        self.killed = {}  # role by pid and start
        (project.folder / "append.sh").write_text(APPEND)

    def start_client(self):
        command = ("run", "--quiet", "--workers", str(WORKERS), "--claim", "8", "--name", "storm")
        numbers = range(1, self._items + 1)
        return self._project.start(*command, "--", "sh", "append.sh", "{}", items=numbers)

    def rage(self, strikes):
        """Kill random processes until enough have died; restart the client if it is gone."""
        client = self.start_client()
        while self.strikes < strikes:
            assert time.monotonic() < self._until, self._project.story()
            if client.poll() == 0:
                assert self.strikes > strikes / 2, "all was done too soon: add items"
                return
            if client.poll() is not None:
                client = self.start_client()
            time.sleep(self._dice.random() * 2 * EVERY)  # kills come at random times
            if self._dice.random() < MOSTLY:
                self._wait_for_work(client)
            self._strike(self._dice.choices(list(TARGETS), list(TARGETS.values()))[0])
        client.kill()
        client.wait()

    def calm(self):
        """Run again: tasks hit by the last kills may still fail then, but not a second time."""
        first = self._project.ended(self.start_client(), AT_MOST)
        assert first.code in (0, EXIT_UNSUCCESSFUL), (first, self._project.story())
        last = self._project.ended(self.start_client(), AT_MOST)
        assert last.code == 0, (last, self._project.story())
        if first.code == 0:
            assert f"{self._items:,} already done, skipped" in last.err

    def _wait_for_work(self, client):
        def is_at_work():
            return any(self._project.role(p) == "child" for p in self._project.processes())

        ready = lambda: client.poll() is not None or is_at_work()  # noqa: E731
        wait_for(ready, "work", story=self._project.story)

    def _strike(self, target):
        by_role = defaultdict(list)
        for process in self._project.processes():
            by_role[self._project.role(process)].append(process)
        everything = [process for some in by_role.values() for process in some]
        self._remember(everything)
        some = by_role[target]
        victims = everything if target == "all" else self._dice.sample(some, min(1, len(some)))
        roles = {process: role for role, some in by_role.items() for process in some}
        hit = {(p.pid, p.start): roles[p] for p in victims if kill(p)}
        self.killed.update(hit)
        self.strikes += bool(hit)

    def _remember(self, processes):
        all = snapshot()
        for process in processes:
            leader = all.get(process.session)
            self._sessions.setdefault(process.session, leader.start if leader else 0)

    def orphans(self):
        """Processes still alive in a session of the run, unless the session's number was reused."""
        all = snapshot()
        return [
            process
            for process in all.values()
            if process.lives
            and process.session in self._sessions
            and (
                process.session not in all
                or all[process.session].start == self._sessions[process.session]
            )
        ]

    def hits(self):
        return Counter(self.killed.values())


class Ledger:
    """What happened according to the store."""

    def __init__(self, project):
        self.tasks, self.attempts, self.events = project.query(
            "SELECT t.id, d.title, t.state FROM tasks t JOIN details d ON d.task = t.id",
            "SELECT a.task, a.number, a.outcome, a.reason, w.pid, w.pid_start FROM attempts a "
            "JOIN workers w ON w.id = a.worker ORDER BY a.task, a.number",
            "SELECT task, kind, count(*) FROM events GROUP BY task, kind",
        )

    def account(self, project, items, killed):
        """Everything is done once, and every rerun is caused by a kill."""
        assert {int(title) for _, title, _ in self.tasks} == set(range(1, items + 1))
        assert {state for _, _, state in self.tasks} == {"done"}
        outcomes = defaultdict(list)
        for task, _, outcome, *_ in self.attempts:
            outcomes[task].append(outcome)
        for task, _, _ in self.tasks:
            assert outcomes[task][-1] == "done"
            assert "done" not in outcomes[task][:-1], f"{task} was run again although it was done"
        completed = {task: count for task, kind, count in self.events if kind == "complete"}
        assert completed == {task: 1 for task, _, _ in self.tasks}
        self._blame(killed)
        return self._compare(project, outcomes)

    def _blame(self, killed):
        """A crash needs a killed worker, which ran one attempt; a failure a killed child."""
        crashed = [
            (pid, start) for *_, outcome, _, pid, start in self.attempts if outcome == "crashed"
        ]
        assert {killed.get(worker) for worker in crashed} <= {"worker"}
        assert max(Counter(crashed).values(), default=0) <= 1, (
            "a worker crashed on what it never began"
        )
        failed = [reason for _, _, outcome, reason, *_ in self.attempts if outcome == "failed"]
        assert set(failed) <= {"killed by SIGKILL", "exit code 137"}, Counter(failed)
        assert len(failed) <= Counter(killed.values())["child"]

    def _compare(self, project, outcomes):
        """What ran is what the ledger says began: claims given back before were never run."""
        appended = Counter(map(int, (project.folder / "appended").read_text().split()))
        assert set(appended) == {int(title) for _, title, _ in self.tasks}
        began: Counter[str] = Counter()
        for task, title, _ in self.tasks:
            counts = Counter(outcomes[task])
            most = counts["done"] + counts["crashed"] + counts["failed"]
            assert 1 <= appended[int(title)] <= most, (title, appended[int(title)], outcomes[task])
            began.update(counts)
        twice = sum(count - 1 for count in appended.values())
        assert twice <= began["crashed"] + began["failed"]
        return f"{dict(began)}, {twice} lines more than items"
