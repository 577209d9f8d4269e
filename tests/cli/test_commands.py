"""Each command end to end: what people see, and the formats that programs rely on."""

import json
import re

import pytest

from hypervisor.cli.commands.stats import stats_lines
from hypervisor.queue.task import Stats

TASK_FIELDS = {
    "id",
    "title",
    "state",
    "type",
    "priority",
    "batch",
    "batch_id",
    "branch",
    "assignee",
    "requires",
    "key",
    "body",
    "data",
    "start_at",
    "retries",
    "attempts",
    "failures",
    "crashes",
    "open_dependencies",
    "lease_until",
    "result",
    "reason",
    "unblock",
    "created_at",
    "updated_at",
}


def test_add_prints_the_id_for_people_and_programs(hv):
    first = hv.ok("add", "Fix the login page")
    second = hv.json("add", "Fix it again")

    assert re.fullmatch(r"[0-9a-z]{12}\n", first)
    assert set(second) == {"ids", "duplicates"} and second["duplicates"] == []
    assert hv.ok("ls", "--ids").split() == [second["ids"][0], first.strip()]


def test_add_reports_a_duplicate_key_instead_of_doubling_it(hv):
    task = hv.add("one", "--key", "k")
    code, out, err = hv("add", "two", "--key", "k")
    answer = hv.json("add", "three", "--key", "k")

    assert (code, out) == (0, "0 added\n")
    assert err == f"1 already in the batch, e.g. k ({task}, ready)\n"
    assert answer == {"ids": [], "duplicates": [{"key": "k", "task": task, "state": "active"}]}
    assert len(hv.json("ls")) == 1
    assert len(hv.json("add", "four", "--key", "k", "--batch", "other")["ids"]) == 1


def test_add_keeps_every_field(hv):
    first = hv.add("first")
    task = hv.add(
        "all of it",
        "--body",
        "long text",
        "--type",
        "review",
        "--priority",
        "high",
        "--branch",
        "main",
        "--assignee",
        "ann",
        "--requires",
        "git",
        "--requires",
        "docker",
        "--exclusive",
        "src/a b.py",
        "--after",
        first[:12],
        "--at",
        "2090-01-31T09:00",
        "--retries",
        "3",
        "--data",
        '{"a": [1, null]}',
        "--key",
        "the key",
        "--batch",
        "my batch",
    )
    shown = hv.json("show", task)

    known = {"detail", "receipts", "batch", "sessions", "command", "exit_code"}
    assert set(shown) == known | {"merged", "unchanged", "verification", "messages", "question"}
    assert (shown["batch"]["id"], shown["batch"]["name"]) == (
        shown["detail"]["task"]["batch_id"],
        shown["detail"]["task"]["batch"],
    )
    detail = shown["detail"]
    assert set(detail) == {"task", "exclusive", "after", "waits_for", "attempts"}
    assert set(detail["task"]) == TASK_FIELDS
    expected = {
        "title": "all of it",
        "body": "long text",
        "type": "review",
        "priority": "high",
        "branch": "main",
        "assignee": "ann",
        "requires": ["docker", "git"],
        "retries": 3,
        "data": {"a": [1, None]},
        "key": "the key",
        "state": "waiting",
        "open_dependencies": 1,
        "start_at": 3_789_536_400_000,
    }
    assert {name: detail["task"][name] for name in expected} == expected
    assert (detail["exclusive"], detail["after"], detail["waits_for"]) == (
        ["src/a b.py"],
        [first],
        [first],
    )
    text = hv.ok("show", task)
    for piece in ("all of it", "long text", "docker, git", "src/a b.py", "2090-01-31 09:00"):
        assert piece in text
    assert f"\n  batch       {shown['batch']['id']}  my batch\n" in text


def test_show_is_not_misled_by_a_batch_named_like_another_ones_id(hv):
    task = hv.add("x", "--batch", "mine")
    batch = hv.task(task)["batch_id"]
    hv.add("y", "--batch", batch)
    assert hv.json("show", task)["batch"] is None
    assert f"\n  batch       {batch}\n" in hv.ok("show", task)
    assert hv.json("show", hv.add("z"))["batch"] is None


def test_ls_lists_newest_first_and_pages_by_id(hv):
    tasks = [hv.add(f"task {n}") for n in range(3)]

    assert [task["id"] for task in hv.json("ls")] == tasks[::-1]
    assert hv.ok("ls", "--ids", "--limit", "2").split() == tasks[:0:-1]
    assert hv.ok("ls", "--ids", "--before", tasks[1]).split() == [tasks[0]]
    assert hv.ok("ls").splitlines()[0] == f"{tasks[2]}  ready  medium    task  task 2"
    assert set(hv.json("ls")[0]) == TASK_FIELDS


def test_ls_filters(hv):
    bug = hv.add("Fix 100% of_it", "--type", "bug", "--priority", "low", "--branch", "dev")
    other = hv.add("Fix 100 of it", "--batch", "b", "--assignee", "ann", "--inbox")

    def ids(*options):
        return hv.ok("ls", "--ids", *options).split()

    assert ids("--type", "bug") == ids("--priority", "low") == ids("--branch", "dev") == [bug]
    assert ids("--batch", "b") == ids("--assignee", "ann") == ids("--state", "inbox") == [other]
    assert ids("--text", "100%") == ids("--text", "OF_IT") == [bug]
    assert ids("--state", "inbox", "--state", "active") == [other, bug]
    assert ids("--state", "done") == []
    assert hv.ok("ls", "--state", "done") == "" and hv.json("ls", "--state", "done") == []


def test_update_changes_what_is_named_and_nothing_else(hv):
    first, task = hv.add("first"), hv.add("old", "--priority", "low", "--data", "1")
    answer = hv.json("update", task, "--title", "new", "--priority", "high", "--after", first)

    assert answer == {"task": task, "state": "waiting"}
    kept = hv.task(task)
    assert (kept["title"], kept["priority"], kept["data"]) == ("new", "high", 1)
    assert hv.json("update", task, "--after", "") == {"task": task, "state": "active"}


def test_a_task_leaves_the_inbox_only_when_accepted(hv):
    task = hv.add("idea", "--inbox")
    assert hv("claim").code == 3
    assert hv.json("update", task, "--accept", "--priority", "high")["state"] == "active"
    assert hv.task(task)["priority"] == "high"

    line = hv.refused(5, "update", task, "--title", "not kept", "--accept")
    assert "cannot accept" in line


def test_receipts_are_written_listed_and_verified(hv):
    task = hv.add("x", "--batch", "mail")
    token = hv.claim()
    assert hv.ok("receipt", "add", token, "archived: A", "archived: B") == ""
    (written,) = hv.json("receipt", "add", task[:11], "seen by a person")

    assert set(written) == {
        "chain",
        "number",
        "task",
        "attempt",
        "at",
        "actor",
        "text",
        "hash",
    }
    assert (written["number"], written["actor"], written["attempt"]) == (3, "tester", 0)
    lines = hv.ok("receipt", "ls", "mail").splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert hv.json("receipt", "ls", "mail") == hv.json("receipt", "ls", task)
    (report,) = hv.json("receipt", "verify")
    assert set(report) == {"chain", "receipts", "head", "problem"}
    assert (report["receipts"], report["problem"]) == (3, None)
    assert hv.ok("receipt", "verify", "mail").startswith("3 receipts in 1 chain: all valid\nhead ")


@pytest.mark.parametrize("action", ["ls", "verify"])
def test_receipts_are_listed_and_verified_by_one_name(hv, action):
    task = hv.add()
    assert "takes only one" in hv.refused(2, "receipt", action, task, "another word")


def test_numbers_and_their_words_agree(hv):
    assert hv.ok("receipt", "verify") == "0 receipts in 0 chains: all valid\n"
    task = hv.add()
    hv.ok("receipt", "add", task, "seen")
    assert hv.ok("receipt", "verify").startswith("1 receipt in 1 chain: all valid\n")
    assert "1 receipt in 1 chain: all valid\n" in hv.ok("doctor")
    assert hv.ok("stats").startswith("1 task, 1 remaining, 0 claimed\n")


@pytest.mark.parametrize("seconds, shown", [(300, "last 5 min:"), (59, "last 59 s:")])
def test_stats_name_the_time_that_the_pace_is_from(seconds, shown):
    counts = Stats(1, {}, {}, 1, 0, 0.0, 0.0, seconds)
    assert list(stats_lines(counts))[-1].startswith(shown)


def test_stats_count_by_state_and_batch(hv):
    hv.add("a", "--batch", "b1"), hv.add("b", "--type", "bug"), hv.add("c", "--inbox")
    hv.ok("done", hv.claim())
    counted = hv.json("stats")

    assert set(counted) == {
        "total",
        "states",
        "types",
        "remaining",
        "claimed",
        "completed_per_minute",
        "failed_per_minute",
        "window_seconds",
    }
    assert (counted["total"], counted["remaining"], counted["claimed"]) == (3, 2, 0)
    assert counted["states"]["done"] == counted["states"]["inbox"] == 1
    assert counted["types"] == {"task": {"done": 1, "inbox": 1}, "bug": {"active": 1}}
    assert hv.ok("stats").splitlines()[0] == "3 tasks, 2 remaining, 0 claimed"
    (batch,) = hv.json("batches")
    members = {"id", "name", "created_at", "spec", "archived_at", "deleting", "stats"}
    assert set(batch) == members and batch["name"] == "b1"
    assert hv.ok("batches", "--names") == "b1\n" and hv.json("batches", "--names") == ["b1"]
    assert re.fullmatch(rf"{batch['id']}  +\d+ s +1 of 1 +b1\n", hv.ok("batches"))
    assert hv.json("stats", "--batch", "b1") == batch["stats"]


def test_events_are_a_json_line_each(hv):
    task = hv.add("a", "--batch", "b")
    hv.ok("done", hv.claim())
    events = [json.loads(line) for line in hv.ok("events", "--json").splitlines()]

    assert [event["kind"] for event in events] == ["batch", "add", "claim", "complete"]
    for event in events:
        assert set(event) == {
            "seq",
            "at",
            "kind",
            "task",
            "batch",
            "batch_id",
            "attempt",
            "state",
            "actor",
            "data",
        }
    numbers = [event["seq"] for event in events]
    assert numbers == sorted(set(numbers))
    since = hv.ok("events", "--json", "--since", str(numbers[1]), "--limit", "1")
    assert json.loads(since) == events[2]
    assert len(hv.ok("events", "--task", task[:11]).splitlines()) == 3


def test_doctor_finds_a_healthy_store_healthy(hv):
    hv.add()
    checks = hv.json("doctor")

    assert all(set(check) == {"name", "ok", "found", "fix"} for check in checks)
    assert {check["name"] for check in checks} >= {
        "python",
        "store",
        "database",
        "integrity",
        "permissions",
        "writable",
        "receipts",
        "claims",
    }
    assert all(check["ok"] for check in checks if check["name"] != "disk")


def test_doctor_names_what_is_wrong_and_what_to_do(hv):
    hv.store.chmod(0o644)
    hv.store.parent.chmod(0o755)
    code, out, _ = hv("doctor")

    assert code == 7
    assert re.search(r"BAD permissions .*\n +→ chmod 600 '", out)
    assert hv("doctor", "--fix").code == 0
    assert hv.store.stat().st_mode & 0o777 == 0o600


def test_help_shows_every_command_with_an_example(bare):
    from hypervisor.cli.commands_table import COMMANDS

    overview = bare.ok("--help")
    assert bare.ok() == bare.ok("help") == overview
    assert max(map(len, overview.splitlines())) <= 100
    for command in COMMANDS.values():
        assert re.search(rf"\n  {command.name} +{re.escape(command.about)}\n", overview)
        assert len(command.about) < 60 and not command.about.endswith(".")
    assert "examples:\n  hv claim" in bare.ok("claim", "--help") == bare.ok("help", "claim")
    assert re.fullmatch(r"hv \d+\.\d+\.\d+\n", bare.ok("--version"))


def test_every_command_has_help_with_an_example():
    from hypervisor.cli.commands_table import COMMANDS
    from hypervisor.cli.main import make_parser

    for command in COMMANDS.values():
        parser = make_parser(command)[0]
        text = parser.format_help()
        description = " ".join(str(parser.description).split())
        assert "examples:\n  " in text and description in " ".join(text.split())
        assert [action.dest for action in parser._actions if not action.help] == []


def test_every_verb_has_a_command():
    from hypervisor.cli.commands_table import ALSO, COMMANDS
    from hypervisor.verbs import VERBS

    offered = {c.verb for c in COMMANDS.values()} | {v for verbs in ALSO.values() for v in verbs}
    assert offered >= set(VERBS)
    assert ALSO.keys() <= COMMANDS.keys()
