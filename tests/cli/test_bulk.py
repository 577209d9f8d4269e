"""Changing many tasks at once; several concurrent callers; tab completion."""

import json
import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import time
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
    moved = mixed.json("retry", "--state", "failed", "--batch", "b", "--reason", "fixed")
    assert [each["state"] for each in moved] == ["active", "active"]
    assert set(states(mixed).values()) == {"active"}


def test_retry_by_batch_alone_takes_what_failed_or_is_blocked(mixed):
    moved = mixed.json("retry", "--batch", "b")
    assert [set(each) for each in moved] == [{"task", "state"}] * 2


def test_what_is_chosen_by_a_filter_goes_oldest_first(hv):
    """A reopened dependency holds its dependents before they are reopened."""
    first = hv.add("first", "--batch", "b")
    hv.ok("done", hv.claim())
    second = hv.add("second", "--batch", "b", "--after", first)
    hv.ok("done", hv.claim())

    assert hv.json("retry", "--state", "done", "--dry-run") == [first, second]
    moved = hv.json("retry", "--state", "done", "--batch", "b")
    assert [(each["task"], each["state"]) for each in moved] == [
        (first, "active"),
        (second, "waiting"),
    ]
    assert [each["task"] for each in hv.json("cancel", "--batch", "b")] == [first, second]


def test_help_says_which_states_a_filter_takes(bare):
    assert "(default: failed, blocked)" in bare.ok("retry", "--help")
    said = " ".join(bare.ok("cancel", "--help").split())
    assert "(default: inbox, waiting, ready, running, merging, in review, blocked)" in said


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
    mixed.refused(4, "cancel", "\x1b[31m", "--dry-run")
    assert mixed.content() == before


def test_one_bad_id_does_not_stop_the_others(mixed):
    a, b = mixed.add("a"), mixed.add("b")
    code, out, err = mixed("cancel", a[:11], "zzzz", b)
    assert code == 4 and len(err.splitlines()) == 1
    assert out == "" and {mixed.task(task)["state"] for task in (a, b)} == {"cancelled"}
    code, out, _ = mixed("retry", a, "zzzz", "--json")
    done, wrong = json.loads(out)
    assert (code, done["task"]) == (4, a)
    assert (wrong["task"], wrong["error"]["code"]) == ("zzzz", "not_found")


def test_bulk_choices_that_make_no_sense(mixed):
    for args in ([], ["x", "--batch", "b"], ["--state", "unknown"]):
        mixed.refused(2, "cancel", *args)
        mixed.refused(2, "retry", *args)
    mixed.refused(4, "cancel", "--batch", "no such batch")


def test_a_batch_by_its_name_alone(mixed):
    assert len(mixed.json("retry", "b")) == 2
    assert len(mixed.json("cancel", "b", "--dry-run")) == 3
    assert mixed.json("kill", "b") == mixed.json("kill", "--type", "t") == []
    assert mixed.json("kill", "--state", "running") == mixed.json("kill", "--all") == []
    assert "hv cancel --state failed" in mixed.refused(2, "kill", "--state", "failed")
    assert len(mixed.json("cancel", "--all", "--dry-run")) == 4
    mixed.ok("pause", "--batch", "b")
    mixed.ok("resume", "b")
    mixed.refused(2, "pause", "b", "--batch", "b")
    mixed.refused(2, "cancel", "b", "--batch", "b")


def test_a_word_that_means_a_task_and_a_batch_is_refused(hv):
    task = hv.add("x")
    hv.add("y", "--batch", task[:6])
    assert "--batch" in hv.refused(hv("cancel", task[:6]).code, "cancel", task[:6])
    assert set(states(hv).values()) == {"active"}
    assert len(hv.json("cancel", "--batch", task[:6])) == 1


def test_the_end_of_an_id_stands_for_it(hv):
    task, other = hv.add("x"), hv.add("y")
    length = next(n for n in range(5, 12) if task[-n:] != other[-n:])
    assert hv.task(task[-length:])["id"] == task
    assert "at least 5 characters" in hv.refused(4, "show", task[-4:])


def test_unique_prefixes_stand_for_ids_everywhere(hv):
    """With a single task, four letters are enough. Look-alike letters and capitals are accepted."""
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
    hv.claim("--batch", hv.json("batches")[0]["id"][:6])
    assert hv.json("release", "--force", short)["task"] == task
    assert hv.json("cancel", short) == [{"task": task, "state": "cancelled"}]
    assert hv.json("retry", short) == [{"task": task, "state": "active"}]
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
        "reject",
        "release",
        "remember",
        "report",
        "resolve",
        "restore",
        "results",
        "resume",
        "retry",
        "review",
    ]
    assert complete(hv, "add", "--pri") == ["--priority"]
    assert complete(hv, "add", "--priority", "h") == ["high"]
    assert complete(hv, "ls", "--state", "in") == ["inbox", "in-review"]
    assert complete(hv, "show", task[:-1]) == [task]
    assert complete(hv, "receipt", "ver") == ["verify"]
    assert complete(hv, "add", "--from", "tas") == ["tasks.csv"]
    for command in ("logs", "diff", "snapshots", "restore", "approve"):
        assert complete(hv, command, task[:-1]) == [task]
    assert complete(hv, "queue", "pa") == ["pages"]
    assert complete(hv, "summary", "") == ["--help", "--store", "--json", "--all", "pages"]
    assert complete(hv, "ls", "--batch", "") == ["pages"]
    assert complete(hv, "events", "--batch", "") == ["pages"]
    assert complete(hv, "logs", "pa") == complete(hv, "results", "pa") == ["pages"]
    assert complete(hv, "results", "--format", "") == ["jsonl", "csv", "table"]
    assert "table" not in complete(hv, "run", "--format", "")
    assert complete(hv, "run", "--no-p") == ["--no-print"]
    assert complete(hv, "run", "--orde") == ["--ordered"]
    assert not (hv.folder / "trapped").exists()


@pytest.fixture
def installed(hv):
    """`hv` on the PATH; returns what installs the completion of a shell for it."""
    program = hv.folder / "bin" / "hv"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec " + shlex.join(PROGRAM) + ' "$@"\n')
    program.chmod(0o755)
    hv.env["PATH"] = f"{program.parent}:{hv.env['PATH']}"
    return lambda shell: hv.json("completion", shell, "--install")["path"]


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes_with_the_installed_file(hv, installed):
    hv.add("a task", "--batch", "pages")
    (hv.folder / "tasks.csv").touch()
    installed("fish")

    def offered(line):
        command = ["fish", "-c", f"complete -C '{line}'"]
        done = subprocess.run(
            command, cwd=hv.folder, env=hv.env, capture_output=True, text=True, timeout=120
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [word.split("\t")[0] for word in done.stdout.splitlines()]

    assert offered("hv rec") == ["recall", "receipt"]
    assert offered("hv add --priority h") == ["high"]
    assert offered("hv ls --batch ") == offered("hv summary ") == ["pages"]
    assert offered("hv batches ") == ["archive", "delete", "pages", "unarchive"]
    assert offered("hv batches archive ") == ["pages"]
    assert offered("hv run --items tas") == ["tasks.csv"]
    assert offered("hv run --timeout ") == [], "a value that cannot be guessed"


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes_with_the_installed_file(hv, installed):
    hv.add("a task", "--batch", "pages")
    folder = os.path.dirname(installed("zsh"))
    (hv.folder / ".zshrc").write_text(
        f"fpath=({folder} $fpath)\nautoload -U compinit && compinit -u\nPS1='ready> '\n"
    )
    child, leader = pty.fork()
    if child == 0:
        os.chdir(hv.folder)
        os.execvpe("zsh", ["zsh", "-i"], {**hv.env, "TERM": "dumb"})
    try:
        for keys, seen in (
            ("", "ready> "),
            ("hv receipt ver\t", "verify"),
            ("\x15hv ls --batch pa\t", "pages"),
        ):
            os.write(leader, keys.encode())
            _wait_for(leader, seen)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(leader)


def _wait_for(terminal, text):
    shown, deadline = "", time.monotonic() + 120
    while text not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65536).decode("utf-8", "replace")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid(bare, shell):
    script = bare.ok("completion", shell)
    assert bare.json("completion", shell) == {"shell": shell, "script": script[:-1]}
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_completion_is_installed_for_the_login_shell(bare):
    path = bare.folder / ".config" / "fish" / "completions" / "hv.fish"
    would = bare.ok("completion", "--install", "--dry-run", SHELL="/usr/bin/fish")
    assert would.startswith(f"would write {path}\n") and not path.exists()
    wrote = bare.ok("completion", "--install", SHELL="/usr/bin/fish")
    assert wrote.startswith(f"wrote {path}\n") and wrote.endswith(f"\nto undo: rm {path}\n")
    assert path.read_text() == bare.ok("completion", "fish")
    assert bare.json("completion", "fish", "--install")["changed"] is False


def test_completion_needs_a_shell(bare):
    assert "no shell given" in bare.refused(2, "completion")
    assert "--dry-run needs --install" in bare.refused(2, "completion", "bash", "--dry-run")
    assert "cannot tell your shell" in bare.refused(2, "completion", "--install")
