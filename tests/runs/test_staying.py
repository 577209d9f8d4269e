"""A supervisor that stays exits only when it is asked to."""

import pytest

from hypervisor import entry_points
from hypervisor.runs.processes import fork_server
from hypervisor.runs.processes.launcher import STAY


class Ended(Exception):
    pass


@pytest.mark.parametrize(("words", "idle"), [((STAY,), None), ((), entry_points.IDLE_MS)])
def test_how_long_a_background_supervisor_stays_idle(monkeypatch, words, idle):
    seen = []

    def make(hv, idle_ms):
        seen.append(idle_ms)
        raise Ended

    monkeypatch.setattr(fork_server, "ForkServer", lambda *work: None)
    monkeypatch.setattr(entry_points, "connect", lambda create: None)
    monkeypatch.setattr(entry_points, "make_supervisor", make)
    with pytest.raises(Ended):
        entry_points.supervise(*words)
    assert seen == [idle]
