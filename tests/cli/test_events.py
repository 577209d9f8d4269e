"""`hv events`: the last ones, and those of a batch."""

import json


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_the_last_events_in_order(hv):
    for number in range(5):
        hv.add(f"task {number}")
    everything = lines(hv.ok("events", "--json"))
    assert lines(hv.ok("events", "--last", "2", "--json")) == everything[-2:]
    assert lines(hv.ok("events", "-n", "100", "--json")) == everything
    assert lines(hv.ok("events", "-n", "3", "--limit", "1", "--json")) == everything[-3:-2]


def test_the_last_events_of_a_batch_or_task_however_long_ago(hv):
    hv.ok("add", "--batch", "old", "--", "first")
    hv.ok("add", "-", "--batch", "new", stdin="\n".join(map(str, range(1_500))))
    old = lines(hv.ok("events", "--batch", "old", "--json"))
    assert old and {event["batch"] for event in old} == {old[0]["batch"]}
    assert lines(hv.ok("events", "--batch", "old", "--last", "1", "--json")) == old[-1:]
    task = old[-1]["task"]
    assert lines(hv.ok("events", "--task", task, "--last", "9", "--json")) == [
        event for event in old if event["task"] == task
    ]


def test_what_makes_no_sense_is_refused(hv):
    hv.add()
    hv.refused(2, "events", "--last", "0")
    hv.refused(2, "events", "--last", "1", "--since", "1")
    hv.refused(4, "events", "--batch", "nothing")


def test_the_last_ones_and_what_comes_after(hv):
    hv.add("first")
    with hv.start("events", "--last", "1", "--follow", "--limit", "2", "--json") as process:
        first = json.loads(process.stdout.readline())
        hv.add("second")
        second = json.loads(process.stdout.readline())
        assert process.wait() == 0
    assert second["seq"] > first["seq"]


def test_events_from_a_time_on(hv):
    hv.add("first")
    everything = lines(hv.ok("events", "--json"))
    assert lines(hv.ok("events", "--since", "1h", "--json")) == everything
    assert lines(hv.ok("events", "--since", "2027-01-31T09:00+00:00", "--json")) == [
        event for event in everything if event["at"] >= 1_801_386_000_000
    ]
    assert lines(hv.ok("events", "--since", "2090-01-01", "--json")) == []
    assert "(try 17:00, 2027-01-31T09:00, or 2h)" in hv.refused(2, "events", "--since", "soon")
