"""Many tasks steered at once; several callers at once; completion."""

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cli.conftest import PROGRAM


def states(hv):
    return {task["title"]: task["state"] for task in hv.json("ls")}


@pytest.fixture
def mixed(hv):
    """Tasks in several states, two of them failed."""
    hv.ok("add", "--from", "-", "--batch", "b", stdin="f1\nf2\nopen\n")
    for _ in range(2):
        hv.ok("fail", hv.claim("--batch", "b"), "why")
    hv.add("elsewhere", "--type", "t")
    return hv


def test_retry_by_state_and_batch(mixed):
    out = mixed.ok("retry", "--state", "failed", "--batch", "b", "--reason", "fixed")
    assert [line.split()[1] for line in out.splitlines()] == ["active", "active"]
    assert set(states(mixed).values()) == {"active"}


def test_retry_by_batch_alone_takes_what_failed_or_is_blocked(mixed):
    moved = mixed.json("retry", "--batch", "b")
    assert [set(each) for each in moved] == [{"task", "state"}] * 2


def test_what_is_chosen_by_a_filter_goes_oldest_first(hv):
    """A dependency that is opened again is in the way of the others before they are."""
    first = hv.add("first", "--batch", "b")
    hv.ok("done", hv.claim())
    second = hv.add("second", "--batch", "b", "--after", first)
    hv.ok("done", hv.claim())

    assert hv.json("retry", "--state", "done", "--dry-run") == [first, second]
    out = hv.ok("retry", "--state", "done", "--batch", "b")
    assert out == f"{first} active\n{second} waiting\n"
    assert hv.ok("cancel", "--batch", "b") == f"{first} cancelled\n{second} cancelled\n"


def test_help_says_which_states_a_filter_takes(bare):
    assert "(default: failed, blocked)" in bare.ok("retry", "--help")
    said = " ".join(bare.ok("cancel", "--help").split())
    assert "(default: inbox, waiting, active, in_progress, merging, review, blocked)" in said


def test_cancel_by_batch_leaves_the_rest(mixed):
    mixed.ok("cancel", "--batch", "b")
    assert states(mixed) == {
        "f1": "failed",
        "f2": "failed",
        "open": "cancelled",
        "elsewhere": "active",
    }


def test_a_rehearsal_shows_which_and_changes_nothing(mixed):
    before = mixed.content()
    out = mixed.ok("cancel", "--batch", "b", "--type", "task", "--dry-run")
    assert out.splitlines()[-1] == "1 task (dry run: nothing was changed)"
    chosen = mixed.json("retry", "--state", "failed", "--dry-run")
    assert len(chosen) == 2
    assert mixed.json("cancel", f" {chosen[0].upper()} ", "--dry-run") == [chosen[0]]
    mixed.refused(4, "cancel", "zzzz", "--dry-run")
    mixed.refused(2, "cancel", "\x1b[31m", "--dry-run")
    assert mixed.content() == before


def test_one_bad_id_does_not_stop_the_others(mixed):
    a, b = mixed.add("a"), mixed.add("b")
    code, out, err = mixed("cancel", a[:11], "zzzz", b)
    assert code == 4 and len(err.splitlines()) == 1
    assert out == f"{a} cancelled\n{b} cancelled\n"
    code, out, _ = mixed("retry", a, "zzzz", "--json")
    done, wrong = json.loads(out)
    assert (code, done["task"]) == (4, a)
    assert (wrong["task"], wrong["error"]["code"]) == ("zzzz", "not_found")


def test_bulk_choices_that_make_no_sense(mixed):
    for args in ([], ["x", "--batch", "b"], ["--state", "unknown"]):
        mixed.refused(2, "cancel", *args)
        mixed.refused(2, "retry", *args)
    mixed.refused(4, "cancel", "--batch", "no such batch")


def test_unique_prefixes_stand_for_ids_everywhere(hv):
    """Only one task: four letters are enough. Look-alikes and capitals are read as meant."""
    task = hv.add("x", "--batch", "b")
    short = task[:4]
    assert short[0] == "1"
    for written in (short, f"I{short[1:]}", f"l{short[1:]}", task.upper(), f" {task} "):
        assert hv.task(written)["id"] == task
    for args in (["show"], ["cancel"], ["update", "--title=y"], ["events", "--task"]):
        assert "too short" in hv.refused(2, *args, task[:3])
    hv.ok("update", short, "--title", "y")
    hv.ok("receipt", "add", short, "seen")
    assert hv.ok("events", "--task", short)
    hv.claim("--batch", hv.json("stats", "--batches")[0]["id"][:6])
    assert hv.json("release", "--force", short)["task"] == task
    assert hv.ok("cancel", short) == f"{task} cancelled\n"
    assert hv.ok("retry", short) == f"{task} active\n"
    second = hv.ok("add", "z", "--after", short).strip()
    assert hv.json("show", second)["detail"]["after"] == [task]


def test_eight_callers_share_sixty_tasks_without_doubling(hv):
    """Shell loops, each with its own processes: claim, then finish and claim the next."""
    hv.ok("add", "--from", "-", stdin="".join(f"item {n}\n" for n in range(60)))
    loop = """
    token=$("$@" claim --worker "$WORKER" | cut -d' ' -f1)
    while [ -n "$token" ]; do
        echo "$token"
        token=$("$@" done "$token" --next "$WORKER" 2>/dev/null | cut -d' ' -f1)
    done
    """

    def worker(number):
        env = {**hv.env, "WORKER": f"w{number}"}
        done = subprocess.run(
            ["sh", "-c", loop, "sh", *PROGRAM],
            cwd=hv.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.stdout.split()

    with ThreadPoolExecutor(8) as pool:
        tokens = [token for part in pool.map(worker, range(8)) for token in part]
    assert len(tokens) == len({token.split(".")[0] for token in tokens}) == 60
    assert hv.json("stats")["states"]["done"] == 60
    kinds = [json.loads(line)["kind"] for line in hv.ok("events", "--json").splitlines()]
    assert (kinds.count("claim"), kinds.count("complete")) == (60, 60)


def complete(hv, *words):
    """What bash offers for the last of these words."""
    hv.folder.joinpath("bin").mkdir(exist_ok=True)
    program = hv.folder / "bin" / "hv"
    program.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in PROGRAM) + ' "$@"\n')
    program.chmod(0o755)
    script = 'eval "$(hv completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hv\n'
    script += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-uec", script, "bash", "hv", *words],
        cwd=hv.folder,
        env={**hv.env, "PATH": f"{program.parent}:{os.defpath}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_bash_completes_commands_options_values_ids_and_batches(hv):
    task = hv.add("a task", "--batch", "pages")
    hv.add("a trap", "--batch", "$(touch trapped)")
    (hv.folder / "tasks.csv").touch()
    assert sorted(complete(hv, "re")) == [
        "recall",
        "receipt",
        "release",
        "remember",
        "report",
        "resume",
        "retry",
        "review",
    ]
    assert complete(hv, "add", "--pri") == ["--priority"]
    assert complete(hv, "add", "--priority", "h") == ["high"]
    assert complete(hv, "ls", "--state", "in") == ["inbox", "in_progress"]
    assert complete(hv, "show", task[:-1]) == [task]
    assert complete(hv, "receipt", "ver") == ["verify"]
    assert complete(hv, "add", "--from", "tas") == ["tasks.csv"]
    assert complete(hv, "logs", task[:-1]) == [task]
    assert complete(hv, "summary", "") == ["--help", "--store", "--json", "--all", "pages"]
    assert complete(hv, "ls", "--batch", "") == ["pages"]
    assert not (hv.folder / "trapped").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid(bare, shell):
    script = bare.ok("completion", shell)
    assert bare.json("completion", shell) == {"shell": shell, "script": script[:-1]}
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
