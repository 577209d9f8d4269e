"""The live view without a terminal: frames that fit, amounts, harmless text."""

import pytest

from hypervisor.cli.escape import EscapeFilter
from hypervisor.cli.live import Rows, draw, terminal_console
from hypervisor.cli.output import width
from hypervisor.cli.render import clock, memory_text, progress, rate
from hypervisor.monitoring.progress import Counts, count
from hypervisor.monitoring.snapshot import Snapshot
from hypervisor.monitoring.status import Status
from hypervisor.monitoring.waiting import why_waiting
from hypervisor.queue.pause import Pause
from hypervisor.queue.task import Delay
from tests.monitoring.test_progress import BATCH, attempt, stats


def status(*attempts, pauses=(), host=None, **states):
    reading = host or {
        "zone": "safe",
        "cpu": 0.5,
        "ram": 0.25,
        "message": "2 of 2 may run: x (safe)",
    }
    return Status(BATCH, stats(**states), attempts, pauses, 1234, reading)


def drawn(snapshot, columns=80, height=24):
    console = terminal_console()
    console.size = (columns - 1, height)
    lines = console.render_lines(draw(snapshot, Rows(), columns - 1, height), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


class TestPicture:
    @pytest.mark.parametrize("columns", [20, 40, 80, 110, 160, 400])
    @pytest.mark.parametrize("height", [1, 3, 8, 24])
    def test_it_always_fits(self, columns, height):
        hostile = attempt(2, title="日本語の題" * 40, line="\x1b[2J\r\n" * 30)
        found = status(attempt(1, title="x" * 500), hostile, in_progress=2, done=3)
        snapshot = Snapshot(found, count(found.stats.states, found.attempts), 5_000, 0, 1.5, 60_000)
        lines = drawn(snapshot, columns, height)
        assert len(lines) <= height
        assert max(map(width, lines)) < columns
        assert all(line.isprintable() for line in lines)

    def test_claimed_tasks_that_have_not_begun_are_not_shown(self):
        found = status(attempt(1), attempt(2, started=False), in_progress=2)
        lines = drawn(Snapshot(found, count(found.stats.states, found.attempts), 5_000, 0))
        assert any("page 1 " in line for line in lines)
        assert not any("page 2" in line for line in lines)

    def test_more_than_fit_are_counted_the_oldest_shown(self):
        found = status(*(attempt(n, since=100 - n) for n in range(30)), in_progress=30)
        lines = drawn(
            Snapshot(found, count(found.stats.states, found.attempts), 5_000, 0), height=12
        )
        assert lines[-1].strip().startswith("and ")
        assert "page 29" in lines[4] and len(lines) == 12 - 1

    def test_workers_keep_their_rows(self):
        workers = Rows()
        first = workers.place([attempt(1, worker=1), attempt(2, worker=2)], 0)
        then = workers.place([attempt(2, worker=2), attempt(3, worker=3)], 100)
        later = workers.place([attempt(2, worker=2)], 200)
        last = workers.place([attempt(4, worker=3)], 9_000)
        titles = [[a and a.title for a in rows] for rows in (first, then, later, last)]
        assert titles == [["page 1", "page 2"], ["page 3", "page 2"], [None, "page 2"], ["page 4"]]

    def test_what_holds_it_up_is_reported(self):
        held = {
            "zone": "safe",
            "cpu": 0.1,
            "ram": 0.8,
            "message": "2 of 5 started: 1.2 GB free, each is expected to need 2 GB",
        }
        lines = drawn(Snapshot(status(host=held, active=3), Counts(open=3), 5_000, 0), 120)
        assert f"safe · CPU 10 % · RAM 80 % · {held['message']}" in lines
        paused = status(pauses=(Pause("type", "slow\x1b", "lunch", "me", 0),), active=3)
        text = "\n".join(drawn(Snapshot(paused, Counts(open=3), 5_000, 0, 1.0, 3_000)))
        assert "paused: type slow\\x1b (lunch); to continue: hv resume --type slow\\x1b" in text
        assert "left" not in text

    def test_when_nothing_moves_it_says_why(self):
        found = status(active=2)
        snapshot = Snapshot(found, count(found.stats.states, ()), 9_000, 0, idle_since=1_000)
        assert "waiting: nothing has been started yet" in drawn(snapshot)
        assert len(drawn(snapshot._replace(now=2_000))) < len(drawn(snapshot))
        merging = status(merging=2)
        snapshot = Snapshot(merging, count(merging.stats.states, ()), 9_000, 0, idle_since=1_000)
        assert "waiting: 2 tasks being merged (hv queue)" in drawn(snapshot)

    def test_a_finished_batch_needs_no_supervisor(self):
        for left, line in ((0, "nothing is running"), (2, "no supervisor is running")):
            found = status(active=left, done=1)
            found = found._replace(supervisor=None, stats=found.stats._replace(remaining=left))
            assert line in drawn(Snapshot(found, count(found.stats.states, ()), 9_000, 0))

    def test_the_time_until_a_retry_is_counted_down(self):
        retry = Delay(True, 3, 21_000, 21_000)
        found = status(waiting=3)
        found = found._replace(waiting=why_waiting(found, [retry], 9_000))
        snapshot = Snapshot(found, count(found.stats.states, ()), 9_000, 0)
        assert "waiting: 3 tasks retry in 12 s" in drawn(snapshot)
        assert "waiting: 3 tasks retry in 1 s" in drawn(snapshot._replace(now=20_500))

    def test_the_reason_of_the_governor_is_reported_once(self):
        busy = {"zone": "danger", "cpu": 0.85, "ram": 0.2, "target": 1}
        busy["message"] = "nothing new is started: CPU 85 % busy with other work (danger)"
        found = status(host=busy, active=3)
        found = found._replace(waiting=why_waiting(found, (), 0))
        lines = drawn(Snapshot(found, Counts(open=3), 5_000, 0), 120)
        assert "waiting: CPU 85 % busy with other work" in lines
        assert "\n".join(lines).count("busy with other work") == 1

    def test_a_bar_shows_failures_and_never_lies_about_the_end(self):
        nearly = Snapshot(status(), Counts(done=998, failed=1, open=1), 5_000, 0)
        bar = drawn(nearly)[1]
        assert "999/1,000  99 %" in bar
        assert ("━", "red") in progress(nearly, 79)[0]


def test_amounts_read_well():
    assert [clock(ms) for ms in (-5, 999, 61_000, 3_599_000, 3_600_000)] == [
        "0:00",
        "0:00",
        "1:01",
        "59:59",
        "1:00:00",
    ]
    assert [rate(r) for r in (None, 1234.5, 21, 2.04, 0.5, 0.01)] == [
        "",
        "1,234/s",
        "21/s",
        "2.0/s",
        "30/min",
        "36/h",
    ]
    sizes = (0, 300 << 10, 9 << 20, 64 << 20, 1000 << 20, 3 << 40)
    assert [memory_text(size) for size in sizes] == [
        "0.0 MB",
        "0.3 MB",
        "9.0 MB",
        "64 MB",
        "1.0 GB",
        "3.0 TB",
    ]


class TestHarmless:
    @pytest.mark.parametrize(
        ("raw", "shown"),
        [
            ("plain\n\ttext", "plain\n\ttext"),
            ("\x1b[1;31mred\x1b[m", "\x1b[1;31mred\x1b[m"),
            ("\x1b[2Jwiped\x1b[H\x1b[?1049h", "wiped"),
            ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
            ("\x1bPdevice\x1b\\x\x1bc\x1b(0y", "xy"),
            ("\x1b[c\x1b[6n\x1b[>0;1$w", ""),
            ("10 %\r20 %\r\nend", "10 %\n20 %\nend"),
            ("a\x07b\x08c\x00d\x7fe\x9b31mf", "abcde31mf"),
            ("\u202eevil", "\\u202eevil"),
            ("é日👩‍👧", "é日👩‍👧"),
            ("\x1b[31", "31"),
            ("\x1b]never ended", "never ended"),
        ],
    )
    def test_only_colours_get_through_in_whatever_pieces(self, raw, shown):
        data = raw.encode()
        for size in (1, 2, 3, 7, len(data)):
            clean = EscapeFilter(colours=True)
            pieces = [clean.feed(data[n : n + size]) for n in range(0, len(data), size)]
            assert "".join([*pieces, clean.feed(b"", last=True)]) == shown, size

    def test_without_colours_none_get_through(self):
        assert EscapeFilter(colours=False).feed(b"\x1b[31mred\x1b[0m\n", last=True) == "red\n"

    def test_bytes_that_are_not_text(self):
        assert EscapeFilter(colours=True).feed(b"a\xff\xfeb\n", last=True) == "a\ufffd\ufffdb\n"

    def test_a_sequence_that_never_ends_is_let_go(self):
        clean = EscapeFilter(colours=True)
        told = "".join(clean.feed(b"\x1b]" + b"x" * 3_000) for _ in range(4))
        assert len(told) > 3_000 and "\x1b" not in told
