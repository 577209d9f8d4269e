"""A supervisor without work sleeps until the store changes."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import hypervisor
from hypervisor.runs import rest as rest_module
from hypervisor.runs.processes.signals import Signals
from hypervisor.runs.rest import Rest

NEVER = 30.0  # seconds: far longer than anything takes here


@pytest.fixture
def signals():
    usual = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield Signals()
    signal.set_wakeup_fd(-1)
    for number, handler in usual.items():
        signal.signal(number, handler)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "store" / "store.db")
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def at_rest(monkeypatch):
    """It rests at once, and nothing but a change or a signal ends that."""
    monkeypatch.setattr(rest_module, "ALERT", 0.0)
    monkeypatch.setattr(rest_module, "REST_TICK", NEVER)


def ended_by(rest, signals, change):
    """Let something happen while it rests; returns how long that took."""
    rest.end()
    timer = threading.Timer(0.1, change)
    began = time.monotonic()
    timer.start()
    rest.wait(signals)
    timer.join()
    return time.monotonic() - began


def test_a_change_of_the_store_ends_it(database_url, at_rest, signals):
    with hypervisor.open(database_url) as hv:
        hv.add("first")
        rest = Rest(hv.launcher.watched())

        def change():
            with hypervisor.open(database_url) as other:
                other.add("second")
                other.launcher.wake()

        assert ended_by(rest, signals, change) < NEVER / 2


def test_a_signal_ends_it(tmp_path, at_rest, signals):
    rest = Rest(str(tmp_path))
    ended_by(rest, signals, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert signals.asked == "drain"


def test_more_may_follow_a_change(tmp_path, at_rest, signals, monkeypatch):
    rest = Rest(str(tmp_path))
    ended_by(rest, signals, lambda: (tmp_path / "a").touch())
    monkeypatch.setattr(rest_module, "ALERT", NEVER)
    rest.wait(signals)  # a short tick, although nothing has changed


def test_it_rests_where_nothing_can_be_watched(tmp_path, monkeypatch, signals):
    monkeypatch.setattr(rest_module, "ALERT", 0.0)
    monkeypatch.setattr(rest_module, "REST_TICK", 0.01)
    rest = Rest(str(tmp_path / "missing"))
    rest.wait(signals)
    rest.end()
