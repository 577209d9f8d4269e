"""A host that is drained in the store drains its supervisor."""

from __future__ import annotations

import os
import signal

import pytest

from hypervisor.queue.sql import hosts
from hypervisor.runs.drain_request import LOOK_MS, DrainRequest


@pytest.fixture
def sent(monkeypatch):
    signals = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
    return signals


def test_it_is_passed_on_once_as_a_signal_to_itself(make, sent):
    stage = make()
    stage.tick()
    (host,) = stage.store.read(hosts.hosts)
    part = DrainRequest(stage.hv)
    part.tick(LOOK_MS)
    assert sent == []
    stage.store.write(hosts.set_state, host.id, "draining", "ada", 0)
    part.tick(LOOK_MS + 1)  # too early to look again
    assert sent == []
    part.tick(LOOK_MS * 2)
    part.tick(LOOK_MS * 3)
    assert sent == [(os.getpid(), signal.SIGTERM)]
