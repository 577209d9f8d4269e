"""Which agents go through the gateway, and what they are given instead of a key."""

from __future__ import annotations

import pytest

from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.config import AgentSettings
from hypervisor.agents.gateway.access import Access, calls_of
from hypervisor.agents.gateway.route import route_of, wire_of
from hypervisor.agents.homes import AgentHomes
from hypervisor.agents.mcp_config import McpAccess
from hypervisor.agents.setup import AgentSetup, Prompt, prepare_launch
from hypervisor.runs.spec import AgentSpec

KEY = "sk-planted-1f00d5"
TOKEN = "hvg-000000000000-0123456789abcdef0123456789abcdef01234567"
ENVS = {
    "claude": {"ANTHROPIC_API_KEY": KEY, "CLAUDE_CODE_OAUTH_TOKEN": KEY},
    "codex": {"OPENAI_API_KEY": KEY, "CODEX_API_KEY": KEY},
    "gemini": {"GEMINI_API_KEY": KEY, "GOOGLE_API_KEY": KEY},
    "qwen": {"OPENAI_API_KEY": KEY, "DASHSCOPE_API_KEY": KEY},
    "copilot": {"COPILOT_PROVIDER_API_KEY": KEY, "COPILOT_PROVIDER_BASE_URL": "https://x/v1"},
}
DIRECT = {
    "claude": {"CLAUDE_CODE_OAUTH_TOKEN": KEY},
    "codex": {},
    "gemini": {"GEMINI_API_KEY": KEY, "GOOGLE_GENAI_USE_VERTEXAI": "true"},
    "qwen": {"DASHSCOPE_API_KEY": KEY},
    "copilot": {"GH_TOKEN": KEY},
    "opencode": {"OPENAI_API_KEY": KEY},
}


@pytest.mark.parametrize("agent", ENVS)
def test_an_agent_is_given_a_token_and_never_the_key(tmp_path, agent):
    """Neither in its environment nor in its arguments nor in a file of its home."""
    login = tmp_path / "user" / (BUILTIN[agent].login[0])
    login.parent.mkdir(parents=True)
    login.write_text('{"token": "a-login-of-the-user"}')
    env = {**ENVS[agent], "HOME": str(tmp_path / "user"), "HTTPS_PROXY": "http://proxy:3128"}
    home = AgentHomes(str(tmp_path)).prepare("t1")
    setup = AgentSetup(BUILTIN[agent], AgentSpec(agent), "/", env, McpAccess("store.db", "b"))
    route = route_of(BUILTIN[agent], env)
    assert route is not None
    launch = prepare_launch(
        setup, home, Prompt("do it"), Access(route, "http://127.0.0.1:7", TOKEN)
    )
    files = [path for path in (tmp_path / "agents").rglob("*") if path.is_file()]
    given = [*launch.argv, *launch.env.values(), *(path.read_text() for path in files)]
    assert not [text for text in given if KEY in text or "a-login-of-the-user" in text]
    assert TOKEN in launch.env.values() and TOKEN not in launch.argv
    assert any(f"http://127.0.0.1:7/{route.path}" in text for text in given)
    assert launch.env["NO_PROXY"] == "127.0.0.1", "a proxy could not reach it"
    assert {TOKEN, KEY} <= launch.secrets, "both are hidden in its output"


def test_an_address_in_config_toml_does_not_lead_past_the_gateway(tmp_path):
    profile = BUILTIN["claude"]._replace(env={"ANTHROPIC_BASE_URL": "https://proxy.example.org/"})
    route = route_of(profile, {"ANTHROPIC_API_KEY": KEY})
    assert route is not None and route.upstream == "https://proxy.example.org"
    home = AgentHomes(str(tmp_path)).prepare("t1")
    env = {"ANTHROPIC_API_KEY": KEY}
    setup = AgentSetup(profile, AgentSpec("claude"), "/", env, McpAccess("store.db", "b"))
    launch = prepare_launch(setup, home, Prompt("x"), Access(route, "http://127.0.0.1:7", TOKEN))
    assert launch.env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:7/anthropic"


@pytest.mark.parametrize("agent", DIRECT)
def test_a_login_and_unknown_keys_stay_with_the_program(agent):
    assert route_of(BUILTIN[agent], DIRECT[agent]) is None


@pytest.mark.parametrize(
    ("env", "wanted", "spec", "calls"),
    [
        ({"ANTHROPIC_API_KEY": KEY}, True, None, "gateway"),
        ({"ANTHROPIC_API_KEY": KEY}, False, None, "key"),
        ({"ANTHROPIC_API_KEY": KEY}, False, True, "gateway"),
        ({"ANTHROPIC_API_KEY": KEY}, True, False, "key"),
        ({}, True, True, "login"),
    ],
)
def test_the_run_decides_before_the_configuration(env, wanted, spec, calls):
    settings = AgentSettings(gateway=wanted)
    shown = calls_of(BUILTIN["claude"], settings, env, AgentSpec("claude", gateway=spec))
    assert shown == calls


@pytest.mark.parametrize(
    ("method", "path", "wire"),
    [
        ("POST", "/v1/messages", "messages"),
        ("POST", "/v1/messages/count_tokens", ""),
        ("POST", "/responses", "responses"),
        ("POST", "/chat/completions", "chat"),
        ("POST", "/v1beta/models/m:streamGenerateContent", "gemini"),
        ("GET", "/models", ""),
        ("GET", "/v1/models/m", ""),
        ("POST", "/v1/messages/batches", None),
        ("POST", "/files", None),
        ("DELETE", "/v1/models/m", None),
        ("POST", "/x/../v1/messages", None),
    ],
)
def test_only_what_can_be_counted_is_passed_on(method, path, wire):
    assert wire_of(method, path) == wire
