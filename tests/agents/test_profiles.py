"""The built-in agents and their command lines."""

import pytest

from hypervisor.agents import builtin_profiles
from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.command_line import LaunchOptions, arguments, money
from hypervisor.agents.config import _check_words
from hypervisor.agents.profile import STREAMS, AgentProfile
from hypervisor.agents.streams import parser
from hypervisor.runs.spec import PERMISSIONS

CLAUDE = BUILTIN["claude"]
CODEX = BUILTIN["codex"]
COPILOT = BUILTIN["copilot"]
GEMINI = BUILTIN["gemini"]
QWEN = BUILTIN["qwen"]

REAL = ("claude", "codex", "gemini", "opencode", "qwen", "copilot")


def test_all_that_are_promised():
    assert set(REAL) <= set(BUILTIN)
    assert {name for name, each in BUILTIN.items() if each.verified} == set(REAL)
    assert not BUILTIN["agy"].verified and not BUILTIN["cursor-agent"].verified


@pytest.mark.parametrize("profile", BUILTIN.values(), ids=list(BUILTIN))
def test_each_is_whole(profile):
    _check_words(profile.name, profile)
    assert profile.stream in STREAMS and callable(parser(profile.stream))
    assert set(profile.keys) <= set(profile.passes)
    assert set(profile.permissions) <= set(PERMISSIONS)
    assert profile.provider and profile.install and profile.memory > 100 * builtin_profiles.MIB
    assert profile.prompt == "stdin"
    if profile.name in REAL:
        assert profile.resume
        assert profile.name == "opencode" or set(profile.permissions) == set(PERMISSIONS)


@pytest.mark.parametrize("profile", BUILTIN.values(), ids=list(BUILTIN))
def test_nothing_claims_a_sandbox_or_skips_checks_unless_all_is_allowed(profile):
    for mode in ("read-only", "edit"):
        said = arguments(profile, LaunchOptions(permissions=mode))
        for wrong in (
            "--dangerously-skip-permissions",
            "bypassPermissions",
            "--yolo",
            "yolo",
            "--force",
            "danger-full-access",
            "--allow-all",
            "--allow-all-tools",
        ):
            assert not any(wrong == word or wrong in word.split("=") for word in said)
    assert "IS_SANDBOX" not in profile.env


def test_claude_fresh_and_resumed():
    asked = LaunchOptions(
        "p",
        permissions="full",
        allow=("Bash(git *)", "WebFetch"),
        mcp="/m.json",
        model="opus",
        turns=5,
        budget=500_000,
        schema='{"a":1}',
    )
    found = arguments(CLAUDE, asked)
    assert found[:6] == [
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--setting-sources",
        "",
    ]
    assert tuple(found[6:9]) == ("--mcp-config", "/m.json", "--strict-mcp-config")
    assert found[-10:] == [
        "--allowedTools=Bash(git *)",
        "--allowedTools=WebFetch",
        "--max-turns",
        "5",
        "--max-budget-usd",
        "0.5",
        "--json-schema",
        '{"a":1}',
        "--model",
        "opus",
    ]
    assert arguments(CLAUDE, asked._replace(session="u"))[-2:] == ["--resume", "u"]
    assert "--resume" not in found and "p" not in found


def test_nothing_asked_for_is_not_a_word():
    assert arguments(GEMINI, LaunchOptions(permissions="read-only")) == [
        "-o",
        "stream-json",
        "--skip-trust",
        "--approval-mode",
        "default",
    ]


def test_codex_resumes_with_its_sandbox():
    found = arguments(CODEX, LaunchOptions(session="u", schema="{}", schema_file="/s.json"))
    assert found == [
        "exec",
        "resume",
        "--json",
        "--skip-git-repo-check",
        "-c",
        "sandbox_mode=workspace-write",
        "-c",
        "sandbox_workspace_write.exclude_slash_tmp=true",
        "--output-schema",
        "/s.json",
        "u",
        "-",
    ]


def test_words_that_hold_a_placeholder():
    assert arguments(COPILOT, LaunchOptions(session="u"))[-1] == "--resume=u"
    assert "@/s.json" in arguments(QWEN, LaunchOptions(schema="{}", schema_file="/s.json"))
    assert arguments(COPILOT, LaunchOptions(usage="/u.json"))[-2:] == [
        "--usage-output-file",
        "/u.json",
    ]


def test_what_is_put_in_is_not_looked_at_again():
    mine = AgentProfile("x", "x", argv=("--say={prompt}", "{prompt}", "{pick}"), pick=("{value}",))
    assert arguments(mine, LaunchOptions("{session} {prompt}", model="{prompt}")) == [
        "--say={session} {prompt}",
        "{session} {prompt}",
        "{prompt}",
    ]


def test_a_session_that_cannot_be_resumed_starts_over():
    mine = AgentProfile("x", "x", argv=("go",))
    assert arguments(mine, LaunchOptions(session="u")) == ["go"]


@pytest.mark.parametrize(
    "micros, text", [(1_000_000, "1"), (500_000, "0.5"), (1, "0.000001"), (0, "0")]
)
def test_money_for_programs(micros, text):
    assert money(micros) == text


def test_the_model_of_the_attempt_comes_before_the_profiles():
    mine = GEMINI._replace(model="big")
    assert arguments(mine, LaunchOptions())[-2:] == ["-m", "big"]
    assert arguments(mine, LaunchOptions(model="small"))[-2:] == ["-m", "small"]
