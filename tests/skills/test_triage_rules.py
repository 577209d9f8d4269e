"""The rules file: the shipped file works, users override single keys, mistakes are reported."""

from __future__ import annotations

import os
import tomllib

import pytest

from hypervisor.core.errors import InvalidInput
from hypervisor.skills.builtin.triage_rules import SHIPPED, rules_for
from hypervisor.skills.builtin.triage_text import NormalizedText


def override(folder, text, name="triage.toml"):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_what_ships_is_complete(tmp_path):
    rules = rules_for(str(tmp_path))
    assert (rules.person, rules.bot) == ("me", "bot")
    assert rules.complexity.levels == ("simple", "medium", "complex")


def test_no_word_is_for_both_sides():
    with open(SHIPPED, "rb") as file:
        tables = tomllib.load(file)
    both = set(tables["judgement"]["words"]) & set(tables["automatable"]["words"])
    assert both == set()
    for table in ("judgement", "automatable"):
        words = tables[table]["words"]
        assert len(words) == len(set(words))


def test_keys_that_are_not_named_keep_their_values(tmp_path):
    override(tmp_path, '[names]\nperson = "Ann  Lee"\n[judgement]\nalso = ["frobnicat*"]\n')
    rules = rules_for(str(tmp_path))
    assert (rules.person, rules.bot) == ("Ann Lee", "bot")
    assert rules.judgement.matches(NormalizedText("frobnicate and decide")) == [
        "decid*",
        "frobnicat*",
    ]


def test_words_replace_and_also_adds(tmp_path):
    override(tmp_path, '[judgement]\nwords = ["only"]\n[automatable]\nalso = ["more"]\n')
    rules = rules_for(str(tmp_path))
    assert rules.judgement.matches(NormalizedText("only decide")) == ["only"]
    assert rules.automatable.matches(NormalizedText("more lint")) == ["lint", "more"]


def test_the_run_folder_wins_over_the_hidden_one(tmp_path):
    override(tmp_path, '[names]\nperson = "hidden"\nbot = "robot"\n', ".hypervisor/triage.toml")
    override(tmp_path, '[names]\nperson = "open"\n')
    rules = rules_for(str(tmp_path))
    assert (rules.person, rules.bot) == ("open", "robot")


def test_a_changed_file_is_read_again(tmp_path):
    path = override(tmp_path, '[names]\nperson = "one"\n')
    assert rules_for(str(tmp_path)).person == "one"
    assert rules_for(str(tmp_path)) is rules_for(str(tmp_path))
    before = path.stat()
    path.write_text('[names]\nperson = "two"\n')
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert rules_for(str(tmp_path)).person == "two"
    path.unlink()
    assert rules_for(str(tmp_path)).person == "me"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[names]\nhuman = 'x'\n", "[names] human"),
        ("[nams]\nperson = 'x'\n", "[nams]"),
        ("names = 3\n", "[names]"),
        ("[names]\nperson = 3\n", "[names] person"),
        ("[names]\nperson = ''\n", "[names] person"),
        ('[names]\nbot = "a\\nb"\n', "[names] bot"),
        ("[closure]\nticked = 1\n", "[closure] ticked"),
        ("[assignee]\ntitle = -1\n", "[assignee] title"),
        ("[assignee]\ntitle = true\n", "[assignee] title"),
        ("[judgement]\nwords = 'x'\n", "[judgement] words"),
        ("[judgement]\nwords = ['x', 3]\n", "[judgement] words"),
        ("[automatable]\nalso = ['*']\n", "[automatable] also"),
        ("[complexity]\nwords = ['x']\n", "[complexity] words"),
        ("[complexity]\nlevels = ['a', 'b']\n", "[complexity] levels"),
        ("[names\n", "line 1"),
        ("\udcff", "not valid TOML"),
    ],
)
def test_a_mistake_names_the_file_and_the_key(tmp_path, text, named):
    path = tmp_path / "triage.toml"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(InvalidInput) as error:
        rules_for(str(tmp_path))
    assert str(path) in str(error.value)
    assert named in str(error.value)


def test_a_folder_in_place_of_the_file_is_an_error(tmp_path):
    (tmp_path / "triage.toml").mkdir()
    with pytest.raises(InvalidInput, match="not a file"):
        rules_for(str(tmp_path))
