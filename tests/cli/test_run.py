"""`hv run` with real processes: what runs, what is skipped, what fails, and what is refused."""

import json
import os
import re
import time

import pytest

from tests.cli.conftest import until
from tests.cli.running import NOTHING_TO_SEE, is_alive, run


@pytest.fixture
def hv(project):
    return project


class TestItems:
    def test_placeholders_are_put_in_and_no_shell_is_involved(self, hv):
        echo = ["sh", "-c", 'printf "%s|" "$@"', "sh"]
        run(
            hv,
            "--name",
            "b",
            "--",
            *echo,
            "{}",
            "{.}",
            "{/}",
            "{//}",
            "{/.}",
            "{#}",
            items=["a/b.tar.gz", "$(touch trap); 'x' \"y\""],
        )

        first, second = hv.tasks("b")[1], hv.tasks("b")[0]
        assert hv.ok("logs", first["id"]) == "a/b.tar.gz|a/b.tar|b.tar.gz|a|b.tar|1|"
        assert hv.ok("logs", second["id"]).startswith("$(touch trap); 'x' \"y\"|")
        assert not (hv.folder / "trap").exists()

    def test_the_item_comes_last_without_a_placeholder(self, hv):
        run(hv, "--name", "b", "--", "echo", "this:", items=["one"])
        assert hv.ok("logs", hv.tasks("b")[0]["id"]) == "this: one\n"

    def test_columns_of_csv_and_jsonl_have_names(self, hv):
        (hv.folder / "t.csv").write_text("name,age\nAnn,7\n")
        (hv.folder / "t.jsonl").write_text('{"name": "Bob", "age": 8}\n')
        for source in ("t.csv", "t.jsonl"):
            run(hv, "--name", source, "--items", source, "--", "echo", "{name} is {age}")
        said = [hv.ok("logs", hv.tasks(source)[0]["id"]) for source in ("t.csv", "t.jsonl")]
        assert said == ["Ann is 7\n", "Bob is 8\n"]

    def test_a_row_that_does_not_fit_is_left_out_and_reported(self, hv):
        rows = ['{"name": "Ann"}', "5", '{"age": 7}', "{", '{"name": "Bob"}']
        (hv.folder / "t.jsonl").write_text("\n".join(rows))
        done = hv("run", "--name", "b", "--items", "t.jsonl", "--", "echo", "hello {name}")
        assert done.code == 9, done
        assert done.err.count("Left out.") == 3 and "t.jsonl, line 4" in done.err
        assert "3 items were left out" in done.err
        said = [hv.ok("logs", task["id"]) for task in hv.tasks("b")]
        assert sorted(said) == ["hello Ann\n", "hello Bob\n"]
        assert hv("run", "--items", "t.jsonl", "--", "echo", "{nobody}").code == 2

    def test_an_item_that_is_too_long_makes_the_run_unsuccessful(self, hv):
        items = f"one\n{'x' * 200_000}\ntwo\n"
        done = hv("run", "--name", "b", "--", "echo", stdin=items)
        assert done.code == 9, done
        assert "1 item was left out" in done.err and "131,071" in done.err
        assert [task["title"] for task in hv.tasks("b")] == ["one", "two"]
        assert {task["state"] for task in hv.tasks("b")} == {"done"}
        again = hv("run", "--name", "b", "--json", "--", "echo", stdin=items)
        assert again.code == 9 and json.loads(again.out)["left_out"] == 1
        detached = hv("run", "--name", "b", "--detach", "--json", "--", "echo", stdin=items)
        assert detached.code == 9 and json.loads(detached.out)["left_out"] == 1

    def test_files_of_a_pattern_and_single_items(self, hv):
        for name in ("b.txt", "a.txt", "c.md"):
            (hv.folder / name).touch()
        run(hv, "--name", "b", "--items", "*.txt", "--item", "x", "--", "echo")
        assert [task["title"] for task in hv.tasks("b")] == ["a.txt", "b.txt", "x"]

    def test_a_function_returns_its_result(self, hv):
        (hv.folder / "mine.py").write_text(
            "def double(row):\n    print('seen', row['n'])\n    return {'twice': 2 * row['n']}\n"
        )
        (hv.folder / "rows.jsonl").write_text('{"n": 4}\n')
        run(hv, "--name", "f", "--fn", "mine:double", "--items", "rows.jsonl")
        (task,) = hv.tasks("f")
        assert task["result"] == {"twice": 8}
        assert hv.ok("logs", task["id"]) == "seen 4\n"

    def test_a_rehearsal_shows_the_commands_and_makes_no_store(self, bare):
        done = bare("run", "--dry-run", "--", "gzip", "-k", "{}", stdin="a b\nc\n")
        assert done.out == "gzip -k 'a b'\ngzip -k c\n2 items (dry run: nothing was started)\n"
        told = json.loads(bare("run", "--dry-run", "--json", "--item", "x", "--", "true").out)
        assert (told["items"], told["commands"]) == (1, [["true", "x"]])
        assert not bare.store.exists()


class TestAgain:
    def test_what_is_done_is_skipped_and_said_so(self, hv):
        command = ["--name", "b", "--", "sh", "-c", 'echo "$1" >> ran', "sh"]
        assert "3 items\n" in run(hv, *command, items="abc")
        again = run(hv, *command, items="abcd")
        last = run(hv, *command, items="abcd")

        assert "4 items (3 already done, skipped; 1 new)" in again
        assert "1 done" in again and "3 skipped" in again
        assert last == "batch b: 4 items (4 already done, skipped)\n"
        assert sorted((hv.folder / "ran").read_text().split()) == list("abcd")

    def test_the_same_command_is_the_same_batch_without_a_name(self, hv):
        first = run(hv, "--", "true", items="ab")
        again = run(hv, "--", "true", items="ab")
        other = run(hv, "--", "true", "{}", "more", items="ab")
        (name,) = re.findall(r"^batch (true-[0-9a-f]+): 2 items$", first, re.MULTILINE)
        assert again.startswith(f"batch {name}: 2 items (2 already done, skipped)")
        assert name not in other

    def test_only_what_failed_is_tried_again(self, hv):
        command = [
            "--name",
            "b",
            "--",
            "sh",
            "-c",
            'echo "$1" >> ran; [ -e fixed -o $1 != b ]',
            "sh",
        ]
        first = run(hv, *command, items="abc", code=9)
        task = hv.tasks("b")[1]
        (hv.folder / "fixed").touch()
        again = run(hv, *command, items="abc")

        assert f"{task['id']}  b: exit code 1" in first and f"hv logs {task['id']}" in first
        assert "2 done · 1 failed" in first and "to retry 1 failed task" in first
        assert "(2 already done, skipped; 1 failed before, retrying)" in again
        assert (hv.folder / "ran").read_text().split().count("b") == 2
        assert len((hv.folder / "ran").read_text().split()) == 4

    def test_failures_of_other_items_are_not_held_against_a_run(self, hv):
        command = ["--name", "b", "--", "sh", "-c", '[ "$1" != b ]', "sh"]
        run(hv, *command, items="ab", code=9)
        told = run(hv, *command, items="c")
        assert "1 done" in told and "failed" not in told


class TestFailing:
    def test_fail_fast_starts_nothing_more(self, hv):
        """One may have begun before the pause: it ends after that."""
        (hv.folder / "items").write_text("".join(f"a{n}\n" for n in range(1, 41)))
        options = ("--fail-fast", "--workers", "1", "--claim", "1")
        waits = '[ "$1" != a1 ] || exit 1; until [ -e open ]; do sleep 0.05; done'
        client = hv.start(
            "run", "--name", "b", "--items", "items", *options, "--", "sh", "-c", waits, "sh"
        )
        until(lambda: hv("status", "b", "--json").code == 0 and hv.json("status", "b")["pauses"])
        (hv.folder / "open").touch()
        told, _ = client.communicate(timeout=120)
        assert client.returncode == 9
        states = hv.json("summary", "b")["states"]
        assert states["failed"] == 1 and states["active"] >= 38
        assert "fail-fast" in told and "not finished" in told
        assert "paused: b (fail-fast" in hv.ok("status", "b")

    def test_a_retry_waits_its_time_and_is_not_a_failure_yet(self, hv):
        run(
            hv,
            "--detach",
            "--name",
            "b",
            "--retries",
            "1",
            "--retry-delay",
            "30s",
            "--",
            "sh",
            "-c",
            "echo try; [ -e once ] || { touch once; exit 5; }",
            "sh",
            items="a",
        )
        (task,) = hv.tasks("b")
        waiting = until(lambda: hv.state(task["id"]) == "waiting" and hv.task(task["id"]))
        assert (waiting["failures"], waiting["reason"]) == (1, "exit code 5")
        assert waiting["start_at"] - waiting["updated_at"] > 25_000
        refusal = hv.refused(2, "add", "x", "--batch", "b", "--retry-delay", "1s")
        assert "`hv run --retry-delay`" in refusal

        hv.ok("update", task["id"], "--in", "0s")
        until(lambda: hv.state(task["id"]) == "done", "the second try")
        assert hv.ok("logs", task["id"], "--attempt", "1") == "try\n"

    @pytest.mark.parametrize("when", [("--at", "2090-01-31"), ("--in", "2h")])
    def test_items_wait_for_their_time(self, hv, when):
        run(hv, "--detach", "--name", "b", *when, "--", "true", items="ab")
        tasks = [hv.task(task["id"]) for task in hv.tasks("b")]
        assert [task["state"] for task in tasks] == ["waiting", "waiting"]
        (start_at,) = {task["start_at"] for task in tasks}
        assert start_at - tasks[0]["created_at"] > 7_000_000
        for task in tasks:
            hv.ok("update", task["id"], "--in", "0s")
        until(lambda: {task["state"] for task in hv.tasks("b")} == {"done"})

    def test_a_timeout_ends_the_attempt(self, hv):
        told = run(
            hv,
            "--name",
            "b",
            "--timeout",
            "0.5s",
            "--",
            "sh",
            "-c",
            "echo $$ > pid-a; sleep 60",
            "sh",
            items="a",
            code=9,
        )
        assert "time limit" in told
        assert not is_alive(hv, "a")

    def test_the_json_of_a_run_is_its_summary(self, hv):
        command = ["--name", "b", "--", "sh", "-c", "[ $1 != b ]", "sh"]
        run(hv, *command, items="a")
        done = hv("run", "--json", *command, stdin="a\nb\nc\n")
        told = json.loads(done.out)
        assert (done.code, done.err) == (9, "")
        assert told["states"] == {"done": 2, "failed": 1} and told["skipped"] == 1
        assert told["total"] == 3 and told["succeeded"] is False
        (bad,) = [task for task in told["tasks"] if task["state"] == "failed"]
        assert (bad["title"], bad["reason"], bad["exit_code"]) == ("b", "exit code 1", 1)

    def test_many_failures_are_reported_up_to_a_number(self, hv):
        told = run(hv, "--name", "b", "--", "false", items=range(40), code=9)
        live, _, block = told.partition("\n✗ 0 done")
        assert live.count("exit code 1") == 20 and "more failures follow" in live
        assert "✗ 40 × exit code 1\n" in block and block.count("exit code 1") == 1

    @pytest.mark.parametrize("quiet", [[], ["--quiet"]])
    def test_failures_are_reported_as_they_happen_and_together_at_the_end(self, hv, quiet):
        told = run(hv, *quiet, "--name", "b", "--", "false", items=range(2), code=9)
        assert told.count("exit code 1") == (1 if quiet else 3) and "hv logs" in told

    @pytest.mark.parametrize("quiet", [[], ["--quiet"]])
    def test_a_failure_that_printed_nothing_is_reported_once(self, hv, quiet):
        told = run(hv, *quiet, "--name", "b", "--", "false", items="a", code=9)
        assert told.count("exit code 1") == 1 and "hv logs" in told


def test_old_outputs_are_collected(hv):
    run(hv, *NOTHING_TO_SEE, "--name", "b", "--", "echo", items="ab")
    assert hv.ok("gc", "--dry-run").startswith("0 outputs (0 bytes) would be deleted, 2 outputs")
    until(lambda: not list(hv.folder.glob(".hypervisor/outputs/spools/*")), "the workers ended")
    for output in hv.folder.glob(".hypervisor/outputs/*/*.pack"):
        os.utime(output, (time.time() - 31 * 86_400,) * 2)
    assert "2 outputs (4 bytes) would be deleted, 0 outputs" in hv.ok("gc", "--dry-run")
    expected = {"outputs": 2, "bytes": 4, "kept": 0, "kept_bytes": 0, "homes": 0, "events": 0}
    assert {**hv.json("gc"), "git": None} == {**expected, "batches": [], "tasks": 0, "git": None}
    assert hv("logs", hv.tasks("b")[0]["id"]).code == 4


@pytest.mark.parametrize(
    "args",
    [
        ["--item", "x"],
        ["--require-items", "--", "true"],
        ["--items", "missing", "--", "true"],
        ["--require-items", "--items", "none*", "--", "true"],
        ["--item", "", "--", "true"],
        ["--item", "x", "--", "no-such-program"],
        ["--item", "x", "--", "echo", "{column}"],
        ["--item", "x", "--exclusive", "{column}", "--", "echo"],
        ["--item", "x", "--fn", "nothing"],
        ["--item", "x", "--fn", "a:b", "--", "true"],
        ["--item", "x", "--fn", "a:b", "--python", "/no/python"],
        ["--item", "x", "--cwd", "missing", "--", "true"],
        ["--item", "x", "--timeout", "soon", "--", "true"],
        ["--item", "x", "--memory", "much", "--", "true"],
        ["--item", "x", "--workers", "0", "--", "true"],
        ["--item", "x", "--claim", "0", "--", "true"],
        ["--item", "x", "--retries=-1", "--", "true"],
        ["--item", "x", "--name", "", "--", "true"],
        ["--item", "x", "--type", "a b", "--", "true"],
        ["--item", "x", "--shell", "--", "echo '{}'"],
        ["--item", "x", "--fail-fast", "--keep-going", "--", "true"],
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_clear_line_and_makes_no_store(bare, args):
    bare.refused(2, "run", *args)
    assert not bare.store.exists()


def test_the_same_on_postgresql(hv, postgres_url):
    hv.env["HYPERVISOR_STORE"] = postgres_url
    told = run(
        hv, "--name", "b", "--", "sh", "-c", 'echo "$1"; [ $1 != b ]', "sh", items="abc", code=9
    )
    again = run(
        hv, "--name", "b", "--", "sh", "-c", 'echo "$1"; [ $1 != b ]', "sh", items="abc", code=9
    )
    task = hv.tasks("b")[1]["id"]
    assert f"{task}  b: exit code 1" in told and "2 done · 1 failed" in told
    assert "2 already done, skipped; 1 failed before, retrying" in again
    assert hv.ok("logs", task) == "b\n"
    assert hv.ok("status", "b").startswith("batch b: 3 tasks\n2 done · 1 failed\n")
