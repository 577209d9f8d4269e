"""The overseer: acts on evidence, once, and leaves healthy attempts alone."""

from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.resources.limits import Finding, Limits, Sample
from hypervisor.resources.overseer import EXACT_FOR, MAX_COUNTED, MAX_GAP, Overseer

MB = 1 << 20


def never():
    raise AssertionError("exact memory was asked for without need")


def watch(limits, samples, exact=never, dry_run=False):
    """All findings about these samples, with the time of each."""
    overseer = Overseer(limits, dry_run)
    return [(s.at, found) for s in samples for found in overseer.look(s, exact)]


def seconds(count, cpu=0.0, rss=0, written=0, output=0, step=1000):
    """A sample a second; a figure is the growth in each second."""
    return [Sample(n * step, n * cpu, rss, n * written, n * output) for n in range(count)]


def acts(findings):
    return [(at, found.limit, found.act) for at, found in findings]


def test_time():
    findings = watch(Limits(time=60_000), seconds(100, cpu=1.0))
    assert acts(findings) == [(48_000, "time", "warn"), (60_000, "time", "stop")]
    assert findings[1][1] == Finding("time", "stop", "ran for 60 s, limit 60 s")


def test_time_in_which_nobody_could_look_does_not_count():
    """A worker that was stopped for an hour cannot know that its attempt was not."""
    samples = [*seconds(10), *(s._replace(at=s.at + 3_600_000) for s in seconds(100)[10:])]
    findings = watch(Limits(time=60_000), samples)
    late = 3_600_000 - MAX_COUNTED + 1000
    assert acts(findings) == [(48_000 + late, "time", "warn"), (60_000 + late, "time", "stop")]
    assert findings[1][1].evidence == "ran for 60 s, limit 60 s"


def test_output_flood():
    findings = watch(Limits(output=100 * MB), seconds(50, output=9 * MB))
    assert acts(findings) == [(9000, "output", "warn"), (12_000, "output", "stop")]
    assert findings[1][1].evidence == "108 MB of output, limit 100 MB"


def test_memory():
    samples = [Sample(n * 1000, n, n * 100 * MB, 0, 0) for n in range(10)]
    sizes = iter([320 * MB, 412 * MB])
    findings = watch(Limits(memory=400 * MB), samples, lambda: next(sizes))
    assert acts(findings) == [(4000, "memory", "warn"), (5000, "memory", "stop")]
    assert findings[1][1].evidence == "412 MB used, limit 400 MB"


def test_forks_that_share_their_memory_are_left_alone():
    exact = Mock(return_value=220 * MB)
    assert watch(Limits(memory=400 * MB), seconds(60, cpu=1.0, rss=1485 * MB), exact) == []
    assert exact.call_count == 60_000 // EXACT_FOR  # it is costly


def test_memory_is_looked_at_again_as_soon_as_it_grows():
    samples = [Sample(0, 0, 500 * MB, 0, 0), Sample(500, 0, 600 * MB, 0, 0)]
    sizes = iter([200 * MB, 450 * MB])
    findings = watch(Limits(memory=400 * MB), samples, lambda: next(sizes))
    assert acts(findings) == [(500, "memory", "stop")]


def test_what_is_called_exact_is_never_more_than_what_is_seen():
    findings = watch(Limits(memory=400 * MB), seconds(3, rss=350 * MB), lambda: 10**12)
    assert acts(findings) == [(0, "memory", "warn")]


def test_a_silent_hang():
    findings = watch(Limits(silence=60_000), seconds(100))
    assert acts(findings) == [(48_000, "silence", "warn"), (60_000, "silence", "stop")]
    evidence = "no output, no CPU use and no writes for 60 s, limit 60 s"
    assert findings[1][1].evidence == evidence


@pytest.mark.parametrize(
    "sign",
    [{"cpu": 0.015}, {"cpu": 1.0}, {"output": 1}, {"written": 1}],
    ids=["little CPU", "CPU", "output", "files"],
)
def test_who_shows_any_sign_of_work_is_not_silent(sign):
    assert watch(Limits(silence=60_000), seconds(600, **sign)) == []


@pytest.mark.parametrize("cpu", [0.002, 0.009])
def test_the_little_that_waiting_costs_is_not_a_sign_of_work(cpu):
    findings = watch(Limits(silence=60_000), seconds(100, cpu=cpu))
    assert acts(findings)[-1] == (60_000, "silence", "stop")


def test_nor_is_it_when_cpu_is_reported_in_steps():
    samples = [Sample(n * 1000, n // 5 * 0.01, 0, 0, 0) for n in range(100)]
    assert acts(watch(Limits(silence=60_000), samples))[-1] == (60_000, "silence", "stop")


def test_a_burst_ends_the_silence():
    samples = [Sample(n * 1000, 0.05 * (n // 50), 0, 0, 0) for n in range(300)]
    assert "stop" not in [act for _, _, act in acts(watch(Limits(silence=60_000), samples))]


def test_a_part_of_the_tree_that_ends_ends_the_silence():
    samples = [Sample(n * 1000, 1.0 - 0.5 * (n // 50), 0, 0, 0) for n in range(100)]
    assert "stop" not in [act for _, _, act in acts(watch(Limits(silence=60_000), samples))]


def test_a_sleeping_laptop_proves_no_silence():
    samples = [*seconds(5), Sample(9_000_000, 0.0, 0, 0, 0), Sample(9_001_000, 0.0, 0, 0, 0)]
    assert watch(Limits(silence=60_000), samples) == []
    findings = watch(Limits(silence=60_000), seconds(100, step=MAX_GAP))
    assert acts(findings)[-1] == (60_000, "silence", "stop")


def test_a_dry_run_only_reports():
    limits = Limits(time=10_000, silence=10_000)
    findings = watch(limits, seconds(60), dry_run=True)
    assert [act for _, _, act in acts(findings)] == ["warn", "warn", "would_stop", "would_stop"]


def test_no_warning_after_a_stop():
    samples = [Sample(0, 0, 0, 0, 500), Sample(1000, 1, 0, 0, 90)]
    assert acts(watch(Limits(output=100), samples)) == [(0, "output", "stop")]


def test_no_limits_no_findings():
    samples = seconds(1000, rss=10**12, output=10**12)
    assert watch(Limits(), samples) == watch(Limits(0, 0, 0, 0), samples) == []


def test_healthy_neighbours_are_left_alone():
    limits = Limits(time=600_000, memory=400 * MB, silence=60_000, output=1000 * MB)
    healthy = [
        seconds(300, cpu=0.9, rss=300 * MB, output=1000),
        seconds(300, cpu=0.02),
        seconds(300, written=4096),
        [Sample(n * 1000, 0, 0, 0, n // 45) for n in range(300)],
    ]
    assert [watch(limits, samples) for samples in healthy] == [[], [], [], []]


SAMPLE = st.tuples(*(st.integers(0, 100) for _ in range(5)))


@given(st.lists(SAMPLE), st.booleans(), st.integers(0, 200))
def test_each_limit_is_reported_twice_at_most(steps, dry_run, exact):
    at, samples = 0, []
    for passed, cpu, rss, written, output in steps:
        at += passed * 100
        samples.append(Sample(at, cpu / 10, rss, written, output))
    findings = watch(Limits(2000, 50, 1000, 50), samples, lambda: exact, dry_run)
    said = [(found.limit, found.act) for _, found in findings]
    assert len(said) == len(set(said)) <= 8
    assert ("time", "stop") not in said or at >= 2000
    assert not dry_run or "stop" not in [act for _, act in said]
    for limit in ("time", "memory", "silence", "output"):
        assert [act for name, act in said if name == limit] in (
            [],
            ["warn"],
            ["stop"],
            ["warn", "stop"],
            ["would_stop"],
            ["warn", "would_stop"],
        )
