"""`hv run --then … --reduce …` for real: stages, the reduce, failures, kills, and running again."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

import hypervisor
from tests.cli.conftest import until

# Writes down that it began and that it ended, and between waits for a file `go-NAME` if there
# is one called `hold-NAME`; then says its name and the words that follow.
STEP = """#!/bin/sh
name=$1; shift
echo $$ > "pid-$name"
echo "begin $name" >> log
while [ -e "hold-$name" ] && [ ! -e "go-$name" ]; do sleep 0.02; done
[ ! -e "bad-$name" ] || { echo "broken $name"; exit 3; }
echo "end $name" >> log
echo "$name${1:+ of }$*"
"""
MERGE = """#!/bin/sh
echo $$ > pid-reduce
echo begin reduce >> log
while [ -e hold-reduce ] && [ ! -e go-reduce ]; do sleep 0.02; done
[ ! -e bad-reduce ] || exit 4
sed 's/.*"title": "\\([^"]*\\)".*"state": "\\([^"]*\\)".*/\\1 \\2/' "$1" > rows
cp "$1" given
echo end reduce >> log
echo "put together $(grep -c '"done"' "$1") of $(grep -c . "$1")"
"""
ONE, TWO, MERGED = "./step one-{}", "./step two-{} {result}", "./merge {}"


@pytest.fixture
def hv(project):
    for name, text in (("step", STEP), ("merge", MERGE)):
        path = project.folder / name
        path.write_text(text)
        path.chmod(0o755)
    return project


def words(*options, name="b", then=(TWO,), reduce: str | None = MERGED, command=ONE):
    stages = [word for line in then for word in ("--then", line)]
    last = ["--reduce", reduce] if reduce else []
    return ["run", "--name", name, "--workers", "2", *stages, *last, *options,
            "--", *command.split()]  # fmt: skip


def run(hv, *options, items="ab", code=0, **more):
    given = "".join(f"{item}\n" for item in items)
    done = hv(*words("--quiet", *options, **more), stdin=given)
    assert done.code == code, done
    return done


def lines(hv, begin=""):
    path = hv.folder / "log"
    found = path.read_text().splitlines() if path.exists() else []
    return [line for line in found if line.startswith(begin)]


def rows(hv):
    return sorted((hv.folder / "rows").read_text().splitlines())


def stages(hv, batch="b"):
    """The states of each stage, and of the reduce."""
    found = hv.json("summary", batch)
    reduce = found["reduce"] and found["reduce"]["state"]
    return [stage["states"] for stage in found["stages"]], reduce


def started(hv, *options, items="ab", **more):
    """The run as a process of its own, which can be killed."""
    (hv.folder / "items").write_text("".join(f"{item}\n" for item in items))
    return hv.start(*words("--items", "items", *options, **more))


def kill_everything(hv, client):
    """The client, the supervisor, all workers and what they run, each by its id."""
    found = hv.json("status")["supervisor"]
    connection = apsw.Connection(str(hv.store), flags=apsw.SQLITE_OPEN_READONLY)
    query = "SELECT pid FROM workers WHERE batch IS NOT NULL AND ended_at IS NULL"
    workers = [pid for (pid,) in connection.execute(query).fetchall()]
    connection.close()
    steps = [int(path.read_text()) for path in hv.folder.glob("pid-*")]
    for pid in (client.pid, found, *workers, *steps):
        with suppress(ProcessLookupError, TypeError):
            os.kill(pid, signal.SIGKILL)
    client.wait()
    client.stdout.close()
    client.stderr.close()


class TestPatterns:
    def test_a_reduce_gets_a_line_for_each_item_and_its_answer_is_told(self, hv):
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

    def test_an_item_does_not_wait_for_the_others_before_it_goes_on(self, hv):
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
        total = "import json, sys; rows = map(json.loads, open(sys.argv[1])); " \
                "print(sum(row['result']['saw']['twice'] for row in rows))"  # fmt: skip
        done = hv(
            "run", "--name", "b", "--quiet", "--items", "rows.jsonl", "--result", "json",
            "--then", show, "--then", "cat {output}", "--reduce", f'python3 -c "{total}" {{}}',
            "--", "python3", "-c", code, "{n}",
        )  # fmt: skip
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
    def test_the_others_go_on_and_the_reduce_has_what_there_is(self, hv):
        (hv.folder / "bad-one-a").touch()
        (hv.folder / "bad-two-c").touch()
        out = run(hv, items="abcd", code=9).out
        assert "put together 2 of 4" in out and "not begun" in out
        assert rows(hv) == ["a failed", "b done", "c failed", "d done"]
        assert not lines(hv, "begin two-a")

    def test_running_again_does_what_is_missing_and_puts_it_together_anew(self, hv):
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

    def test_a_reduce_that_fails_is_told_and_tried_again_alone(self, hv):
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
    def test_after_everything_was_killed_it_goes_on(self, hv, at, known):
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
        """The client and its supervisor die while the last item runs; it fails meanwhile."""
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
    def test_it_goes_on_to_the_reduce_by_itself_also_when_some_fail(self, hv):
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


class TestWords:
    def test_a_rehearsal_shows_what_follows(self, hv):
        out = hv.ok(*words("--dry-run", "--item", "x"))
        assert out.splitlines() == [
            "./step one-x", f"stage 2: {TWO}", f"reduce: {MERGED}",
            "1 item (dry run: nothing was started)",
        ]  # fmt: skip
        found = json.loads(hv.ok(*words("--dry-run", "--json", "--item", "x")))
        assert found["then"] == [TWO.split()] and found["reduce"] == {"command": MERGED.split()}

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--then", "no-such-program {}"], "no program no-such-program"),
            (["--reduce", "no-such-program {}"], "no program no-such-program"),
            (["--reduce", "wc {name}"], "names a column"),
            (["--then", "wc {name}"], "names a column"),
            (["--then", "wc '{}"], "quotation"),
            (["--then", " "], "--then is empty"),
            (["--reduce", "wc", "--reduce-fn", "a:b"], "one of the three"),
            (["--reduce-fn", "nowhere"], "no function"),
            (["--reduce-agent", "claude"], "goes with --reduce-prompt"),
            (["--reduce-prompt", "sum it up"], "needs an agent"),
            (["--reduce-prompt", "sum it up", "--reduce-agent", "nobody"], "nobody"),
            (["--then", "wc {}", "--gate", "each"], "does not go with --gate"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, hv, options, said):
        done = hv("run", *options, "--item", "x", "--", "echo", "{}")
        assert done.code != 0 and said in done.err and not done.out, done
        assert hv.json("stats")["total"] == 0

    def test_a_reduce_waits_for_the_last_decision(self, hv):
        args = ("--chunk-size", "1", "--gate", "each")
        run(hv, *args, then=(), code=10)
        assert not lines(hv, "begin reduce")
        hv("review", "b", "--approve")
        run(hv, *args, then=(), code=10)
        assert not lines(hv, "begin reduce")
        hv.ok("review", "b", "--approve")
        until(lambda: stages(hv)[1] == "done", "the reduce, without being run again")
        assert "put together 2 of 2" in run(hv, *args, then=()).out


class TestSeen:
    def test_the_picture_shows_the_stages(self, hv):
        for name in ("one-b", "two-a"):
            (hv.folder / f"hold-{name}").touch()
        (hv.folder / "items").write_text("a\nb\n")
        screen = hv.terminal(*words("--items", "items"), columns=100, rows=24)
        screen.wait_for("stage 1 1/2")
        screen.wait_for("reduce waits")
        for name in ("one-b", "two-a"):
            (hv.folder / f"go-{name}").touch()
        screen.wait_for("put together 2 of 2")

    def test_the_report_has_the_stages_and_the_answer(self, hv):
        run(hv, items=["a", "<img>"])
        page = (hv.folder / hv.ok("report", "b").strip()).read_text()
        assert "<h2>Stages</h2>" in page and "put together 2 of 2" in page
        assert "<img" not in page and "&lt;img&gt;" in page


class TestAgents:
    @pytest.fixture
    def agents(self, hv):
        hv.equip()
        return hv

    def test_an_agent_puts_together_what_agents_found(self, agents):
        hv = agents
        (hv.folder / "sum.md").write_text("Put it all together. act-tells\n")
        args = ["run", "--name", "b", "--quiet", "--agent", "fake-claude", "--prompt",
                "Look at {item}. act-ok", "--reduce-prompt", "sum.md", "--reduce-agent",
                "fake-codex", "--item", "a", "--item", "b"]  # fmt: skip
        done = hv(*args)
        assert done.code == 0 and "did tells" in done.out, done
        found = hv.json("summary", "b")["reduce"]
        assert found["state"] == "done" and found["result"]["summary"] == "did tells"
        told = json.loads((hv.folder / f"agents/provider/told-{found['id']}").read_text())
        assert "Put it all together" in told["prompt"] and found["results"] in told["prompt"]
        assert hv(*args).code == 0
        shown = hv.json("show", found["id"])["detail"]["task"]
        assert shown["attempts"] == 1

    def test_the_agent_of_the_run_is_the_one_of_the_reduce(self, agents):
        out = agents.ok(
            "run", "--dry-run", "--agent", "fake-claude", "--prompt", "Look. act-ok",
            "--reduce-prompt", "Sum it up. act-ok", "--item", "a",
        )  # fmt: skip
        assert "reduce: agent fake-claude" in out

    @pytest.mark.parametrize(
        ("options", "leave"),
        [
            ([], "edit"),
            (["--permissions", "read-only"], "read-only"),
            (["--propose"], "read-only"),
            (["--propose", "--permissions", "edit"], "edit"),
        ],
    )
    def test_an_agent_behind_a_command_may_do_what_was_asked_for(self, agents, options, leave):
        args = ("run", *options, "--name", "b", "--quiet", "--reduce-prompt", "Sum it up. act-ok",
                "--reduce-agent", "fake-claude", "--item", "a")  # fmt: skip
        found = json.loads(agents.ok(*args, "--dry-run", "--json", "--", "echo", "{}"))
        assert found["reduce"]["permissions"] == leave
        assert agents(*args, "--", "echo", "{}").code == 0
        assert agents("skills", "new", "again", "--from", "b").code == 0
        said = "permissions:" in agents.ok("skills", "show", "again")
        assert said is (leave != ("read-only" if "--propose" in options else "edit"))
        again = json.loads(agents("run", "again", "--item", "a", "--dry-run", "--json").out)
        assert again["reduce"]["permissions"] == leave

    def test_what_is_for_an_agent_needs_one_still(self, agents):
        done = agents("run", "--permissions", "read-only", "--item", "a", "--", "echo", "{}")
        assert done.code == 2 and "goes with an agent" in done.err
        done = agents("run", "--scratch", "--item", "a", "--reduce-prompt", "Sum it up. act-ok",
                      "--reduce-agent", "fake-claude", "--", "echo", "{}")  # fmt: skip
        assert done.code == 2 and "--scratch goes with an agent" in done.err
