"""hv completion --install: the right file for each shell, and no other file."""

import os
import shutil
import subprocess

import pytest

from hypervisor.core.errors import InvalidInput, WrongState
from hypervisor.integrations.clients import Place
from hypervisor.integrations.shell_completion import MARK, install_completion, shell_of

SCRIPT = f"{MARK}\ncomplete -F _hv hv"
PATHS = {
    "bash": ".local/share/bash-completion/completions/hv",
    "zsh": ".local/share/zsh/site-functions/_hv",
    "fish": ".config/fish/completions/hv.fish",
}


@pytest.fixture
def place(tmp_path):
    return Place(str(tmp_path), str(tmp_path), {})


@pytest.mark.parametrize("shell", PATHS)
def test_writes_where_the_shell_looks(place, tmp_path, shell):
    installed = install_completion(shell, SCRIPT, place)
    assert (installed.path, installed.changed) == (str(tmp_path / PATHS[shell]), True)
    assert (tmp_path / PATHS[shell]).read_text() == SCRIPT + "\n"
    assert not install_completion(shell, SCRIPT, place).changed


def test_a_dry_run_writes_nothing(place, tmp_path):
    assert install_completion("bash", SCRIPT, place, dry_run=True).changed
    assert list(tmp_path.iterdir()) == []


def test_follows_the_xdg_variables(tmp_path):
    variables = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "conf")}
    place = Place(str(tmp_path), str(tmp_path), variables)
    assert install_completion("zsh", SCRIPT, place).path.startswith(str(tmp_path / "data"))
    assert install_completion("fish", SCRIPT, place).path.startswith(str(tmp_path / "conf"))


def test_replaces_its_own_older_file(place, tmp_path):
    install_completion("fish", f"{MARK}\nold", place)
    assert install_completion("fish", SCRIPT, place).changed
    assert (tmp_path / PATHS["fish"]).read_text() == SCRIPT + "\n"


def test_leaves_a_file_of_another_program_alone(place, tmp_path):
    path = tmp_path / PATHS["bash"]
    path.parent.mkdir(parents=True)
    path.write_text("complete -F _other hv\n")
    with pytest.raises(WrongState, match="was not written by hv"):
        install_completion("bash", SCRIPT, place)
    assert path.read_text() == "complete -F _other hv\n"


def test_writes_through_a_link_of_a_dotfiles_folder(place, tmp_path):
    path = tmp_path / PATHS["fish"]
    path.parent.mkdir(parents=True)
    kept = tmp_path / "dotfiles.fish"
    kept.write_text(MARK)
    path.symlink_to(kept)
    install_completion("fish", SCRIPT, place)
    assert path.is_symlink() and kept.read_text() == SCRIPT + "\n"


def test_knows_the_login_shell():
    assert shell_of({"SHELL": "/usr/bin/fish"}) == "fish"
    for unknown in ({}, {"SHELL": "/bin/tcsh"}):
        with pytest.raises(InvalidInput, match="hv completion bash --install"):
            shell_of(unknown)


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_bash_can_load_what_was_installed(place, tmp_path):
    from hypervisor.cli.commands.completion import completion_script

    path = install_completion("bash", completion_script("bash"), place).path
    script = '. "$1"; complete -p hv; COMP_WORDS=(hv comp); COMP_CWORD=1; _hv; echo "$COMPREPLY"'
    done = subprocess.run(
        ["bash", "--norc", "-uec", script, "bash", path],
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (done.stderr, done.stdout) == ("", "complete -F _hv hv\ncompletion\n")
