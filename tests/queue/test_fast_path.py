"""The fast path: writes what the general path writes, and does not apply to other cases."""

from __future__ import annotations

import threading
import time
from typing import Any
from zlib import crc32

import psycopg
import pytest

from hypervisor.core import randomness
from hypervisor.core.errors import WrongState
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, ClaimRequest, Token, Usage, Worker, parse_token
from hypervisor.queue.pause import Pause
from hypervisor.queue.sql import fast_path
from hypervisor.queue.sql.postgres_fast_path import RankHints
from hypervisor.queue.task import NewTask
from hypervisor.store.postgres import PostgresDatabase
from tests.support.databases import dump
from tests.support.ledger import Ledger

NOW = 1_800_000_000_000
ANN = Worker("w-ann", "ann", "here", "boot1", 101, 1)
REQUEST = ClaimRequest(ANN, 1, 60_000)
USAGE = Usage(0, 120, 4096, 7)
PLAIN: dict[str, dict[str, Any]] = {
    "bare": {},
    "with a result": {"result": {"ok": [1, "two"]}},
    "with what it cost": {"usage": USAGE},
    "with both": {"result": 0, "usage": Usage(cpu_ms=5)},
}


@pytest.fixture
def taken(ledger, monkeypatch):
    """For each call, whether the database took the fast path."""
    seen: list[bool] = []
    really_run = ledger._db.run

    def watched(plain):
        row = really_run(plain)
        seen.append(row is not None)
        return row

    monkeypatch.setattr(ledger._db, "run", watched)
    return seen


def add(ledger, *tasks, batch=None, at=NOW):
    new = [NewTask(task) if isinstance(task, str) else task for task in tasks]
    return ledger.add(new, batch, "me", at).ids


def claim(ledger, **wanted):
    [lease] = ledger.claim(REQUEST._replace(wanted=ClaimFilter(**wanted)), NOW)
    return parse_token(lease.token)


def go_on(ledger, token, at=NOW + 5, request=REQUEST, **more):
    return ledger.settle_and_claim([AttemptResult(token, "complete", **more)], request, at)


def titles(leases):
    return [lease.task.title for lease in leases]


@pytest.mark.parametrize("how", PLAIN)
def test_it_writes_and_answers_what_the_general_way_does(store, monkeypatch, how):
    monkeypatch.setattr(randomness, "entropy", lambda: 7)
    monkeypatch.setattr(randomness, "nonces", lambda count: ["abcd"] * count)

    def history(general):
        store.wipe()
        ledger = store.open()
        if general:
            ledger._db.run = lambda plain: None
        add(ledger, "a", NewTask("b", priority="high", data={"n": 1}), "c", batch="many")
        add(ledger, NewTask("d", type="test", retries=2), at=NOW + 1)
        token, answers = claim(ledger), []
        for at in range(NOW + 1, NOW + 6):
            settled, leases = go_on(ledger, token, at, **PLAIN[how])
            answers.append((settled, leases))
            token = parse_token(leases[0].token) if leases else token
        ledger.close()
        return answers, {
            table: [row[1:] if table == "events" else row for row in rows]
            for table, rows in dump(store).items()
        }

    assert history(general=False) == history(general=True)


def test_it_is_taken_as_long_as_turns_are_plain(ledger, taken):
    first = add(ledger, "a", "b", "c")[0]
    token = claim(ledger)
    for expected in (["b"], ["c"], []):
        settled, leases = go_on(ledger, token, usage=USAGE, result="fine")
        assert (settled[0].state, settled[0].repeated, settled[0].lost) == ("done", False, None)
        assert titles(leases) == expected
        token = parse_token(leases[0].token) if leases else token
    assert taken == [True, True, True]
    detail = ledger.detail(first)
    assert (detail.task.result, detail.attempts[0].outcome) == ("fine", "done")
    assert detail.attempts[0].cpu_ms == USAGE.cpu_ms


def test_it_takes_the_best_of_several_lanes(ledger, taken):
    add(ledger, "a", NewTask("low", priority="low"), NewTask("test", type="test"))
    add(ledger, NewTask("top", priority="critical", type="test"), "b", at=NOW + 1)
    token = claim(ledger, types=("task",))
    order: list[list[str]] = []
    while order[-1:] != [[]]:
        _, leases = go_on(ledger, token)
        order.append(titles(leases))
        token = parse_token(leases[0].token) if leases else token
    assert order == [["top"], ["test"], ["b"], ["low"], []]
    assert all(taken)


@pytest.mark.parametrize("wrong", ["nonce", "attempt", "task", "ended", "taken back"])
def test_a_token_that_does_not_hold_ends_nothing(ledger, store, taken, wrong):
    task, *_ = add(ledger, "a", "b")
    token = held = claim(ledger)
    if wrong == "ended":
        ledger.settle([AttemptResult(token, "fail", reason="no")], NOW)
    elif wrong == "taken back":
        ledger.take_back(task, "mine", "me", NOW)
        token = claim(ledger)
    stale = {
        "nonce": token._replace(nonce="0000" if token.nonce != "0000" else "1111"),
        "attempt": token._replace(attempt=2),
        "task": Token("0" * 12, 1, token.nonce),
    }.get(wrong, held)
    before = dump(store)
    settled, _ = go_on(ledger, stale, request=REQUEST._replace(wanted=ClaimFilter(types=("task",))))
    assert settled[0].lost and taken == [False]
    after = dump(store)
    assert [row for row in after["events"] if row not in before["events"]][-1][2] == "claim"
    assert all("complete" not in row for row in after["events"])


def test_completing_again_gives_the_first_answer(ledger, taken):
    add(ledger, "a", "b")
    token = claim(ledger)
    go_on(ledger, token, result="first")
    settled, leases = go_on(ledger, token, result="second")
    assert (settled[0].repeated, settled[0].outcome, leases) == (True, "done", [])
    assert ledger.task(token.task).result == "first"
    assert taken == [True, False]


def test_what_a_task_frees_can_be_the_next(ledger, taken):
    (a,) = add(ledger, "a")
    add(ledger, "later", NewTask("freed", after=(a,), priority="critical"), at=NOW + 1)
    _, leases = go_on(ledger, claim(ledger))
    assert titles(leases) == ["freed"]
    assert taken == [False]


def test_a_lane_that_is_new_or_paused_is_noticed(ledger, open_ledger, taken):
    add(ledger, "a", "b", "c", "d")
    token = claim(ledger)
    other = open_ledger()
    add(other, NewTask("new", type="test", priority="critical"))
    [lease] = go_on(ledger, token)[1]
    assert lease.task.title == "new" and taken == [False]
    [lease] = go_on(ledger, parse_token(lease.token))[1]
    assert lease.task.title == "b" and taken == [False, True]
    other.pause(Pause("all", "", "lunch", "me", NOW), NOW)
    settled, leases = go_on(ledger, parse_token(lease.token))
    assert (settled[0].state, leases) == ("done", [])


def test_keys_are_freed_and_taken_the_general_way(ledger, taken):
    add(ledger, NewTask("a", exclusive=("k",)), NewTask("b", exclusive=("k",)), "c")
    [lease] = go_on(ledger, claim(ledger))[1]
    assert lease.task.title == "b"
    [lease] = go_on(ledger, parse_token(lease.token))[1]
    assert lease.task.title == "c" and taken == []


def test_a_keyed_task_is_not_ended_by_a_turn_that_looks_plain(ledger, taken):
    add(ledger, NewTask("a", exclusive=("k",)), NewTask("b", exclusive=("k",)))
    add(ledger, NewTask("c", type="test"), at=NOW + 1)
    token = claim(ledger)
    request = REQUEST._replace(wanted=ClaimFilter(types=("test",)))
    assert titles(go_on(ledger, token, request=request)[1]) == ["c"]
    assert taken == [False]
    assert claim(ledger).task != token.task  # its key is free again


def test_postgres_sees_a_dependent_that_came_while_it_waited(postgres_url):
    """Adding a dependent locks the task it waits for."""
    ledger = Ledger(PostgresDatabase(postgres_url, relaxed=True))
    add(ledger, "a", "b", "c")
    token = parse_token(go_on(ledger, claim(ledger))[1][0].token)
    with psycopg.connect(postgres_url) as adding:
        adding.execute("SET search_path TO hypervisor")
        adding.execute("SELECT 1 FROM tasks WHERE id = %s FOR UPDATE", (token.task,))
        thread = threading.Thread(target=go_on, args=(ledger, token))
        thread.start()
        _wait_for_a_waiter(postgres_url)
        [(waiting,)] = adding.execute(
            "UPDATE tasks SET state = 'waiting', open_deps = 1 WHERE state = 'active' RETURNING id"
        )
        adding.execute("INSERT INTO dependencies VALUES (%s, %s)", (waiting, token.task))
    thread.join(180)
    assert ledger.task(token.task).state == "done"
    assert ledger.task(waiting).state in ("active", "in_progress")
    ledger.close()


def _wait_for_a_waiter(url):
    with psycopg.connect(url, autocommit=True) as looking:
        until = time.monotonic() + 20
        while not looking.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock'"
        ).fetchall():
            assert time.monotonic() < until, "nobody came to wait"


def test_postgres_without_the_right_to_make_functions_goes_the_general_way(postgres_url):
    owner = Ledger(PostgresDatabase(postgres_url, relaxed=True))
    add(owner, "a", "b", "c")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE ROLE guest LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA hypervisor TO guest")
        connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA hypervisor TO guest")
    database = PostgresDatabase(f"{postgres_url}&user=guest", relaxed=True)
    guest = Ledger(database)
    [lease] = go_on(guest, claim(guest))[1]
    assert titles(go_on(guest, parse_token(lease.token))[1]) == ["c"]
    assert database.caches.of(RankHints).can_install is False
    guest.close()
    # Once the owner has taken a turn, the guest can as well.
    add(owner, "d", "e")
    go_on(owner, claim(owner))
    owner.close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        [(name,)] = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'hypervisor'::regnamespace"
        )
        assert name == fast_path.POSTGRES_NAME
        program = fast_path.POSTGRES_PROGRAM.partition(name)[2]  # with what it takes
        assert program.startswith("(bigint,") and name == f"turn_{crc32(program.encode()):08x}"
        connection.execute("DROP OWNED BY guest")
        connection.execute("DROP ROLE guest")


def test_postgres_forgets_the_turns_of_old_versions(postgres_url):
    ledger = Ledger(PostgresDatabase(postgres_url, relaxed=True))
    add(ledger, "a", "b", "c")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET search_path TO hypervisor")
        for name in ("turn_0", "turn_1", "turn_2", "turning"):
            connection.execute(f"CREATE FUNCTION {name}(bigint) RETURNS int LANGUAGE sql RETURN 1")
        connection.execute("COMMENT ON FUNCTION turn_0(bigint) IS '2020-01-01'")
        connection.execute("COMMENT ON FUNCTION turn_1(bigint) IS '2999-01-01'")
        go_on(ledger, claim(ledger))
        found: dict[str, str | None] = dict(
            connection.execute(
                "SELECT proname, obj_description(oid, 'pg_proc') FROM pg_proc "
                "WHERE pronamespace = 'hypervisor'::regnamespace"
            ).fetchall()
        )
    [today] = {found.pop(fast_path.POSTGRES_NAME), found.pop("turn_2")}  # its time runs from now on
    assert today and len(today) == len("2026-01-31")
    assert found == {"turn_1": "2999-01-01", "turning": None}
    ledger.close()


def test_postgres_makes_a_turn_again_that_was_dropped_in_the_meantime(postgres_url):
    ledger = Ledger(PostgresDatabase(postgres_url, relaxed=True))
    add(ledger, "a", "b", "c")
    [lease] = go_on(ledger, claim(ledger))[1]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP FUNCTION hypervisor.{fast_path.POSTGRES_NAME}")
    assert titles(go_on(ledger, parse_token(lease.token))[1]) == ["c"]
    ledger.close()


def test_postgres_finds_the_task_by_its_id(postgres_url):
    """Not by scanning all tasks that are in progress, or have been since the last VACUUM."""
    ledger = Ledger(PostgresDatabase(postgres_url, relaxed=True))
    add(ledger, *map(str, range(300)))
    looks = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'tasks_leased'"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("ANALYZE")  # nothing is in progress, so that scan looks cheap
        token = claim(ledger)
        for _ in range(20):
            [lease] = go_on(ledger, token)[1]
            token = parse_token(lease.token)
        ledger.close()  # what it did is counted when it leaves
        _wait_until_left(connection)
        assert connection.execute(looks).fetchall() == [(0,)]


def _wait_until_left(connection):
    until = time.monotonic() + 20
    while connection.execute(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    ).fetchall():
        assert time.monotonic() < until, "somebody stays connected"


def test_postgres_prepares_a_turn_again_after_a_rollback(postgres_url):
    """At the first one, psycopg deallocates all statements, if it has prepared any of its own."""
    first = Ledger(PostgresDatabase(postgres_url, relaxed=True))
    add(first, *"abcdef")
    [lease] = go_on(first, claim(first))[1]  # it makes the function, which begins with a rollback
    first.close()
    ledger = Ledger(PostgresDatabase(postgres_url, relaxed=True))
    for n in range(8):  # the same often enough to be prepared
        add(ledger, str(n), at=NOW + 1)
    claim(ledger)
    [lease] = go_on(ledger, parse_token(lease.token))[1]
    with pytest.raises(WrongState):
        ledger.accept(lease.task.id, "me", NOW)
    add(ledger, "later", at=NOW + 2)
    settled, leases = go_on(ledger, parse_token(lease.token))
    assert (settled[0].state, titles(leases)) == ("done", ["e"])
    ledger.close()
