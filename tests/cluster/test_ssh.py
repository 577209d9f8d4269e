"""Hosts over ssh: a stand-in on PATH runs what the real one would run on the host."""

from __future__ import annotations

import os

import pytest

from hypervisor.cluster.ssh_launcher import SshLauncher
from hypervisor.core.errors import InvalidInput

STORE = "postgresql://hv:secret@db.example.org/work?sslmode=verify-full"
SSH = """#!/bin/sh
# Options up to --, then the destination and the command, which a shell runs as ssh's does.
printf '%s\\n' "$*" >> "$SEEN/arguments"
while [ "$1" != -- ]; do shift; done
[ "$2" != unreachable ] || { echo "ssh: connect to host unreachable: timed out" >&2; exit 255; }
exec sh -c "$3"
"""
HV = """#!/bin/sh
printf '%s\\n' "$*" "$HYPERVISOR_STORE" "$HV_LAUNCHER" > "$SEEN/hv"
echo "Welcome to this host"
echo '{"supervisor": 4711}'
"""


@pytest.fixture
def seen(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("ssh", SSH), ("hv", HV)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("SEEN", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_supervisor_is_started_and_the_url_is_in_no_argument(seen):
    launcher = SshLauncher(STORE, ["ada@build1"])
    launcher.start("ada@build1")
    assert launcher.look("ada@build1") == ("ada@build1", "ada@build1", 4711, "")
    words, store, launched_by = (seen / "hv").read_text().splitlines()
    assert words == "supervise --detach --stay --json"
    assert (store, launched_by) == (STORE, "ssh:ada@build1")
    assert "secret" not in (seen / "arguments").read_text()


def test_a_host_that_cannot_be_reached_says_why(seen):
    launcher = SshLauncher(STORE, ["unreachable"])
    launcher.start("unreachable")
    look = launcher.look("unreachable")
    assert look is not None and look.supervisor is None and "timed out" in look.trouble


@pytest.mark.parametrize("host", ["", "-oProxyCommand=evil", "a b"])
def test_a_host_cannot_be_an_option(host):
    with pytest.raises(InvalidInput, match="invalid host"):
        SshLauncher(STORE, [host])
