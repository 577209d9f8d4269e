"""A server's claims: kept alive, released, and limited in number."""

from __future__ import annotations

import os
import threading

import pytest

from hypervisor import NewTask
from hypervisor.core.errors import InvalidInput, LeaseLost, StoreUnavailable, WrongState
from hypervisor.mcp import claims as module
from hypervisor.mcp.claims import ClaimRegistry, ClientSetup, given_by
from hypervisor.queue.lease import DEFAULT_LEASE
from hypervisor.queue.sql import claims
from tests.mcp.conftest import wait_for
from tests.support.intercept import intercept


@pytest.fixture
def hv(place):
    with place.open() as opened:
        yield opened


def claim(registry, limit=1, **wanted):
    return [each.token for each in registry.claim("me", limit, DEFAULT_LEASE, **wanted)]


def titles(leases):
    return [each.task.title for each in leases]


@pytest.fixture
def beating(hv, monkeypatch):
    """A registry that sends heartbeats all the time; every set of tokens that it sent."""
    registry, beats = ClaimRegistry(hv), []
    closed = threading.Event()

    def heartbeat(really, tokens, until):
        beats.append([str(token) for token in tokens])
        if len(beats) == 1:
            raise StoreUnavailable("the store is away for a moment")
        return really(tokens, until)

    intercept(monkeypatch, hv.store, claims.heartbeat, heartbeat)

    def beat():
        while not closed.wait(0.01):
            registry.beat()

    thread = threading.Thread(target=beat)
    thread.start()
    yield registry, beats
    closed.set()
    registry.close()
    thread.join(180)
    assert not thread.is_alive()


class TestKeepingAlive:
    def test_what_it_holds_is_kept_alive_also_after_trouble_with_the_store(self, hv, beating):
        registry, beats = beating
        hv.add([NewTask("a"), NewTask("b")])
        tokens = claim(registry, 2)
        wait_for(lambda: beats.count(sorted(tokens)) >= 3, 60)
        assert registry.held() == sorted(tokens)

    def test_what_has_ended_elsewhere_is_dropped(self, hv, beating):
        registry, _ = beating
        hv.add([NewTask("a"), NewTask("b")])
        lost, kept = claim(registry, 2)
        hv.release(lost)
        wait_for(lambda: registry.held() == [kept], 60)
        assert not registry.remembers(lost) and registry.remembers(kept)


class TestEnding:
    def test_its_own_go_back_and_nothing_is_claimed_afterwards(self, hv):
        hv.add([NewTask("a")])
        registry = ClaimRegistry(hv)
        claim(registry)
        registry.close()
        assert hv.stats().states["active"] == 1 and registry.held() == []
        with pytest.raises(WrongState, match="Nothing was claimed"):
            claim(registry)

    @pytest.mark.parametrize("given", [ClientSetup(keeper=("keeper", os.getpid())), None])
    def test_a_keepers_stay_and_so_do_those_of_nobodys_process(self, hv, given):
        hv.add([NewTask("a")])
        registry = ClaimRegistry(hv, given) if given else ClaimRegistry(hv, pid=0)
        tokens = claim(registry)
        registry.close()
        assert hv.heartbeat(tokens).alive == tuple(tokens)

    def test_a_claim_beside_a_stale_token_is_given_back(self, hv):
        hv.add([NewTask("a"), NewTask("b")])
        registry = ClaimRegistry(hv)
        [token] = claim(registry)
        hv.release(token)
        with pytest.raises(LeaseLost):
            registry.complete_and_claim(token, None)
        assert hv.stats().states["active"] == 2 and registry.held() == [token]

    def test_what_is_given_back_does_not_count(self, hv):
        hv.add([NewTask("a"), NewTask("b"), NewTask("c")])
        registry = ClaimRegistry(hv, ClientSetup(pull=1))
        registry.give_back(registry.claim("me", 1, DEFAULT_LEASE))
        assert registry.held() == [] and not registry.spent
        assert hv.stats().states["active"] == 3
        assert len(claim(registry, 2)) == 1 and registry.spent
        assert claim(registry) == []

    def test_the_count_changes_under_the_lock_alone(self, hv):
        """Two threads that count at the same time would lose an update."""

        class Watched(ClaimRegistry):
            @property
            def handed_out(self):
                return self.__dict__.get("handed_out", 0)

            @handed_out.setter
            def handed_out(self, count):
                assert count == 0 == self.handed_out or self._claiming.locked()
                self.__dict__["handed_out"] = count

        hv.add([NewTask("a"), NewTask("b")])
        registry = Watched(hv, ClientSetup(pull=3))
        leases = registry.claim("me", 2, DEFAULT_LEASE)
        registry.give_back(leases)
        assert registry.handed_out == 0 and not registry.spent

    def test_what_was_handed_to_us_is_not_ours_to_give_back(self, hv):
        hv.add([NewTask("a")])
        lease = hv.claim("w")[0]
        registry = ClaimRegistry(hv, ClientSetup(token=lease.token))
        registry.give_back(registry.claim("me", 1, DEFAULT_LEASE))
        assert hv.heartbeat([lease.token]).alive == (lease.token,)

    def test_one_that_was_handed_to_us_and_has_ended_is_not_handed_out(self, hv):
        hv.add([NewTask("a")])
        lease = hv.claim("w")[0]
        hv.release(lease.token)
        assert claim(ClaimRegistry(hv, ClientSetup(token=lease.token))) == []


class TestWhatMayBeClaimed:
    def test_capabilities_are_what_was_asked_for_given_and_configured(self, place):
        (place.folder / "config.toml").write_text('[run]\ncapabilities = ["disk"]\n')
        with place.open() as hv:
            for name in ("disk", "net", "gpu"):
                hv.add([NewTask(name, requires=(name,))])
            hv.add([NewTask("other", requires=("disk", "net", "gpu", "none"))])
            assert titles(ClaimRegistry(hv).claim("me", 9, DEFAULT_LEASE)) == ["disk"]
            given = ClaimRegistry(hv, ClientSetup(capabilities=("net",)))
            assert titles(given.claim("me", 9, DEFAULT_LEASE)) == ["net"]
            asked = ClaimRegistry(hv).claim("me", 9, DEFAULT_LEASE, capabilities=("gpu",))
            assert titles(asked) == ["gpu"]

    def test_a_server_of_a_batch_claims_from_no_other(self, hv):
        hv.add([NewTask("a")], "mine")
        hv.add([NewTask("b")], "other")
        registry = ClaimRegistry(hv, ClientSetup(batch="mine"))
        assert titles(registry.claim("me", 9, DEFAULT_LEASE, batch="other")) == ["a"]

    def test_old_requests_are_eventually_forgotten(self, hv, monkeypatch):
        """Over HTTP, agents may connect and never return."""
        monkeypatch.setattr(module, "MAX_REMEMBERED", 2)
        hv.add([NewTask(str(number)) for number in range(3)])
        registry = ClaimRegistry(hv, pid=0)
        tokens = [claim(registry)[0] for _ in range(3)]
        assert [registry.remembers(each) for each in tokens] == [False, True, True]

    @pytest.mark.parametrize("name", ["HV_KEEPER_PID", "HV_PULL"])
    def test_numbers_must_be_numbers(self, name):
        with pytest.raises(InvalidInput):
            given_by({name: "-1"})
        assert given_by({name: ""}) == given_by({})


class Launcher:
    """A supervisor that is about to exit at the first check."""

    def __init__(self, leaving=False):
        self.looks, self.started, self.leaving = 0, threading.Event(), leaving

    def supervisor(self):
        self.looks += 1
        return 4711 if self.looks == 1 else None

    def wake(self):
        """Nothing to wake."""

    def is_leaving(self):
        return self.leaving

    def start_supervisor(self, stay=False):
        self.started.set()


def test_a_supervisor_that_was_about_to_end_is_looked_for_again(hv, monkeypatch):
    monkeypatch.setattr(module, "SECOND_LOOK", 0.01)
    launcher = hv.launcher = Launcher()
    ClaimRegistry(hv).look_after()
    assert launcher.started.wait(180) and launcher.looks == 2


def test_behind_a_supervisor_that_was_asked_to_end_the_next_one_waits(hv):
    launcher = hv.launcher = Launcher(leaving=True)
    ClaimRegistry(hv).look_after()
    assert launcher.looks == 1 and launcher.started.is_set()
