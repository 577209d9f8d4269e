"""Help on one screen, and suggestions for mistyped words."""

import re
import subprocess
import sys

import pytest

from hypervisor.cli.commands.batches import age_text
from hypervisor.skills.skill import read_skill

OVERVIEW = """
import sys
from hypervisor.cli.main import run
run(["--help"], None)
print(" ".join(sys.modules), file=sys.stderr)
"""


def test_examples_fit_on_a_terminal_of_80_columns(bare):
    """They are not wrapped, so that they can be copied."""
    for name in ("run", "add", "logs", "status", "retry", "batches", "review"):
        examples = bare.ok(name, "--help").partition("\nexamples:\n")[2].splitlines()
        assert examples and max(map(len, examples)) <= 80, name


def test_the_overview_is_in_groups(bare):
    headings = [line for line in bare.ok("--help").splitlines() if line.endswith(":")]
    assert headings == [
        "Run:",
        "Watch:",
        "Queue:",
        "Review:",
        "Git:",
        "Agents:",
        "Memory:",
        "Admin:",
    ]


def test_the_overview_imports_no_operation():
    done = subprocess.run(
        [sys.executable, "-I", "-c", OVERVIEW], capture_output=True, text=True, timeout=60
    )
    rooms = {name.split(".")[1] for name in done.stderr.split() if name.startswith("hypervisor.")}
    assert rooms == {"cli", "core"}


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["lss"], "Did you mean `hv ls`?"),
        (["statsu"], "Did you mean `hv status`?"),
        (["help", "lss"], "Did you mean `hv ls`?"),
        (["ls", "--stat", "failed"], "Did you mean --state?"),
        (["ls", "--stat=failed"], "Did you mean --state?"),
        (["ls", "--priority", "hihg"], "Did you mean high?"),
        (["fail", "--finall"], "Did you mean --final?"),
        (["run", "--worker", "2", "--", "true", "--itmes"], "Did you mean --workers?"),
    ],
)
def test_a_typo_gets_a_suggestion(bare, words, suggestion):
    assert suggestion in bare.refused(2, *words)


def test_what_resembles_nothing_gets_none(bare):
    assert "Did you mean" not in bare.refused(2, "ls", "--zzzzzz")


def test_options_of_a_command_to_run_are_left_alone(hv):
    hv.ok("notify", "add", "x", "--on", "done", "--run", "true", "--itmes")
    assert '"--itmes"' in hv.ok("notify", "ls", "--json")


def shown(text):
    return set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE))


def test_run_shows_the_options_people_need_and_the_rest_on_request(bare):
    common, all_options = shown(bare.ok("run", "--help")), shown(bare.ok("run", "--help-all"))
    assert {"--items", "--workers", "--dry-run", "--agent", "--timeout"} <= common
    assert not {"--silence", "--strategy", "--claim", "--log-level"} & common
    always = {"--help", "--help-all", "--store", "--json"}
    assert len(common - always) == 20 and len(all_options) >= 60
    assert common < all_options
    assert "-j, --workers N|auto " in bare.ok("run", "--help")


def test_short_options_are_those_of_make_and_parallel(hv):
    same = ("-0", "-j", "2", "-k", "-q", "--name", "b", "--", "printf", "%s\\n")
    assert "nothing was started" in hv.ok("run", "-n", *same, stdin="a\0b\0")
    assert hv("run", *same, stdin="a\0b\0").out.splitlines() == ["a", "b"]


def test_a_person_gets_a_line_and_a_script_nothing(project):
    task = project.add("x")
    project.terminal("done", project.claim()).wait_for(f"{task} done")
    project.add("y")
    assert project.ok("done", project.claim()) == ""


def test_quiet_says_nothing(hv):
    task = hv.add("x", "--batch", "b")
    for words in (["pause", "b"], ["resume", "b"], ["cancel", task], ["retry", task]):
        assert hv.ok(*words, "-q") == "", words
    assert hv.task(task)["state"] == "active"


def test_batches_shows_states_and_age(hv):
    for title in ("x", "y"):
        hv.add(title, "--batch", "b")
    hv.ok("fail", hv.claim(), "why")
    line = hv.ok("batches")
    assert re.search(r" +\d+ s +0 of 2 +1 ready, 1 failed +b\n", line), line
    assert [age_text(ms) for ms in (-5, 59_999, 60_000, 90 * 60_000, 50 * 3_600_000)] == [
        "0 s",
        "59 s",
        "1 min",
        "1 h",
        "2 d",
    ]


class TestOldNames:
    """They work, with a hint."""

    def test_key_of_a_run_is_now_exclusive(self, hv):
        for key in (["--key", "tree"], ["--key=tree"]):
            result = hv("run", "--item", str(len(key)), *key, "--name", "b", "--", "true", "--key")
            assert (result.code, result.err) == (
                0,
                "hv: `hv run --key` is now called --exclusive\n",
            )
        for task in hv.json("ls", "--batch", "b"):
            assert hv.json("show", task["id"])["detail"]["exclusive"] == ["tree"]

    def test_a_number_after_batch_is_now_claim(self, hv):
        result = hv("run", "--item", "x", "--batch", "3", "--name", "b", "--", "true")
        assert (result.code, "`hv run --batch N` is now called --claim N" in result.err) == (
            0,
            True,
        )
        assert hv.json("stats", "--batch", "b")["total"] == 1

    def test_batch_names_a_batch_for_run_as_for_every_command(self, hv):
        assert hv("run", "--item", "x", "--batch", "pages", "--", "true").err == ""
        assert hv.json("stats", "--batch", "pages")["total"] == 1

    def test_stats_of_batches_is_now_batches(self, hv):
        hv.add("x", "--batch", "b")
        result = hv("stats", "--batches")
        assert (result.code, "is now called `hv batches`" in result.err) == (0, True)
        assert result.out.split()[0] == hv.ok("batches").split()[0]
        assert hv("stats", "--names").out == "b\n"
        assert "--batches" not in hv.ok("stats", "--help")

    def test_a_skill_file_may_use_them(self):
        text = b"---\nname: s\ndescription: x\nrun: {command: [ls]}\nkey: [k]\nbatch: 3\n---\n"
        assert dict(read_skill(text, "s").options) == {"exclusive": ["k"], "claim": 3}


@pytest.mark.parametrize("command", ["run", "dashboard"])
def test_a_duration_is_not_called_a_time(bare, command):
    """TIME is a point in time, such as 17:00."""
    text = bare.ok(command, "--help-all" if command == "run" else "--help")
    assert set(re.findall(r"(--[\w-]+) TIME", text)) <= {"--at"}


@pytest.mark.parametrize("command", ["batches", "skills", "agents"])
@pytest.mark.parametrize("word", ["list", "ls"])
def test_listing_has_a_name_too(hv, command, word):
    hv.add("x", "--batch", "b")
    assert hv.ok(command, word, "--names") == hv.ok(command, "--names")
    assert f"`hv {command} list` takes no" in hv.refused(2, command, word, "b")


def test_other_words_for_listing_showing_and_removing(hv):
    assert hv.ok("config", "show") == hv.ok("config")
    hv.ok("notify", "add", "x", "--on", "done", "--run", "true")
    assert hv.ok("notify", "list") == hv.ok("notify", "ls")
    hv.ok("notify", "remove", "x")
    task = hv.add("y")
    hv.ok("receipt", "add", task, "looked")
    assert hv.ok("receipt", "list", task) == hv.ok("receipt", "ls", task) != ""


def test_an_unknown_subcommand_is_named_without_its_place(bare):
    assert bare.refused(2, "config", "shwo").startswith("hv: invalid choice: 'shwo' (choose from")
