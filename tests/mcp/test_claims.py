"""A server's claims: kept alive, given back, limited, and never more than it may have."""

from __future__ import annotations

import os
import threading

import pytest

from hypervisor import NewTask
from hypervisor.core.errors import InvalidInput, LeaseLost, StoreUnavailable, WrongState
from hypervisor.mcp import claims as module
from hypervisor.mcp.claims import ClaimRegistry, Given, given_by
from hypervisor.queue.lease import DEFAULT_LEASE
from tests.mcp.conftest import wait_for


@pytest.fixture
def hv(place):
    with place.open() as opened:
        yield opened


def claim(desk, limit=1, **wanted):
    return [each.token for each in desk.claim("me", limit, DEFAULT_LEASE, **wanted)]


def titles(leases):
    return [each.task.title for each in leases]


@pytest.fixture
def beating(hv, monkeypatch):
    """A registry that sends heartbeats all the time; every set of tokens that it sent."""
    desk, beats, real = ClaimRegistry(hv), [], hv.store.heartbeat
    closed = threading.Event()

    def heartbeat(tokens, *rest):
        beats.append([str(token) for token in tokens])
        if len(beats) == 1:
            raise StoreUnavailable("the store is away for a moment")
        return real(tokens, *rest)

    monkeypatch.setattr(hv.store, "heartbeat", heartbeat)

    def beat():
        while not closed.wait(0.01):
            desk.beat()

    thread = threading.Thread(target=beat)
    thread.start()
    yield desk, beats
    closed.set()
    desk.close()
    thread.join(60)
    assert not thread.is_alive()


class TestKeepingAlive:
    def test_what_it_holds_is_kept_alive_also_after_trouble_with_the_store(self, hv, beating):
        desk, beats = beating
        hv.add([NewTask("a"), NewTask("b")])
        tokens = claim(desk, 2)
        wait_for(lambda: beats.count(sorted(tokens)) >= 3, 60)
        assert desk.held() == sorted(tokens)

    def test_what_has_ended_elsewhere_is_dropped(self, hv, beating):
        desk, _ = beating
        hv.add([NewTask("a"), NewTask("b")])
        lost, kept = claim(desk, 2)
        hv.release(lost)
        wait_for(lambda: desk.held() == [kept], 60)
        assert not desk.remembers(lost) and desk.remembers(kept)


class TestEnding:
    def test_its_own_go_back_and_nothing_is_claimed_afterwards(self, hv):
        hv.add([NewTask("a")])
        desk = ClaimRegistry(hv)
        claim(desk)
        desk.close()
        assert hv.stats().states["active"] == 1 and desk.held() == []
        with pytest.raises(WrongState, match="Nothing was claimed"):
            claim(desk)

    @pytest.mark.parametrize("given", [Given(keeper=("keeper", os.getpid())), None])
    def test_a_keepers_stay_and_so_do_those_of_nobodys_process(self, hv, given):
        hv.add([NewTask("a")])
        desk = ClaimRegistry(hv, given) if given else ClaimRegistry(hv, pid=0)
        tokens = claim(desk)
        desk.close()
        assert hv.heartbeat(tokens).alive == tuple(tokens)

    def test_a_claim_beside_a_stale_token_is_given_back(self, hv):
        hv.add([NewTask("a"), NewTask("b")])
        desk = ClaimRegistry(hv)
        [token] = claim(desk)
        hv.release(token)
        with pytest.raises(LeaseLost):
            desk.complete_and_claim(token, None)
        assert hv.stats().states["active"] == 2 and desk.held() == [token]

    def test_what_is_given_back_does_not_count(self, hv):
        hv.add([NewTask("a"), NewTask("b"), NewTask("c")])
        desk = ClaimRegistry(hv, Given(pull=1))
        desk.give_back(desk.claim("me", 1, DEFAULT_LEASE))
        assert desk.held() == [] and not desk.spent
        assert hv.stats().states["active"] == 3
        assert len(claim(desk, 2)) == 1 and desk.spent
        assert claim(desk) == []

    def test_the_count_changes_under_the_lock_alone(self, hv):
        """Two threads that count at once would lose one of the two."""

        class Watched(ClaimRegistry):
            @property
            def handed_out(self):
                return self.__dict__.get("handed_out", 0)

            @handed_out.setter
            def handed_out(self, count):
                assert count == 0 == self.handed_out or self._claiming.locked()
                self.__dict__["handed_out"] = count

        hv.add([NewTask("a"), NewTask("b")])
        desk = Watched(hv, Given(pull=3))
        leases = desk.claim("me", 2, DEFAULT_LEASE)
        desk.give_back(leases)
        assert desk.handed_out == 0 and not desk.spent

    def test_what_was_handed_to_us_is_not_ours_to_give_back(self, hv):
        hv.add([NewTask("a")])
        lease = hv.claim("w")[0]
        desk = ClaimRegistry(hv, Given(token=lease.token))
        desk.give_back(desk.claim("me", 1, DEFAULT_LEASE))
        assert hv.heartbeat([lease.token]).alive == (lease.token,)

    def test_one_that_was_handed_to_us_and_has_ended_is_not_handed_out(self, hv):
        hv.add([NewTask("a")])
        lease = hv.claim("w")[0]
        hv.release(lease.token)
        assert claim(ClaimRegistry(hv, Given(token=lease.token))) == []


class TestWhatMayBeClaimed:
    def test_capabilities_are_what_was_asked_for_given_and_configured(self, place):
        (place.folder / "config.toml").write_text('[run]\ncapabilities = ["disk"]\n')
        with place.open() as hv:
            for name in ("disk", "net", "gpu"):
                hv.add([NewTask(name, requires=(name,))])
            hv.add([NewTask("other", requires=("disk", "net", "gpu", "none"))])
            assert titles(ClaimRegistry(hv).claim("me", 9, DEFAULT_LEASE)) == ["disk"]
            given = ClaimRegistry(hv, Given(capabilities=("net",)))
            assert titles(given.claim("me", 9, DEFAULT_LEASE)) == ["net"]
            asked = ClaimRegistry(hv).claim("me", 9, DEFAULT_LEASE, capabilities=("gpu",))
            assert titles(asked) == ["gpu"]

    def test_a_server_of_a_batch_claims_from_no_other(self, hv):
        hv.add([NewTask("a")], "mine")
        hv.add([NewTask("b")], "other")
        desk = ClaimRegistry(hv, Given(batch="mine"))
        assert titles(desk.claim("me", 9, DEFAULT_LEASE, batch="other")) == ["a"]

    def test_what_was_asked_for_is_forgotten_at_last(self, hv, monkeypatch):
        """Over HTTP agents come and never come back."""
        monkeypatch.setattr(module, "MOST_REMEMBERED", 2)
        hv.add([NewTask(str(number)) for number in range(3)])
        desk = ClaimRegistry(hv, pid=0)
        tokens = [claim(desk)[0] for _ in range(3)]
        assert [desk.remembers(each) for each in tokens] == [False, True, True]

    @pytest.mark.parametrize("name", ["HV_KEEPER_PID", "HV_PULL"])
    def test_numbers_must_be_numbers(self, name):
        with pytest.raises(InvalidInput):
            given_by({name: "-1"})
        assert given_by({name: ""}) == given_by({})


class Launcher:
    """A supervisor that is about to end when it is first looked for."""

    def __init__(self, leaving=False):
        self.looks, self.started, self.leaving = 0, threading.Event(), leaving

    def supervisor(self):
        self.looks += 1
        return 4711 if self.looks == 1 else None

    def is_leaving(self):
        return self.leaving

    def start_supervisor(self):
        self.started.set()


def test_a_supervisor_that_was_about_to_end_is_looked_for_again(hv, monkeypatch):
    monkeypatch.setattr(module, "SECOND_LOOK", 0.01)
    launcher = Launcher()
    hv._equipment = hv.equipment._replace(launcher=launcher)
    ClaimRegistry(hv).look_after()
    assert launcher.started.wait(60) and launcher.looks == 2


def test_behind_a_supervisor_that_was_asked_to_end_the_next_one_waits(hv):
    launcher = Launcher(leaving=True)
    hv._equipment = hv.equipment._replace(launcher=launcher)
    ClaimRegistry(hv).look_after()
    assert launcher.looks == 1 and launcher.started.is_set()
