"""A client's files between the plan and the change: concurrent edits of their owner stay."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hypervisor.core.errors import InvalidInput, WrongState
from hypervisor.integrations.clients import PROJECT, USER, Place
from hypervisor.integrations.install import carry_out, plan_install, plan_uninstall

MINE = '{\n  "theme": "dark"\n}\n'


@pytest.fixture
def place(tmp_path):
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    return Place(str(tmp_path / "home"), str(tmp_path / "project"), {})


@pytest.fixture
def config(place):
    path = Path(place.home, ".gemini", "settings.json")
    path.parent.mkdir()
    path.write_text(MINE)
    path.chmod(0o640)
    return path


def install(place, scope=USER):
    carry_out(plan_install("gemini", scope, place), place)


def uninstall(place):
    carry_out(plan_uninstall("gemini", USER, place), place, removing=True)


@pytest.mark.parametrize("removing", [False, True])
def test_what_its_owner_wrote_after_the_plan_is_not_overwritten(place, config, removing):
    if removing:
        install(place)
    plan = plan_uninstall if removing else plan_install
    planned = plan("gemini", USER, place)
    config.write_text('{"theme": "light"}')
    with pytest.raises(WrongState, match="has changed since"):
        carry_out(planned, place, removing=removing)
    assert config.read_text() == '{"theme": "light"}'


@pytest.mark.parametrize("removing", [False, True])
def test_a_folder_that_is_linked_after_the_plan_is_not_followed(place, tmp_path, removing):
    if removing:
        install(place, PROJECT)
    plan = plan_uninstall if removing else plan_install
    planned = plan("gemini", PROJECT, place)
    folder, outside = Path(place.project, ".gemini"), tmp_path / "outside"
    if folder.exists():
        folder.rename(outside)
    else:
        outside.mkdir()
    folder.symlink_to(outside)
    before = sorted(outside.rglob("*"))
    with pytest.raises(InvalidInput, match="outside the project"):
        carry_out(planned, place, removing=removing)
    assert sorted(outside.rglob("*")) == before


def test_a_reader_never_sees_half_a_file(place, config):
    """A process that has it open keeps the old one; the new one is complete, with the same
    permissions."""
    with open(config) as reader:
        install(place)
        assert reader.read() == MINE
    assert '"hypervisor"' in config.read_text()
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    assert sorted(os.listdir(config.parent)) == ["settings.json", "skills"]


def test_what_a_killed_one_left_is_not_a_hindrance(place, config):
    left = Path(f"{config}.{os.getpid()}.hv-new")
    left.write_text("half")
    install(place)
    assert '"hypervisor"' in config.read_text() and not left.exists()


def test_a_second_install_keeps_what_was_there_before_the_first(place, config):
    install(place)
    Path(plan_uninstall("gemini", USER, place).changes[1].path).unlink()  # the skill
    install(place)
    uninstall(place)
    assert config.read_text() == MINE


def test_backups_are_private(place, config):
    """A configuration may hold secrets."""
    install(place)
    kept = [Path(folder) for folder, _, files in os.walk(place.state) if files]
    files = [each for folder in kept for each in folder.iterdir()]
    assert MINE in [each.read_text() for each in files]
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert {stat.S_IMODE(each.stat().st_mode) for each in kept} == {0o700}


def test_what_a_team_shares_can_be_read_by_all(place):
    install(place, PROJECT)
    path = Path(place.project, ".gemini", "settings.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_what_could_not_be_removed_is_recorded(place, config):
    """The entry was changed by its owner: it stays, and so does its backup."""
    install(place)
    config.write_text(config.read_text().replace('"mcp"', '"mcp", "--tools", "worker"'))
    changed = config.read_text()
    uninstall(place)
    assert config.read_text() == changed and os.path.exists(place.state)
    assert any(files for _, _, files in os.walk(place.state))


def test_folders_of_its_owner_stay_when_they_are_empty(place, tmp_path):
    apart = place._replace(env={"XDG_STATE_HOME": str(tmp_path / "state")})
    install(apart)
    uninstall(apart)
    assert os.path.isdir(place.home) and os.listdir(place.home) == []


def test_a_skill_that_its_owner_changed_stays(place):
    install(place)
    skill = Path(plan_uninstall("gemini", USER, place).changes[1].path)
    skill.write_text("mine")
    uninstall(place)
    assert skill.read_text() == "mine"
