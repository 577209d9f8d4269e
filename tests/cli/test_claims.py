"""`hv claim` and what ends a claim: done, block, fail, release, heartbeat."""

import json
import re
import subprocess

import pytest

from hypervisor.cli.commands import claim as claiming
from hypervisor.core.errors import StoreUnavailable
from tests.cli.conftest import PROGRAM

SETTLED_FIELDS = {"token", "task", "state", "outcome", "repeated", "lost"}
TOKEN = r"[0-9a-z]{12}\.\d+\.[0-9a-z]{16}"


def test_a_claim_prints_its_token_first(hv):
    task = hv.add("do it")
    out = hv.ok("claim", "--worker", "me")

    assert re.fullmatch(rf"{task}\.1\.[0-9a-z]{{16}}  do it\n", out)
    assert hv.task(task)["state"] == "in_progress"


def test_a_claim_as_json_is_a_list_of_leases(hv):
    tasks = [hv.add(f"t{n}") for n in range(3)]
    leases = hv.json("claim", "--limit", "2", "--lease", "60s")

    assert [lease["task"]["id"] for lease in leases] == tasks[:2]
    for lease in leases:
        assert set(lease) == {"token", "until", "task"}
        assert re.fullmatch(TOKEN, lease["token"])
        assert lease["until"] - lease["task"]["updated_at"] == 60_000


@pytest.mark.parametrize(
    "task, wanted, gets",
    [
        (["--type", "bug"], ["--type", "bug"], True),
        (["--type", "bug"], ["--type", "x", "--type", "bug"], True),
        (["--type", "bug"], ["--type", "other"], False),
        (["--requires", "git"], [], False),
        (["--requires", "git"], ["--can", "git", "--can", "docker"], True),
        (["--assignee", "ann"], ["--worker", "bob"], False),
        (["--assignee", "ann"], ["--worker", "ann"], True),
        (["--assignee", "ann"], ["--worker", "bob", "--assignee", "ann"], True),
        (["--branch", "dev"], ["--branch", "dev"], True),
        (["--branch", "dev"], ["--branch", "main"], False),
        (["--priority", "low"], ["--priority", "high"], False),
        (["--priority", "low"], ["--priority", "high", "--priority", "low"], True),
        (["--batch", "b"], ["--batch", "b"], True),
    ],
)
def test_claim_filters(hv, task, wanted, gets):
    hv.add("x", *task)
    assert hv("claim", *wanted).code == (0 if gets else 3)


def test_done_is_quiet_and_twice_is_the_same(hv):
    task = hv.add()
    token = hv.claim()

    assert hv.ok("done", token, "--result", '{"verdict": "fine"}') == ""
    again = hv.json("done", token, "--result", '"other"')

    assert set(again) == SETTLED_FIELDS
    assert (again["task"], again["state"], again["outcome"]) == (task, "done", "done")
    assert again["repeated"] is True and again["lost"] is None
    assert hv.task(task)["result"] == {"verdict": "fine"}


def test_done_next_finishes_and_claims_in_one_step(hv):
    first, second = hv.add("one"), hv.add("two")
    turn = hv.json("done", hv.claim(), "--next", "me")

    assert set(turn) == {"settled", "leases"}
    assert [s["task"] for s in turn["settled"]] == [first]
    assert [lease["task"]["id"] for lease in turn["leases"]] == [second]
    code, out, err = hv("done", turn["leases"][0]["token"], "--next", "me")
    assert (code, out, err) == (3, "", "nothing to claim\n")
    assert {hv.task(t)["state"] for t in (first, second)} == {"done"}


def test_done_next_with_nothing_left_says_so_in_json_too(hv):
    task = hv.add()
    code, out, err = hv("done", hv.claim(), "--next", "me", "--json")

    assert (code, err) == (3, "")
    turn = json.loads(out)
    assert [s["state"] for s in turn["settled"]] == ["done"] and turn["leases"] == []
    assert hv.task(task)["state"] == "done"


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_done_next_with_a_lost_token_leaves_no_claim_behind(hv, json_too):
    hv.add("one")
    second = hv.add("two")
    token = hv.claim()
    hv.ok("release", token)
    hv.claim("--worker", "other")
    code, out, err = hv("done", token, "--next", "me", *json_too)

    assert code == 6 and token in err and len(err.splitlines()) == 1
    assert [json.loads(line)["error"]["code"] for line in out.splitlines()] == (
        ["lease_lost"] if json_too else []
    )
    detail = hv.json("show", second)["detail"]
    assert (detail["task"]["state"], detail["task"]["failures"]) == ("active", 0)
    assert [attempt["outcome"] for attempt in detail["attempts"]] == ["released"]


@pytest.mark.parametrize(
    "options",
    [["--batch", "b"], ["--limit", "1"], ["--lease", "15m"], ["--type", "t"], ["--pid=0"]],
)
def test_done_without_next_takes_no_options_of_a_claim(hv, options):
    hv.add()
    assert "--next" in hv.refused(2, "done", hv.claim(), *options)


@pytest.mark.parametrize("next_one", [False, True])
def test_a_reduce_without_results_is_given_back_and_the_others_are_claimed(hv, next_one):
    mine = hv.add("mine", "--data", '{"gather": "nonsense"}')  # has no meaning on its own
    words = ["done", hv.claim(), "--next", "me"] if next_one else ["claim"]
    broken = hv.add("sum up", "--key", "reduce", "--data", '{"gather": "nonsense"}')
    other = hv.add("c")
    code, out, err = hv(*words, "--limit", "3")
    assert code == 0 and [line.split(".")[0] for line in out.splitlines()] == (
        [other] if next_one else [mine, other]
    )
    assert err.startswith("hv: sum up: the file with its results could not be written:")
    assert err.endswith("The task was released.\n") and err.count("\n") == 1
    assert hv.task(broken)["state"] == "active"
    code, out, err = hv("claim")
    assert (code, out) == (3, "") and "sum up" in err


def test_a_reduce_that_cannot_even_be_given_back_is_reported(hv, monkeypatch):
    def away(hv, token, why):
        raise StoreUnavailable("the store is away.")

    monkeypatch.setattr(claiming, "release", away)
    task = hv.add("sum up", "--key", "reduce", "--data", '{"gather": "nonsense"}')
    code, out, err = hv("claim")
    assert code == 0 and out.startswith(f"{task}.1.") and err.endswith("without that file.\n")


def test_a_claim_clears_the_reason_of_before(hv):
    task = hv.add()
    hv.ok("block", hv.claim(), "no access", "--unblock", "a login")
    hv.ok("retry", task, "--reason", "here it is")
    (lease,) = hv.json("claim")

    assert (lease["task"]["reason"], lease["task"]["unblock"]) == (None, None)
    detail = hv.json("show", task)["detail"]
    assert (detail["task"]["reason"], detail["task"]["unblock"]) == (None, None)
    assert detail["attempts"][0]["reason"] == "no access"


def test_block_says_why_and_what_would_help(hv):
    task = hv.add()
    answer = hv.json("block", hv.claim(), "no access", "--unblock", "a login")

    assert answer["state"] == answer["outcome"] == "blocked"
    kept = hv.task(task)
    assert (kept["reason"], kept["unblock"]) == ("no access", "a login")
    assert "no access" in hv.ok("ls") and "a login" in hv.ok("show", task)


def test_fail_tries_again_later_while_retries_are_left(hv):
    task = hv.add("x", "--retries", "1")
    assert hv.json("fail", hv.claim(), "first try")["state"] == "waiting"
    waiting = hv.task(task)
    assert waiting["state"] == "waiting" and waiting["failures"] == 1
    assert waiting["start_at"] - waiting["updated_at"] == 10_000

    hv.ok("update", task, "--at", "2000-01-01")
    assert hv.json("fail", hv.claim(), "second try")["state"] == "failed"
    assert hv.task(task)["reason"] == "second try"


def test_the_first_delay_of_a_batch_doubles_with_every_retry(hv):
    task = hv.add("x", "--retries", "2", "--batch", "b", "--retry-delay", "30s")
    for delay in (30_000, 60_000):
        hv.ok("fail", hv.claim(), "again")
        waiting = hv.task(task)
        assert waiting["start_at"] - waiting["updated_at"] == delay
        hv.ok("update", task, "--in", "0s")
    assert "--batch NAME" in hv.refused(2, "add", "y", "--retry-delay", "30s")
    assert "retry delay" in hv.refused(2, "add", "y", "--batch", "b", "--retry-delay", "2h")


def test_fail_may_be_final_or_name_its_own_delay(hv):
    final, later = hv.add("a", "--retries", "5"), hv.add("b")
    assert hv.json("fail", hv.claim(), "hopeless", "--final")["state"] == "failed"
    assert hv.json("fail", hv.claim(), "busy", "--retry-in", "2h")["state"] == "waiting"
    assert hv.task(final)["state"] == "failed"
    kept = hv.task(later)
    assert kept["start_at"] - kept["updated_at"] == 7_200_000


def test_release_gives_back_unharmed(hv):
    task = hv.add()
    answer = hv.json("release", hv.claim(), "--reason", "lunch")

    assert set(answer) == SETTLED_FIELDS
    kept = hv.task(task)
    assert (kept["state"], kept["failures"], kept["crashes"]) == ("active", 0, 0)


def test_release_force_ends_someone_elses_claim(hv):
    task = hv.add()
    token = hv.claim("--worker", "stuck")

    assert hv.json("release", "--force", task[:10]) == {"task": task, "state": "active"}
    assert hv("done", token).code == 6


def test_heartbeat_extends_and_names_what_has_ended(hv):
    hv.add("a"), hv.add("b")
    alive, ended = hv.claim(), hv.claim()
    hv.ok("release", ended)

    assert hv.ok("heartbeat", alive) == ""
    code, out, err = hv("heartbeat", alive, ended, "--json", "--lease", "1h")
    beat = json.loads(out)
    assert (code, beat["alive"], beat["lost"]) == (6, [alive], [ended])
    assert ended in err and alive not in err
    assert hv.task(alive.split(".")[0])["lease_until"] == beat["until"]


@pytest.mark.parametrize("next_too", [False, True])
def test_a_token_that_cannot_be_printed_is_released(hv, next_too):
    hv.ok("add", "a")
    command = ["claim"]
    if next_too:
        token = hv.ok("claim").split()[0]
        hv.ok("add", "b")
        command = ["done", token, "--next", "me"]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*PROGRAM, *command],
            cwd=hv.folder,
            env=hv.env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    (task,) = hv.json("ls", "--state", "ready")
    assert (task["attempts"], task["failures"], task["crashes"]) == (1, 0, 0)
