"""The rules of mail-classify: the shipped rules are valid, the user's are added, mistakes are
reported."""

from __future__ import annotations

import os
import tomllib

import pytest

from hypervisor.core.errors import InvalidInput
from hypervisor.skills.builtin.mail_classify import decide
from hypervisor.skills.builtin.mail_classify_rules import SHIPPED, HeaderRules, glob, rules_for
from hypervisor.skills.builtin.mail_classify_text import Mail

NAME = "mail-classify.toml"


def override(folder, text, name=NAME):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


def kind(folder, subject="", sender="ann@home.example", **headers):
    named = {name.replace("_", "-").lower(): value for name, value in headers.items()}
    return decide(Mail((sender,), subject, named), rules_for(str(folder)))[0]


def test_what_ships_passes_its_own_checks(tmp_path):
    with open(SHIPPED, encoding="utf-8") as file:
        text = file.read()
    override(tmp_path, text)
    found = rules_for(str(tmp_path))
    assert {each.name for each in found.categories} >= {"spam", "invoice"}
    assert tuple(found.otherwise[:2]) == ("notification", "personal")
    for table in tomllib.loads(text)["category"].values():
        for words in table.values():
            assert isinstance(words, str) or len(words) == len(set(words))


def test_what_the_user_lists_is_added(tmp_path):
    assert kind(tmp_path, "Quittance") == "personal"
    override(tmp_path, '[category.invoice]\nsubject = ["quittance"]\nfrom = ["*@till.example"]\n')
    assert kind(tmp_path, "Quittance") == "invoice"
    assert kind(tmp_path, "Invoice") == "invoice"
    assert kind(tmp_path, sender="x@till.example") == "invoice"


def test_replace_starts_over_and_off_removes(tmp_path):
    override(
        tmp_path,
        '[category.invoice]\nreplace = true\nsubject = ["bill"]\n[category.order]\noff = true\n',
    )
    assert kind(tmp_path, "Invoice") == "personal"
    assert kind(tmp_path, "The bill") == "invoice"
    assert kind(tmp_path, "Your order") == "personal"


def test_a_category_of_the_users_own_goes_first(tmp_path):
    override(tmp_path, '[category.school]\nsubject = ["invoice*"]\nfolder = "school"\n')
    assert kind(tmp_path, "Invoice of the school") == "school"
    assert rules_for(str(tmp_path)).folder_of("school") == "school"


def test_points_and_what_is_otherwise_can_be_changed(tmp_path):
    override(
        tmp_path,
        '[points]\nsubject = 1\n[otherwise]\nperson = "people"\nfrom = ["boss@*"]\n'
        'folder = "machines"\n',
    )
    assert kind(tmp_path, "Invoice") == "people"
    assert kind(tmp_path, sender="boss@x.example") == "notification"
    assert kind(tmp_path, sender="noreply@x.example") == "notification"
    assert rules_for(str(tmp_path)).folder_of("notification") == "machines"
    assert rules_for(str(tmp_path)).folder_of("people") == ""


def test_the_run_folder_wins_and_a_changed_file_is_read_again(tmp_path):
    override(tmp_path, "[points]\nenough = 90\nbody = 5\n", f".hypervisor/{NAME}")
    path = override(tmp_path, "[points]\nenough = 80\n")
    assert (rules_for(str(tmp_path)).points.enough, rules_for(str(tmp_path)).points.body) == (80, 5)
    before = path.stat()
    path.write_text("[points]\nenough = 70\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert rules_for(str(tmp_path)).points.enough == 70
    assert rules_for(str(tmp_path)) is rules_for(str(tmp_path))
    path.unlink()
    assert rules_for(str(tmp_path)).points.enough == 90


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[kategory.x]\n", "[kategory]"),
        ("category = 3\n", "[category]"),
        ("[category]\ninvoice = 3\n", "[category.invoice]"),
        ("[category.invoice]\nsubjects = ['x']\n", "[category.invoice] subjects"),
        ("[category.invoice]\nsubject = 'x'\n", "[category.invoice] subject"),
        ("[category.invoice]\nsubject = ['x', 3]\n", "[category.invoice] subject"),
        ("[category.invoice]\nbody = ['***']\n", "[category.invoice] body"),
        ("[category.invoice]\nheaders = ['a b: c']\n", "[category.invoice] headers"),
        ("[category.invoice]\noff = 1\n", "[category.invoice] off"),
        ("[category.invoice]\nfolder = '../x'\n", "[category.invoice] folder"),
        ("[category.invoice]\nfolder = 'a/b'\n", "[category.invoice] folder"),
        ("[category.invoice]\nfolder = '.x'\n", "[category.invoice] folder"),
        ('[category."a\\nb"]\n', "category"),
        ("[points]\nsubject = -1\n", "[points] subject"),
        ("[points]\nsubjects = 1\n", "[points] subjects"),
        ("[limits]\nbody = true\n", "[limits] body"),
        ("[otherwise]\nperson = ''\n", "[otherwise] person"),
        ("[otherwise]\nsubject = ['x']\n", "[otherwise] subject"),
        ("[points\n", "line 1"),
        ("\udcff", "not valid TOML"),
    ],
)
def test_a_mistake_names_the_file_and_the_key(tmp_path, text, named):
    path = override(tmp_path, text)
    with pytest.raises(InvalidInput) as error:
        rules_for(str(tmp_path))
    assert str(path) in str(error.value)
    assert named in str(error.value)


@pytest.mark.parametrize(
    ("rule", "fits", "not_fits"),
    [
        ("a@b", ["a@b"], ["xa@b", "a@bc", ""]),
        ("Billing@*", ["billing@", "billing@x"], ["xbilling@x"]),
        ("*@x.example", ["a@x.example", "@x.example"], ["a@x.example.org"]),
        ("a*b*c", ["abc", "a1b2c", "abbcc"], ["ac", "acb", "ab"]),
        ("a*b*b*c", ["abbc", "axbxbxc"], ["abc"]),  # nor may its parts
        ("ab*ba", ["abba", "abxba"], ["aba"]),  # its ends must not overlap
        ("*", ["", "x"], []),
    ],
)
def test_stars(rule, fits, not_fits):
    assert all(map(glob(rule), fits))
    assert not any(map(glob(rule), not_fits))


@pytest.mark.parametrize(
    ("rule", "headers", "found"),
    [
        ("List-Id", {"list-id": ""}, True),
        ("List-Id", {"list": "x"}, False),
        ("Precedence: bulk", {"precedence": "bulk"}, True),
        ("Precedence: bulk", {"precedence": "bulky"}, False),
        ("Precedence:bulk*", {"precedence": "bulky"}, True),
        ("X-Git*: 1", {"x-github-a": "2", "x-gitlab": "1"}, True),
        ("X-Git*", {"xgit": "1"}, False),
    ],
)
def test_headers(rule, headers, found):
    assert HeaderRules([rule]).matches(headers) == ([rule] if found else [])
