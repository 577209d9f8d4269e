"""The rings of samples, and the text for Prometheus."""

from __future__ import annotations

import os

import pytest

import hypervisor
from hypervisor.monitoring import metrics as metrics_module
from hypervisor.monitoring.metrics import (
    MAX_POINTS,
    MINUTE,
    SECONDS,
    SLOT,
    MetricsRecorder,
    Ring,
    Sample,
    metrics,
    minute_ring,
    thinned,
)
from hypervisor.monitoring.prometheus import prometheus_text

AT = 1_800_000_000_000


@pytest.fixture
def hv(tmp_path):
    with hypervisor.open(tmp_path / "store.db", relaxed=True) as opened:
        os.makedirs(opened.places.runtime, mode=0o700, exist_ok=True)
        yield opened


def sample(at, **more):
    return Sample(at, 0.5, 0.25, 0.75, "safe", 2, 10, 1, 7)._replace(**more)


def test_a_ring_keeps_only_its_last_samples_and_its_size(tmp_path):
    ring = Ring(str(tmp_path / "ring"), 1000, 10)
    for second in range(25):
        ring.write(sample(AT + second * 1000, running=second))
    found = ring.read(AT, AT + 100_000)
    assert [each.running for each in found] == list(range(15, 25))
    assert os.path.getsize(tmp_path / "ring") <= 10 * SLOT.size
    assert found[-1] == sample(AT + 24_000, running=24)


def test_samples_of_an_earlier_round_are_not_shown(tmp_path):
    ring = Ring(str(tmp_path / "ring"), 1000, 10)
    ring.write(sample(AT))
    ring.write(sample(AT + 60_000 + 1000))
    assert [each.at for each in ring.read(AT + 55_000, AT + 65_000)] == [AT + 61_000]
    assert Ring(str(tmp_path / "none"), 1000, 10).read(0, AT) == []


def test_a_torn_file_is_read_as_far_as_it_goes(tmp_path):
    ring = Ring(str(tmp_path / "ring"), 1000, 10)
    ring.write(sample(AT))
    with open(tmp_path / "ring", "ab") as file:
        file.write(b"torn")
    assert len(ring.read(0, AT)) == 1


def test_many_samples_become_means_with_the_worst_zone():
    many = [sample(AT + n, cpu=n % 2, zone="danger" if n == 3 else "safe") for n in range(5_000)]
    few = thinned(many, MAX_POINTS)
    assert len(few) <= MAX_POINTS and few[-1].at == many[-1].at
    assert few[1].zone == "danger" and few[0].zone == "safe"


def test_an_idle_supervisor_writes_nothing(hv, monkeypatch):
    written = []
    monkeypatch.setattr(Ring, "write", lambda self, sample: written.append(sample))
    recorder = MetricsRecorder(hv)
    idle = {"workers": 0, "cpu": 0.1, "own": 0.0, "ram": 0.2, "zone": "safe"}
    status = idle
    monkeypatch.setattr(type(hv.launcher), "read_status", lambda self: status)
    for second in range(3):
        recorder.tick(AT + second * 1000)
    assert written == []
    status = {**idle, "workers": 2}
    recorder.tick(AT + 3_000)
    recorder.tick(AT + 3_500)
    status = idle
    recorder.tick(AT + 4_000)
    recorder.tick(AT + 5_000)
    seconds = [each.running for each in written if each.at >= AT + 3_000]
    assert seconds == [2, 2, 0]  # the first also for its minute; the last shows that it is over


def test_a_recorded_run_is_read_back(hv, monkeypatch):
    hv.add("one")
    [lease] = hv.claim("me")
    hv.complete(lease.token)
    busy = {"workers": 1, "cpu": 0.5, "own": 0.4, "ram": 0.2, "zone": "warning"}
    monkeypatch.setattr(type(hv.launcher), "read_status", lambda self: busy)
    recorder = MetricsRecorder(hv)
    for second in range(0, 120, 5):
        recorder.tick(AT + second * 1000)
    last = AT + 119_000
    assert len(metrics(hv, SECONDS * 1000, last)) == 24
    assert [each.done for each in metrics(hv, 60 * MINUTE, last)] == [1, 1]
    assert metrics(hv, 60 * MINUTE, last)[0].zone == "warning"
    assert len(minute_ring(hv).read(0, last)) == 2


def test_prometheus_gets_counts_by_type_and_state(hv):
    hv.add(hypervisor.NewTask("one", type='a"b\\c'))
    hv.add("two")
    lines = prometheus_text(hv).splitlines()
    assert r'hypervisor_tasks{type="a\"b\\c",state="active"} 1' in lines
    assert 'hypervisor_tasks{type="task",state="done"} 0' in lines
    assert "# TYPE hypervisor_tasks gauge" in lines
    assert "hypervisor_supervisor_up 0" in lines
    for line in lines:
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2
        if not line.startswith("#"):
            float(line.rsplit(" ", 1)[1])


def test_very_many_types_are_summed_up(hv, monkeypatch):
    monkeypatch.setattr("hypervisor.monitoring.prometheus.MAX_SERIES", 2)
    for number in range(4):
        hv.add(hypervisor.NewTask(str(number), type=f"type{number}"))
    text = prometheus_text(hv)
    assert 'hypervisor_tasks{type="(other)",state="active"} 2' in text
    assert metrics_module.ZONES[0] == "safe"
