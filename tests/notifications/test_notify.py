"""Rules and notices on both databases: which are created, in which order they are delivered, what

is retried. Receivers are simulated; time is an argument.
"""

from __future__ import annotations

from typing import Any

import pytest

from hypervisor.core.errors import InvalidInput, NotFound, WrongState
from hypervisor.notifications.matching import collect
from hypervisor.notifications.notice import MAX_WAIT, Rule, wait_after
from hypervisor.notifications.notify import (
    LEASE,
    add_rule,
    dead_letters,
    deliver,
    drop_notices,
    remove_rule,
    retry_notices,
    rules,
    try_rule,
)
from hypervisor.notifications.sql import notices
from hypervisor.queue.add import add
from hypervisor.queue.context import Context
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Worker, parse_token
from hypervisor.queue.pause import BATCH, Pause
from hypervisor.queue.sql import merging
from hypervisor.queue.task import NewTask
from hypervisor.resources.host import LocalHost
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import spec_data
from tests.support.intercept import intercept
from tests.support.parts import parts
from tests.support.specs import run_spec

NOW = 1_800_000_000_000
ANN = Worker("w-1", "ann", "here", "boot/1", 11, 100)
SECOND = 1_000


class Host(LocalHost):
    def __init__(self, boot: str) -> None:
        super().__init__()
        self.name = boot

    def boot(self):
        return self.name


class Mailbox:
    """A receiver that can be made to fail."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.fails = 0
        self.addresses: dict[str, str] = {}

    def keep(self, rule, address):
        self.addresses[rule] = address

    def forget(self, rule):
        self.addresses.pop(rule, None)

    def can_reach(self, rule):
        return bool(rule.command) or rule.name in self.addresses

    def deliver(self, rule, notice, show_output=False):
        if self.fails:
            self.fails -= 1
            return "nobody at home"
        self.got.append(notice.data)
        return None

    @property
    def said(self):
        return [each["message"] for each in self.got]


def context(store, mailbox, boot="boot/1"):
    return Context(store, Host(boot), "tester", parts=parts(courier=mailbox))


@pytest.fixture
def mailbox():
    return Mailbox()


@pytest.fixture
def hv(ledger, mailbox):
    return context(ledger, mailbox)


def settle(hv, event="complete", count=1, reason=None):
    """Claim this many and end them all; returns their ids."""
    request = ClaimRequest(ANN, count, 60_000, ClaimFilter())
    leases = hv.store.claim(request, NOW)
    verdicts = [
        AttemptResult(parse_token(str(each.token)), event, reason=reason) for each in leases
    ]
    hv.store.settle(verdicts, NOW)
    return [each.task.id for each in leases]


def rule_of(hv, name="log"):
    return next(each for each in hv.store.rules() if each.name == name)


def pump(hv, now=NOW, name="log"):
    collect(hv)
    return deliver(hv, rule_of(hv, name), now=now)


def run_batch(hv, name, titles, **more):
    hv.store.declare(name, spec_data(run_spec("/", ("true",))), "tester", NOW)
    add(hv, [NewTask(title, **more) for title in titles], batch=name)
    return hv.store.batch(name).id


class TestWhatIsFiled:
    def test_each_event_once_and_in_order(self, hv, mailbox):
        add_rule(hv, "log", ["done", "failed"], ["x"])
        add(hv, [NewTask(f"task {n}") for n in range(5)])
        settle(hv, "complete", 3)
        settle(hv, "fail", 2, "no luck")
        assert pump(hv).sent == 5
        assert pump(hv).sent == 0
        assert mailbox.said == [
            *(f"done: task {n}" for n in range(3)),
            *(f"failed: task {n}: no luck" for n in (3, 4)),
        ]
        assert [each["number"] for each in mailbox.got] == sorted(
            each["number"] for each in mailbox.got
        )

    def test_what_happened_before_the_rule_is_not_told(self, hv, mailbox):
        add(hv, [NewTask("early"), NewTask("late")])
        settle(hv)
        add_rule(hv, "log", ["done"], ["x"])
        settle(hv)
        pump(hv)
        assert mailbox.said == ["done: late"]

    def test_a_new_rule_does_not_lose_what_another_look_has_passed(self, hv, mailbox):
        add_rule(hv, "old", ["failed"], ["x"])
        passed = collect(hv)
        add_rule(hv, "log", ["done"], ["x"])
        add(hv, [NewTask("one")])
        settle(hv)
        far = {key: number + 1_000 for key, number in passed.items()}
        collect(hv, far)
        assert deliver(hv, rule_of(hv), now=NOW).sent == 1

    def test_two_who_look_at_once_file_it_once(self, hv, open_ledger, mailbox):
        add_rule(hv, "log", ["done"], ["x"])
        add(hv, [NewTask("one")])
        settle(hv)
        other = context(open_ledger(), mailbox)
        slow = other.store.rules()
        pump(hv)
        events = other.store.events(slow[0].seen, 100)
        from hypervisor.notifications.matching import _notices

        other.store.file_notices(_notices(other, slow, events), slow, events[-1].seq)
        pump(hv)
        assert len(mailbox.got) == 1

    def test_only_of_the_batch_and_the_type(self, hv, mailbox):
        add(hv, [NewTask("a", type="x")], batch="one")
        add_rule(hv, "log", ["done"], ["x"], batch="one", type="x")
        add(hv, [NewTask("b", type="y")], batch="one")
        add(hv, [NewTask("c", type="x")], batch="two")
        settle(hv, "complete", 3)
        pump(hv)
        assert mailbox.said == ["done: a"]

    @pytest.mark.parametrize("name", ["cooldown", "rate_limit", "brake"])
    def test_cooldowns_and_budgets(self, hv, mailbox, name):
        assert add_rule(hv, "log", [name, "budget"], ["x"]).on == ("budget", "cooldown")
        batch = run_batch(hv, "b", ["t"])
        hv.store.note("budget", {"message": "nearly used up"}, "w", batch=batch)
        hv.store.note("cooldown", {"message": "claude is rate-limited until 14:05"}, "w")
        hv.store.note("budget", {"message": "1 of 1 is gone"}, "w", batch=batch)
        hv.store.pause(Pause(BATCH, batch, "the word 'is used up' proves nothing", "w", 0), NOW)
        pump(hv)
        assert mailbox.said == [
            "nearly used up",
            "claude is rate-limited until 14:05",
            "1 of 1 is gone",
        ]

    def test_a_rule_and_events_of_an_older_version(self, hv, mailbox):
        rule = Rule("log", ("brake",), command=("x",), cwd="/")
        hv.store.write(notices.add_rule, rule, "me", NOW)
        hv.store.note("brake", {"said": "claude is rate-limited until 14:05"}, "w")
        pump(hv)
        assert mailbox.said == ["claude is rate-limited until 14:05"]
        assert [each["what"] for each in mailbox.got] == ["cooldown"]

    def test_a_task_in_review(self, hv, mailbox):
        add_rule(hv, "log", ["review", "done"], ["x"])
        spec = spec_data(run_spec("/", ("true",), workspace="clone", git_merge="branch"))
        hv.store.write(runs_sql.declare, "b", spec, "me", NOW)
        add(hv, [NewTask("a.py")], batch="b")
        [task] = settle(hv)
        pump(hv)
        assert mailbox.said == [], "it is merging"
        hv.store.write(merging.to_review, task, 1, "conflict in a.py", "merger", now=NOW)
        pump(hv)
        assert mailbox.said == [
            f"a.py is waiting for your decision (hv show {task}): conflict in a.py"
        ]
        hv.store.write(merging.approve, task, "fine", "me", now=NOW)
        hv.store.write(merging.merged, task, 1, {}, "merger", now=NOW)
        pump(hv)
        assert mailbox.said[1:] == ["done: a.py"]

    def test_events_beyond_one_page(self, hv, mailbox):
        add_rule(hv, "log", ["done"], ["x"])
        add(hv, [NewTask(f"{n:04}") for n in range(600)])
        settle(hv, "complete", 600)
        pump(hv)
        assert mailbox.said == [f"done: {n:04}" for n in range(600)]


class TestEndings:
    def test_a_batch_finishes_once(self, hv, mailbox):
        add_rule(hv, "log", ["finished"], ["x"])
        run_batch(hv, "b", "abc")
        settle(hv, "complete", 2)
        pump(hv)
        assert mailbox.got == []
        settle(hv, "fail", 1, "why")
        pump(hv)
        pump(hv)
        assert mailbox.said == ["batch b finished: 2 done, 1 failed"]

    def test_and_once_again_after_a_retry(self, hv, mailbox):
        add_rule(hv, "log", ["finished"], ["x"])
        run_batch(hv, "b", "a")
        (task,) = settle(hv, "fail", 1, "why")
        pump(hv)
        hv.store.reopen(task, "", "tester", NOW + 1)
        pump(hv)
        assert len(mailbox.got) == 1
        lease = hv.store.claim(ClaimRequest(ANN, 1, 60_000, ClaimFilter()), NOW + 2)[0]
        hv.store.settle([AttemptResult(parse_token(str(lease.token)), "complete")], NOW + 3)
        pump(hv)
        assert mailbox.said[1:] == ["batch b finished: 1 done"]

    def test_seen_in_two_passes_it_is_reported_once(self, hv, mailbox):
        """The batch has finished when the first of its last events is read."""
        add_rule(hv, "log", ["finished"], ["x"])
        run_batch(hv, "b", [str(n) for n in range(600)])
        settle(hv, "complete", 600)
        pump(hv)
        assert len(mailbox.got) == 1

    def test_a_batch_that_nothing_runs_has_no_end(self, hv, mailbox):
        add_rule(hv, "log", ["finished"], ["x"])
        add(hv, [NewTask("a")], batch="b")
        settle(hv)
        pump(hv)
        assert mailbox.got == []

    def test_a_chunk_that_waits_for_a_decision(self, hv, mailbox):
        add_rule(hv, "log", ["checkpoint"], ["x"])
        batch = hv.store.declare("b", spec_data(run_spec("/", ("true",))), "tester", NOW).id
        hv.store.declare_chunks(batch, ["1", "2"], "each")
        add(hv, [NewTask("a", chunk=1), NewTask("b", chunk=1), NewTask("c", chunk=2)], batch="b")
        settle(hv)
        pump(hv)
        assert mailbox.got == []
        settle(hv)
        pump(hv)
        pump(hv)
        assert [each["chunk"] for each in mailbox.got] == [1]
        hv.store.decide_chunk(batch, 1, "approved", "", "tester", NOW)
        settle(hv)
        pump(hv)
        assert [each["chunk"] for each in mailbox.got] == [1, 2]
        assert mailbox.said[0] == "chunk 1 of batch b is waiting for your decision: hv review b"


class TestTrouble:
    def test_waits_grow_up_to_an_end(self):
        waits = [wait_after(n) for n in range(1, 40)]
        assert waits[:4] == [SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND]
        assert waits == sorted(waits)
        assert waits[-1] == MAX_WAIT

    def test_the_next_waits_for_the_one_before(self, hv, mailbox):
        add_rule(hv, "log", ["done"], ["x"])
        add(hv, [NewTask("a"), NewTask("b")])
        settle(hv, "complete", 2)
        mailbox.fails = 2
        assert pump(hv, NOW)[:2] == (0, 1)
        assert pump(hv, NOW + SECOND - 1)[:2] == (0, 0)
        assert pump(hv, NOW + SECOND)[:2] == (0, 1)
        assert pump(hv, NOW + 2 * SECOND)[:2] == (0, 0)
        assert pump(hv, NOW + 3 * SECOND)[:2] == (2, 0)
        assert mailbox.said == ["done: a", "done: b"]
        assert rule_of(hv).failures == 0

    def test_a_clock_that_is_put_back_holds_nothing_up(self, hv, mailbox):
        add_rule(hv, "log", ["done"], ["x"])
        add(hv, [NewTask("a")])
        settle(hv, "complete", 1)
        mailbox.fails = 1
        assert pump(hv, NOW)[:2] == (0, 1)
        assert pump(hv, NOW - 24 * 3600 * SECOND)[:2] == (1, 0)

    def test_too_often_is_a_dead_letter_and_the_others_continue(self, hv, mailbox):
        add_rule(hv, "log", ["done"], ["x"], tries=3)
        add(hv, [NewTask("a"), NewTask("b")])
        settle(hv, "complete", 2)
        mailbox.fails = 3
        now = NOW
        for _ in range(3):
            pump(hv, now)
            now = rule_of(hv).due_at
        assert [(each.data["title"], each.tries, each.error) for each in dead_letters(hv)] == [
            ("a", 3, "nobody at home")
        ]
        kinds = [each.kind for each in hv.store.events(0, 1_000)]
        assert kinds.count("dead_letter") == 1
        assert pump(hv, now - 1).sent == 0, "a receiver that is down is not asked in between"
        assert pump(hv, now).sent == 1
        assert mailbox.said == ["done: b"]
        assert retry_notices(hv, "log") == 1
        assert pump(hv, now).sent == 1
        assert mailbox.said == ["done: b", "done: a"]
        assert dead_letters(hv) == ()

    def test_dead_letters_can_be_dropped(self, hv, mailbox):
        add_rule(hv, "log", ["done", "finished"], ["x"], tries=1)
        run_batch(hv, "b", "a")
        settle(hv)
        mailbox.fails = 2
        pump(hv, NOW)
        pump(hv, rule_of(hv).due_at)
        assert rules(hv)[0].failed == 2
        assert drop_notices(hv) == 2
        assert pump(hv, NOW + MAX_WAIT).sent == 0
        assert mailbox.got == []

    def test_one_host_at_a_time(self, hv, open_ledger, mailbox):
        add_rule(hv, "log", ["done"], ["x"])
        add(hv, [NewTask("a")])
        settle(hv)
        collect(hv)
        other = context(open_ledger(), mailbox, "boot/2")
        assert hv.store.take_notice("log", "boot/1", LEASE, NOW) is not None
        assert other.store.take_notice("log", "boot/2", LEASE, NOW + LEASE - 1) is None
        again = hv.store.take_notice("log", "boot/1", LEASE, NOW)
        assert again is not None, "the same host goes on after a crash"
        assert other.store.take_notice("log", "boot/2", LEASE, NOW + LEASE) is not None

    def test_an_address_of_another_host_waits_there(self, hv, open_ledger, mailbox):
        add_rule(hv, "log", ["done"], address="https://example.org/secret")
        add(hv, [NewTask("a")])
        settle(hv)
        collect(hv)
        other = context(open_ledger(), Mailbox(), "boot/2")
        assert deliver(other, rule_of(other), now=NOW).sent == 0
        assert rules(other)[0].reachable is False
        assert deliver(hv, rule_of(hv), now=NOW).sent == 1


class TestRules:
    def test_removing_one_removes_all_of_it(self, hv, mailbox, store):
        add_rule(hv, "log", ["done"], address="https://example.org/secret")
        add(hv, [NewTask("a")])
        settle(hv)
        collect(hv)
        remove_rule(hv, "log")
        assert mailbox.addresses == {}
        assert store.query("SELECT count(*) FROM notices", "SELECT count(*) FROM rules") == [
            [(0,)],
            [(0,)],
        ]
        with pytest.raises(NotFound):
            remove_rule(hv, "log")

    def test_a_test_goes_out_at_once(self, hv, mailbox):
        add_rule(hv, "log", ["done"], ["x"])
        try_rule(hv, "log")
        assert mailbox.said == ["this is a test of the rule log"]
        mailbox.fails = 1
        with pytest.raises(WrongState, match="nobody at home"):
            try_rule(hv, "log")

    def test_the_address_is_not_in_the_store(self, hv, store):
        add_rule(hv, "log", ["done"], address="https://example.org/s3cr3t")
        assert "s3cr3t" not in str(store.query("SELECT * FROM rules", "SELECT * FROM events"))

    @pytest.mark.parametrize(
        "wrong",
        [
            {"on": []},
            {"on": ["sometimes"]},
            {"name": "../x"},
            *({"name": name} for name in ("", "a b")),
            {"command": []},
            {"address": "https://x", "command": ["y"]},
            {"tries": 0},
            {"command": ["a\0b"]},
            {"command": [], "address": "no url"},
            {"command": [], "address": "https://x y"},
        ],
    )
    def test_what_makes_no_sense_is_refused(self, hv, wrong):
        given = {"name": "log", "on": ["done"], "command": ["x"], **wrong}
        with pytest.raises(InvalidInput):
            add_rule(hv, **given)
        assert hv.store.rules() == []

    def test_who_comes_second_overwrites_no_address(self, hv, mailbox, monkeypatch):
        add_rule(hv, "chat", ["done"], address="https://first")
        intercept(monkeypatch, hv.store, notices.rules, lambda really: [])  # just before the first
        with pytest.raises(WrongState):
            add_rule(hv, "chat", ["done"], address="https://second")
        assert mailbox.addresses == {"chat": "https://first"}

    def test_a_name_is_taken_once(self, hv, mailbox):
        add_rule(hv, "log", ["done"], address="https://example.org/first")
        with pytest.raises(WrongState):
            add_rule(hv, "log", ["done"], address="https://x.org/second")
        assert mailbox.addresses == {"log": "https://example.org/first"}
