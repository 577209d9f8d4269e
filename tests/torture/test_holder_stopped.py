"""No claim is taken from a holder that may be alive, and every claim from one that is gone."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import hypervisor
from hypervisor.queue.sql import claims, settlement
from hypervisor.selftest.crew import DEADLINE, Refused
from hypervisor.selftest.invariants import everything, query

LEASE = 300
LONG = 15 * 60_000


@pytest.fixture
def hv(store):
    with hypervisor.open(store.where) as opened:
        yield opened


@pytest.fixture
def puppet(store, fork_server):
    def start():
        child = fork_server.start("puppet", store.where)
        assert child.hear() == "open"
        return child

    return start


def test_stopped_holder_is_not_robbed(hv, puppet):
    (task,) = hv.add([hypervisor.NewTask("held")]).ids
    holder, rivals = puppet(), [puppet(), puppet()]
    (lease,) = holder.call("claim", "holder", lease=LEASE)
    os.kill(holder.pid, signal.SIGSTOP)
    _wait_for(lambda: _state(holder.pid) == "T")

    looks = 0
    deadline = time.monotonic() + DEADLINE
    while hv.store.now() < lease["until"] + 3 * LEASE or looks < 10:
        for rival in rivals:
            assert rival.call("claim", "rival") == []
            assert rival.call("sweep")["reclaimed"] == []
        looks += 1
        assert time.monotonic() < deadline
    assert rivals[0].call("sweep")["overdue"] == [task]

    os.kill(holder.pid, signal.SIGCONT)
    assert holder.call("heartbeat", [lease["token"]], lease=LEASE)["alive"] == [lease["token"]]
    assert holder.call("receipt", lease["token"], ["woke up"])[0]["number"] == 1
    assert holder.call("complete", lease["token"])["state"] == "done"
    assert [a.outcome for a in hv.show(task).detail.attempts] == ["done"]


@pytest.mark.parametrize("buried", [True, False], ids=["buried", "zombie"])
def test_killed_holder_is_replaced_at_once(hv, puppet, fork_server, buried):
    (task,) = hv.add([hypervisor.NewTask("held")]).ids
    holder, rival = puppet(), puppet()
    (lease,) = holder.call("claim", "holder", lease=LONG)
    assert rival.call("sweep")["reclaimed"] == []
    holder.kill()
    if buried:
        assert holder.wait() == -signal.SIGKILL
    else:
        _wait_for(lambda: _state(holder.pid) == "Z")

    assert rival.call("sweep")["reclaimed"] == [task]
    assert hv.store.now() < lease["until"], "the lease had not even ended"
    (second,) = rival.call("claim", "rival")
    assert second["token"].startswith(f"{task}.2.")
    first = hv.show(task).detail.attempts[0]
    assert first.outcome == "crashed" and f"process {holder.pid} " in (first.reason or "")


def test_holder_that_just_exited_is_gone(hv, store, fork_server):
    """A normal exit ends the claim, too, even before the exit code is collected."""
    (task,) = hv.add([hypervisor.NewTask("held")]).ids
    leaver = fork_server.start("claim_and_exit", store.where, LONG)
    (lease,) = leaver.hear()
    _wait_for(lambda: _state(leaver.pid) == "Z")
    assert hv.sweep().reclaimed == (task,)
    assert leaver.wait() == 0
    with pytest.raises(hypervisor.LeaseLost):
        hv.complete(lease["token"])


def test_stale_token_changes_nothing(hv, store, puppet):
    """A claim without a process, as the command line makes it, lapses by time alone."""
    (task,) = hv.add([hypervisor.NewTask("held", exclusive=("file",))]).ids
    holder = puppet()
    (lease,) = holder.call("claim", "holder", lease=LEASE, pid=0)
    assert hv.sweep(now=lease["until"]).reclaimed == ()
    _wait_for(lambda: hv.store.now() > lease["until"])
    assert hv.sweep().reclaimed == (task,)

    _refuses_everything(store, holder, lease["token"])
    (second,) = hv.claim("rival")
    _refuses_everything(store, holder, lease["token"])
    assert hv.receipt(second.token, ["mine"]) and hv.complete(second.token).state == "done"
    _refuses_everything(store, holder, lease["token"])


def _refuses_everything(store, holder, token):
    before = everything(store.where)
    assert before["events"] and before["attempts"]
    calls = {
        "receipt": (token, ["still here"]),
        "complete": (token, {"result": "stale"}),
        "fail": (token, "stale"),
        "block": (token, "stale", "nothing"),
        "release": (token, "stale"),
    }
    for verb, args in calls.items():
        with pytest.raises(Refused) as refused:
            holder.call(verb, *args)
        assert refused.value.code == "lease_lost", verb
        assert "Nothing was changed" in refused.value.message
    beat = holder.call("heartbeat", [token])
    assert (beat["alive"], beat["lost"]) == ([], [token])
    turn = holder.call("complete_and_claim", [[token, None]], "holder", types=["none"], pid=0)
    assert turn["settled"][0]["lost"] and turn["leases"] == []
    assert everything(store.where) == before


def test_guessed_token_is_refused(hv, store):
    hv.add([hypervisor.NewTask("held")])
    (lease,) = hv.claim("holder")
    task, attempt, nonce = lease.token.split(".")
    before = everything(store.where)
    for wrong in (f"{task}.{attempt}.{nonce[::-1]}", f"{task}.2.{nonce}"):
        if wrong != lease.token:
            with pytest.raises(hypervisor.LeaseLost):
                hv.complete(wrong)
            assert hv.heartbeat([wrong]).lost == (wrong,)
    assert everything(store.where) == before


def test_reused_pid_is_another_process(hv, store, puppet):
    """A process with the same pid exists, but started at another time: the holder is gone."""
    (task,) = hv.add([hypervisor.NewTask("held")]).ids
    holder = puppet()
    holder.call("claim", "holder", lease=LONG)
    assert hv.sweep().reclaimed == ()
    _write(hv, "UPDATE workers SET pid_start = pid_start - 1 WHERE name = 'holder'")
    assert hv.sweep().reclaimed == (task,)


def test_worker_of_another_boot_is_only_expired(hv, store, puppet):
    """Pids of another host, boot or container prove nothing: only the deadline counts."""
    (task,) = hv.add([hypervisor.NewTask("held")]).ids
    holder = puppet()
    (lease,) = holder.call("claim", "holder", lease=LONG)
    _write(hv, "UPDATE workers SET boot = 'elsewhere' WHERE name = 'holder'")
    holder.kill()
    holder.wait()
    assert hv.sweep().reclaimed == ()
    assert hv.sweep(now=lease["until"]).reclaimed == ()
    assert hv.sweep(now=lease["until"] + 1).reclaimed == (task,)


def test_renewed_claim_is_not_swept_on_old_evidence(hv, store, puppet):
    """A heartbeat between the sweep's look and its act saves the claim."""
    hv.add([hypervisor.NewTask("held")])
    holder = puppet()
    (lease,) = holder.call("claim", "holder", lease=LEASE, pid=0)
    (seen,) = hv.store.read(claims.holders, "", lease["until"] + 1)
    holder.call("heartbeat", [lease["token"]], lease=LONG)
    before = everything(store.where)
    assert not hv.store.write(
        settlement.reclaim, seen, "did not renew its lease", lease["until"] + 1
    )
    assert everything(store.where) == before


def test_worker_is_found_by_its_process(hv, store, puppet):
    """What the ledger knows of a holder is what the system says of its process."""
    hv.add([hypervisor.NewTask("held")])
    holder = puppet()
    holder.call("claim", "holder")
    ((pid, start, boot),) = query(
        store.where, "SELECT pid, pid_start, boot FROM workers WHERE name = 'holder'"
    )[0]
    stat = Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()
    assert (pid, start) == (holder.pid, int(stat[19]))
    assert boot.startswith(Path("/proc/sys/kernel/random/boot_id").read_text().strip())


def _write(hv, sql):
    hv.store.write(lambda session: session.run(sql))


def _state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _wait_for(condition):
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.005)
