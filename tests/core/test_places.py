"""Where files are kept next to a store, and that no other user can access them."""

from __future__ import annotations

import os
import stat

import pytest

from hypervisor.core.errors import StoreUnavailable
from hypervisor.core.places import make_private, places_of

SOMEBODY = 54_321
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


# Which folders


def of(where, folder="/x", identity="1", boot="b"):
    return places_of(where, folder, identity, boot)


def test_a_file_store_keeps_its_data_beside_it(home):
    assert of("/x/.hypervisor/store.db", "/x/.hypervisor").data == "/x/.hypervisor"


def test_a_store_elsewhere_keeps_its_data_in_the_users_home(home):
    places = of("postgresql://h:5432/db", None)
    assert os.path.dirname(places.data) == str(home / "data" / "hypervisor")
    assert places.data == of("postgresql://h:5432/db", None, "2", "c").data


def test_the_runtime_folder_follows_from_store_boot_and_namespace_alone(home, monkeypatch):
    found = of("/a/store.db").runtime
    assert of("/b/store.db", "/y").runtime == found
    for given in ("", "/nowhere/at/all", str(home)):
        monkeypatch.setenv("XDG_RUNTIME_DIR", given)
        monkeypatch.setenv("TMPDIR", given)
        assert of("/a/store.db").runtime == found
    assert len({found, of("/a", identity="2").runtime, of("/a", boot="c").runtime}) == 3
    assert os.path.basename(os.path.dirname(found)) == f"hypervisor-{os.getuid()}"


def test_each_store_elsewhere_has_data_of_its_own(home):
    names = ["postgresql://h:5432/a", "postgresql://h:5432/b", "/ü", "/\udcff"]
    assert len({of(name, None).data for name in names}) == len(names)


def test_names_of_places_are_harmless_whatever_the_store_is_called(home):
    found = of("../../../etc\n\0 ; rm -rf /", None, "../x", "../y")
    assert os.path.basename(found.runtime).isalnum() and os.path.basename(found.data).isalnum()


# Making them private


def test_a_private_folder_and_its_parent_are_for_us_alone(tmp_path):
    before = os.umask(0)
    try:
        made = make_private(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    assert made == str(tmp_path / "a" / "b")
    assert mode(made) == mode(tmp_path / "a") == 0o700


def test_making_it_again_is_not_an_error(tmp_path):
    for _ in range(2):
        make_private(str(tmp_path / "a" / "b"))


@pytest.mark.parametrize("which", ["a", "a/b"])
@pytest.mark.parametrize("open_to", [0o777, 0o750, 0o701])
def test_a_folder_that_others_could_enter_is_closed(tmp_path, which, open_to):
    make_private(str(tmp_path / "a" / "b"))
    os.chmod(tmp_path / which, open_to)
    make_private(str(tmp_path / "a" / "b"))
    assert mode(tmp_path / which) == 0o700


@as_root
@pytest.mark.parametrize("which", ["a", "a/b"])
def test_a_folder_of_another_user_is_refused(tmp_path, which):
    make_private(str(tmp_path / "a" / "b"))
    os.chown(tmp_path / which, SOMEBODY, SOMEBODY)
    with pytest.raises(StoreUnavailable, match="belongs to another user"):
        make_private(str(tmp_path / "a" / "b"))
    assert os.stat(tmp_path / which).st_uid == SOMEBODY


@pytest.mark.parametrize("which", ["a", "a/b"])
def test_a_link_is_refused_even_to_a_folder_of_ours(tmp_path, which):
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    (tmp_path / which).parent.mkdir(exist_ok=True)
    os.symlink(target, tmp_path / which)
    with pytest.raises(StoreUnavailable):
        make_private(str(tmp_path / "a" / "b"))
    assert mode(target) == 0o755, "what a link leads to is none of our business"
    assert os.listdir(target) == []


def test_a_link_to_nowhere_is_refused(tmp_path):
    os.symlink(tmp_path / "nowhere", tmp_path / "a")
    with pytest.raises(StoreUnavailable, match="cannot create"):
        make_private(str(tmp_path / "a" / "b"))
    assert not os.path.exists(tmp_path / "nowhere")


@pytest.mark.parametrize("which", ["a", "a/b"])
def test_a_file_in_the_way_is_refused(tmp_path, which):
    (tmp_path / which).parent.mkdir(exist_ok=True)
    (tmp_path / which).write_text("mine")
    with pytest.raises(StoreUnavailable, match="cannot create"):
        make_private(str(tmp_path / "a" / "b"))
    assert (tmp_path / which).read_text() == "mine"
