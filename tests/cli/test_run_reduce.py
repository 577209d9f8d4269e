"""`hv run --then … --reduce …`: stages, the reduce, failures, kills, and running again."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import hypervisor
from tests.cli.conftest import until
from tests.cli.reducing import (
    MERGED,
    TWO,
    kill_everything,
    lines,
    prepared,
    rows,
    run,
    stages,
    started,
)


@pytest.fixture
def hv(project):
    return prepared(project)


class TestPatterns:
    def test_a_reduce_gets_a_line_for_each_item_and_its_answer_is_reported(self, hv):
        out = run(hv, items="abc", then=()).out
        assert "put together 3 of 3" in out
        given = [json.loads(line) for line in (hv.folder / "given").read_text().splitlines()]
        assert [(row["title"], row["state"], row["output"]) for row in given] == [
            (item, "done", f"one-{item}\n") for item in "abc"
        ]

    def test_items_go_through_the_stages_and_hand_their_results_on(self, hv):
        last = "./step three-{} {result}"
        out = run(hv, then=(TWO, last)).out
        assert "put together 2 of 2" in out
        assert "three-a of two-a of one-a" in (hv.folder / "given").read_text()
        assert stages(hv) == ([{"done": 2}] * 3, "done")

    def test_an_item_does_not_wait_for_the_others_before_it_continues(self, hv):
        (hv.folder / "hold-one-b").touch()
        client = started(hv)
        until(lambda: "end two-a" in lines(hv), "the second stage of a, while b is in its first")
        assert "end one-b" not in lines(hv) and not lines(hv, "begin reduce")
        (hv.folder / "go-one-b").touch()
        assert client.communicate(timeout=120)[0] and client.returncode == 0
        assert lines(hv)[-1] == "end reduce"

    def test_json_results_files_and_columns(self, hv):
        (hv.folder / "rows.jsonl").write_text('{"item": "x", "n": 2}\n{"item": "y", "n": 3}\n')
        code = "import sys, json; print(json.dumps({'twice': 2 * int(sys.argv[1])}))"
        show = "sh -c 'echo {\\\"saw\\\": $1}' sh {result}"
        total = (
            "import json, sys; rows = map(json.loads, open(sys.argv[1])); "
            "print(sum(row['result']['saw']['twice'] for row in rows))"
        )
        done = hv(
            "run",
            "--name",
            "b",
            "--quiet",
            "--items",
            "rows.jsonl",
            "--result",
            "json",
            "--then",
            show,
            "--then",
            "cat {output}",
            "--reduce",
            f'python3 -c "{total}" {{}}',
            "--",
            "python3",
            "-c",
            code,
            "{n}",
        )
        assert done.code == 0, done
        assert "\n10\n" in done.out

    def test_a_function_puts_together_what_functions_found(self, hv):
        (hv.folder / "work.py").write_text(
            "import json\ndef square(item):\n    return int(item) ** 2\n"
            "def total(path):\n    return sum(json.loads(l)['result'] for l in open(path))\n"
        )
        args = ["--name", "b", "--quiet", "--fn", "work:square", "--reduce-fn", "work:total"]
        done = hv("run", *args, "--json", stdin="3\n4\n")
        found = json.loads(done.out)
        assert done.code == 0 and found["succeeded"] and found["reduce"]["result"] == 25
        assert hv("run", *args, stdin="3\n4\n").out.splitlines()[-1] == "25"

    def test_no_shell_sees_the_words(self, hv):
        run(hv, items=["$(touch trap)"], then=("./step 'two {}' ';' touch trap",), reduce=MERGED)
        assert not (hv.folder / "trap").exists()
        assert "two $(touch trap) of ; touch trap" in (hv.folder / "given").read_text()


class TestFailures:
    def test_the_others_continue_and_the_reduce_has_what_there_is(self, hv):
        (hv.folder / "bad-one-a").touch()
        (hv.folder / "bad-two-c").touch()
        out = run(hv, items="abcd", code=9).out
        assert "put together 2 of 4" in out and "not started" in out
        assert rows(hv) == ["a failed", "b done", "c failed", "d done"]
        assert not lines(hv, "begin two-a")

    def test_running_again_does_what_is_missing_and_puts_it_together_again(self, hv):
        (hv.folder / "bad-one-a").touch()
        run(hv, code=9)
        run(hv, code=9)  # the same failure: nothing new for the reduce
        assert lines(hv, "begin reduce") == ["begin reduce"]
        (hv.folder / "bad-one-a").unlink()
        assert "put together 2 of 2" in run(hv).out
        assert sorted(lines(hv, "end")) == sorted(
            ["end one-a", "end one-b", "end two-a", "end two-b", "end reduce", "end reduce"]
        )

    def test_fail_fast_starts_nothing_more_and_refuses_the_reduce(self, hv):
        (hv.folder / "bad-one-a").touch()
        for item in "ab":
            (hv.folder / f"hold-one-{item}").touch()
        client = started(hv, "--fail-fast")
        until(lambda: len(lines(hv, "begin one")) == 2, "both run")
        (hv.folder / "go-one-a").touch()
        until(lambda: hv.json("status", "b")["pauses"], "the pause")
        (hv.folder / "go-one-b").touch()
        assert "fail-fast" in client.communicate(timeout=120)[0] and client.returncode == 9
        assert lines(hv, "end one-b") and not lines(hv, "begin two")
        assert not lines(hv, "begin reduce")
        (hv.folder / "bad-one-a").unlink()
        assert "put together 2 of 2" in run(hv, "--fail-fast").out
        assert len(lines(hv, "end one-b")) == 1

    def test_a_reduce_that_fails_is_reported_and_tried_again_alone(self, hv):
        (hv.folder / "bad-reduce").touch()
        assert "exit code 4" in run(hv, code=9).out
        (hv.folder / "bad-reduce").unlink()
        assert "put together 2 of 2" in run(hv).out
        assert len(lines(hv, "begin one")) == 2 and len(lines(hv, "begin two")) == 2


class TestAgain:
    def test_nothing_is_done_twice_and_the_answer_is_told_again(self, hv):
        run(hv)
        before = lines(hv)
        assert "put together 2 of 2" in run(hv).out
        assert lines(hv) == before

    def test_new_items_are_done_and_put_together_with_the_old(self, hv):
        run(hv)
        assert "put together 3 of 3" in run(hv, items="abc").out
        assert len(lines(hv, "end one")) == len(lines(hv, "end two")) == 3
        assert len(lines(hv, "end reduce")) == 2

    def test_another_reduce_needs_no_item_again(self, hv):
        run(hv)
        assert "\n2 " in run(hv, reduce="wc -l {}").out
        assert len(lines(hv, "end one")) == 2

    @pytest.mark.parametrize(
        ("at", "known"),
        [
            ("one-b", [{"in_progress": 1, "done": 1}, {"waiting": 1, "done": 1}]),
            ("two-a", [{"done": 2}, {"in_progress": 1, "done": 1}]),
            ("reduce", [{"done": 2}, {"done": 2}]),
        ],
    )
    def test_after_everything_was_killed_it_continues(self, hv, at, known):
        (hv.folder / f"hold-{at}").touch()
        client = started(hv, "--quiet")
        until(lambda: f"begin {at}" in lines(hv), f"{at} runs")
        until(lambda: stages(hv)[0] == known, "all else has ended, and the store knows it")
        kill_everything(hv, client)
        (hv.folder / f"go-{at}").touch()

        assert "put together 2 of 2" in run(hv).out
        for step in ("one-a", "one-b", "two-a", "two-b", "reduce"):
            assert lines(hv, f"end {step}") == [f"end {step}"]
            assert len(lines(hv, f"begin {step}")) == (2 if step == at else 1)

    def test_killed_after_all_failed_before_the_reduce_could_start(self, hv):
        """The client and its supervisor die while the last item runs, which then fails."""
        (hv.folder / "bad-one-b").touch()
        (hv.folder / "hold-one-b").touch()
        client = started(hv, "--quiet", then=())
        until(lambda: {"begin one-b", "end one-a"} <= {*lines(hv)}, "b runs")
        for pid in (client.pid, hv.supervisor()):
            os.kill(pid, signal.SIGKILL)
        client.communicate()
        (hv.folder / "go-one-b").touch()
        until(lambda: stages(hv)[0] == [{"done": 1, "failed": 1}], "b has failed")
        assert not lines(hv, "begin reduce")
        (hv.folder / "bad-one-b").unlink()
        assert "put together 2 of 2" in run(hv, then=()).out

    def test_ctrl_c_keeps_the_rest_back_until_it_is_run_again(self, hv):
        (hv.folder / "hold-one-a").touch()
        client = started(hv, items="a")
        until(lambda: lines(hv, "begin one-a"), "a runs")
        client.send_signal(signal.SIGINT)
        until(lambda: hv.json("status", "b")["pauses"], "the pause")
        (hv.folder / "go-one-a").touch()
        client.communicate(timeout=120)
        assert client.returncode == 130
        assert lines(hv) == ["begin one-a", "end one-a"]
        assert "put together 1 of 1" in run(hv, items="a").out
        assert lines(hv, "end one-a") == ["end one-a"]


class TestClaimed:
    @pytest.mark.parametrize("next_one", [True, False])
    def test_a_reduce_that_is_claimed_by_hand_has_its_file(self, hv, next_one):
        with hypervisor.open(hv.store) as opened:
            made = opened.spawn_parallel_tasks(["a"], reduce="put together", name="s")
        first = hv.json("claim", "--batch", "s")[0]["token"]
        if next_one:
            (last,) = hv.json("done", first, "--result", "7", "--next", "me")["leases"]
        else:
            hv.ok("done", first, "--result", "7")
            (last,) = hv.json("claim")
        assert last["task"]["id"] == made.reduce
        (line,) = Path(last["task"]["data"]["item"]).read_text().splitlines()
        assert json.loads(line)["result"] == 7


class TestDetached:
    def test_it_continues_to_the_reduce_by_itself_also_when_some_fail(self, hv):
        (hv.folder / "bad-one-a").touch()
        out = run(hv, "--detach", items="abc").out
        assert "hv status b" in out
        until(lambda: stages(hv)[1] == "done", "the reduce")
        assert rows(hv) == ["a failed", "b done", "c done"]
        until(lambda: hv("status", "b", "--watch").code == 0)
        assert "stage 2" in hv.ok("status", "b") and "reduce" in hv.ok("status", "b")

    def test_more_items_while_the_reduce_runs(self, hv):
        (hv.folder / "hold-reduce").touch()
        run(hv, "--detach", then=())
        until(lambda: lines(hv, "begin reduce"), "the reduce runs")
        run(hv, "--detach", items="abc", then=())
        until(lambda: lines(hv, "end one-c"), "c is done")
        (hv.folder / "go-reduce").touch()
        until(lambda: len(lines(hv, "end reduce")) == 2, "the reduce runs again")
        assert rows(hv) == ["a done", "b done", "c done"]
