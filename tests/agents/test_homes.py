"""The homes of agents: private, in one place only, and gone when they are removed."""

from __future__ import annotations

import os

import pytest

from hypervisor.agents.homes import AgentHomes, link_login
from hypervisor.core.errors import InvalidInput


@pytest.fixture
def homes(tmp_path):
    return AgentHomes(str(tmp_path / "data"))


def mode(path):
    return os.stat(path).st_mode & 0o777


def test_a_home_is_private_and_its_tmp_is_empty_at_every_start(homes):
    home = homes.prepare("task1")
    assert [mode(path) for path in (home.root, home.home, home.tmp)] == [0o700] * 3
    for folder in (home.home, home.tmp):
        with open(os.path.join(folder, "left"), "w"):
            pass
    assert homes.prepare("task1") == home
    assert os.listdir(home.home) == ["left"] and os.listdir(home.tmp) == []
    assert homes.exists("task1") and list(homes.all()) == ["task1"]


@pytest.mark.parametrize("name", ["..", "a/b", "", "-", "a b", "/x"])
def test_a_name_cannot_lead_elsewhere(homes, name):
    for use in (homes.at, homes.exists, homes.prepare, homes.remove):
        with pytest.raises(InvalidInput):
            use(name)


def test_links_are_removed_and_not_what_they_lead_to(homes, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    home = homes.prepare("task1")
    os.symlink(kept, os.path.join(home.home, "link"))
    homes.remove("task1")
    assert not os.path.exists(homes.root) and (kept / "file").read_text() == "x"
    homes.remove("task1")  # a second call does nothing


def test_others_stay(homes):
    homes.prepare("one"), homes.prepare("two")
    homes.remove("one")
    assert list(homes.all()) == ["two"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may remove what is read-only")
def test_read_only_folders_go_too(homes):
    home = homes.prepare("task1")
    inner = os.path.join(home.home, "inner")
    os.makedirs(os.path.join(inner, "deep"))
    os.chmod(inner, 0o500)
    homes.remove("task1")
    assert not os.path.exists(home.root)


def test_a_login_is_linked_if_it_is_there_and_within_the_home(tmp_path):
    me, home = tmp_path / "me", tmp_path / "home"
    (me / ".tool").mkdir(parents=True)
    (me / ".tool" / "auth").write_text("x")
    (tmp_path / "outside").write_text("x")
    home.mkdir()
    names = (".tool/auth", ".tool/none", "../outside", str(tmp_path / "outside"))
    for _ in range(2):  # an attempt that is not the first finds the link
        assert link_login(str(home), str(me), names) == [".tool/auth"]
    assert os.path.samefile(home / ".tool" / "auth", me / ".tool" / "auth")
    assert mode(home / ".tool") == 0o700
    assert link_login(str(home), "", (".tool/auth",)) == []
