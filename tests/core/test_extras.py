"""The command that adds an extra fits the way the program was installed."""

import sys

import pytest

from hypervisor.core.extras import install_command


@pytest.mark.parametrize(
    "marker, command",
    [
        ("pyvenv.cfg", "pip install 'hypervisor-queue[cluster]'"),
        ("pipx_metadata.json", "pipx install --force 'hypervisor-queue[cluster]'"),
        ("uv-receipt.toml", "uv tool install 'hypervisor-queue[cluster]'"),
    ],
)
def test_by_what_made_the_environment(tmp_path, monkeypatch, marker, command):
    (tmp_path / marker).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_command("cluster") == command


def test_in_a_checkout_with_a_space_in_its_name(tmp_path, monkeypatch):
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    (tmp_path / "checkout").symlink_to(checkout)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_command("notify") == f"sh '{checkout}/scripts/venv.sh' notify"
