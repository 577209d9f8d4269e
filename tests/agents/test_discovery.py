"""Finding the real program behind what npm installed."""

from __future__ import annotations

import json
import os
import platform

import pytest

from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.discovery import MACHINES, find, locate
from hypervisor.agents.profile import AgentProfile

KIND = f"{platform.system().lower()}-{MACHINES.get(platform.machine().lower(), 'x')}"


def program(path, script="echo 1.2.3"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def package(folder, name):
    folder.mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"name": name}))


def given(tmp_path, **more):
    return {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": str(tmp_path), **more}


def test_version_and_path(tmp_path):
    path = program(tmp_path / "bin" / "codex")
    assert find(AgentProfile("x", "codex"), given(tmp_path)) == (path, "1.2.3", "")


def test_a_program_of_ones_own_is_not_run_for_its_version(tmp_path):
    path = program(tmp_path / "bin" / "deploy", f"touch {tmp_path}/ran; echo deployed")
    assert find(AgentProfile("x", "deploy"), given(tmp_path)) == (path, "", "")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("script", ["echo hello", "true"])
def test_an_answer_without_a_version_is_not_believed(tmp_path, script):
    program(tmp_path / "bin" / "claude", script)
    found = find(AgentProfile("x", "claude"), given(tmp_path))
    assert found.version == "" and "--version did not print a version" in found.problem


def test_what_is_not_there(tmp_path):
    found = find(AgentProfile("x", "no-such-thing"), given(tmp_path))
    assert found.path == "" and "no-such-thing is not on PATH" in found.problem


@pytest.mark.parametrize(
    "script, said", [("exit 3", "exit code 3"), ("echo Too old >&2; exit 1", "Too old")]
)
def test_what_does_not_work(tmp_path, script, said):
    program(tmp_path / "bin" / "codex", script)
    found = find(AgentProfile("x", "codex"), given(tmp_path))
    assert found.path and found.problem == f"--version failed: {said}"


def test_what_cannot_be_started_or_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setattr("hypervisor.agents.discovery.VERSION_PATIENCE", 0.1)
    program(tmp_path / "bin" / "codex", "exec sleep 60")
    assert "did not answer" in find(AgentProfile("x", "codex"), given(tmp_path)).problem
    (tmp_path / "bin" / "qwen").write_text("#!/no/such/shell\n")
    (tmp_path / "bin" / "qwen").chmod(0o755)
    assert "cannot be started" in find(AgentProfile("x", "qwen"), given(tmp_path)).problem


@pytest.mark.parametrize("inner", ["", "bin", "vendor/some-target/bin"])
def test_the_native_program_behind_a_script(tmp_path, inner):
    modules = tmp_path / "node_modules" / "@maker"
    package(modules / "tool", "@maker/tool")
    script = modules / "tool" / "bin" / "tool.js"
    program(script)
    native = program(modules / f"tool-{KIND}" / inner / "tool")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tool").symlink_to(script)
    assert locate(AgentProfile("x", "tool"), given(tmp_path)) == native
    os.chmod(native, 0o644)
    assert locate(AgentProfile("x", "tool"), given(tmp_path)) == str(tmp_path / "bin" / "tool")


def test_a_script_without_a_native_program_is_used_itself(tmp_path):
    package(tmp_path / "pkg", "tool")
    program(tmp_path / "pkg" / "cli.js")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tool").symlink_to(tmp_path / "pkg" / "cli.js")
    assert locate(AgentProfile("x", "tool"), given(tmp_path)) == str(tmp_path / "bin" / "tool")


def test_neither_key_nor_login(tmp_path):
    profile = BUILTIN["claude"]._replace(program=program(tmp_path / "bin" / "claude"))
    assert "not logged in" in find(profile, given(tmp_path)).problem
    assert find(profile, given(tmp_path, ANTHROPIC_API_KEY="k")).problem == ""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / ".credentials.json").write_text("{}")
    assert find(profile, given(tmp_path)).problem == ""


def test_one_of_several_ways_in_is_enough(tmp_path):
    path = program(tmp_path / "bin" / "thing")

    def problem(**more):
        return find(AgentProfile("x", path, **more), given(tmp_path)).problem

    assert problem() == ""
    assert problem(keys=("MY_KEY", "OTHER")) == "no key: set MY_KEY or OTHER"
    assert "log in" in problem(login=(".a", ".b")) and "set" not in problem(login=(".a", ".b"))
    (tmp_path / ".b").write_text("")
    assert problem(login=(".a", ".b")) == problem(login=(".a", ".b"), keys=("MY_KEY",)) == ""
