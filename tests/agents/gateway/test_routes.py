"""Which agents go through the gateway, and what they are given instead of a key."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from hypervisor.agents.agent_settings import AgentSettings
from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.config import profiles_from
from hypervisor.agents.gateway.access import Access, call_way
from hypervisor.agents.gateway.login_files import CODEX
from hypervisor.agents.gateway.opencode_route import AUTH, CONFIG
from hypervisor.agents.gateway.route import Upstream, route_of, wire_of
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
    "copilot": {
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_PROVIDER_BASE_URL": "https://x/v1",
        "GH_TOKEN": KEY,
        "GITHUB_TOKEN": KEY,
        "COPILOT_GITHUB_TOKEN": KEY,
    },
    "opencode": {"OPENAI_API_KEY": KEY, "OPENROUTER_API_KEY": KEY},
}
DIRECT = {
    "claude": {"CLAUDE_CODE_OAUTH_TOKEN": KEY},
    "codex": {},
    "gemini": {"GEMINI_API_KEY": KEY, "GOOGLE_GENAI_USE_VERTEXAI": "true"},
    "qwen": {"DASHSCOPE_API_KEY": KEY},
    "copilot": {"GH_TOKEN": KEY},
    "opencode": {},
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
    assert any(TOKEN in text for text in launch.env.values()) and TOKEN not in launch.argv
    for path in route.upstreams:
        assert any(f"http://127.0.0.1:7/{path}" in text for text in given)
    assert launch.env["NO_PROXY"] == "127.0.0.1", "a proxy could not reach it"
    assert {TOKEN, KEY} <= launch.secrets, "both are hidden in its output"


@pytest.mark.parametrize("agent", ENVS)
def test_over_acp_an_agent_is_given_a_token_and_never_the_key(tmp_path, agent):
    """And leaves none in a file that a later attempt would read."""
    table = {"like": agent, "stream": "acp", "argv": ["--acp"]}
    profile = profiles_from({"mine": table})["mine"]
    env = {**ENVS[agent], "HOME": str(tmp_path / "user")}
    home = AgentHomes(str(tmp_path)).prepare("t1")
    setup = AgentSetup(profile, AgentSpec("mine"), "/", env, McpAccess("store.db", "b"))
    route = route_of(profile, env)
    assert route is not None
    launch = prepare_launch(setup, home, Prompt("x"), Access(route, "http://127.0.0.1:7", TOKEN))
    files = [path for path in (tmp_path / "agents").rglob("*") if path.is_file()]
    given = [*launch.argv, *launch.env.values(), *(path.read_text() for path in files)]
    assert not [text for text in given if KEY in text]
    assert any(TOKEN in text for text in launch.env.values())
    assert not [path for path in files if TOKEN in path.read_text()]
    for path in route.upstreams:
        assert any(f"http://127.0.0.1:7/{path}" in text for text in given)


def test_the_bridge_of_codex_is_led_to_the_gateway_and_saves_no_key(tmp_path):
    """Its variable with configuration would come before the file in its home."""
    config = {"openai_base_url": "https://proxy.example.org/v1", "model_verbosity": "low"}
    own = {"CODEX_CONFIG": json.dumps(config)}
    table = {"like": "codex", "stream": "acp", "argv": ["acp"], "env": own}
    profile = profiles_from({"mine": table})["mine"]
    route = route_of(profile, {"OPENAI_API_KEY": KEY})
    assert route is not None
    assert route.upstreams["openai"].address == "https://proxy.example.org/v1"
    env = {"OPENAI_API_KEY": KEY}
    home = AgentHomes(str(tmp_path)).prepare("t1")
    setup = AgentSetup(profile, AgentSpec("mine"), "/", env, McpAccess("store.db", "b"))
    launch = prepare_launch(setup, home, Prompt("x"), Access(route, "http://127.0.0.1:7", TOKEN))
    assert json.loads(launch.env["CODEX_CONFIG"]) == {"model_verbosity": "low"}
    written = tomllib.loads((Path(home.home) / ".codex/config.toml").read_text())
    assert written["openai_base_url"] == "http://127.0.0.1:7/openai"
    assert written["cli_auth_credentials_store"] == "ephemeral"
    assert "OPENAI_API_KEY" in written["shell_environment_policy"]["exclude"]


def test_a_provider_of_its_own_leads_the_bridge_of_codex_past_the_gateway():
    own = {"CODEX_CONFIG": '{"model_provider": "mine"}'}
    table = {"like": "codex", "stream": "acp", "argv": ["acp"], "env": own}
    assert route_of(profiles_from({"mine": table})["mine"], {"OPENAI_API_KEY": KEY}) is None


def test_an_address_in_config_toml_does_not_lead_past_the_gateway(tmp_path):
    profile = BUILTIN["claude"]._replace(env={"ANTHROPIC_BASE_URL": "https://proxy.example.org/"})
    route = route_of(profile, {"ANTHROPIC_API_KEY": KEY})
    assert route is not None
    assert route.upstreams["anthropic"].address == "https://proxy.example.org"
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
    way = call_way(BUILTIN["claude"], settings, env, AgentSpec("claude", gateway=spec))
    assert way.calls == calls


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


def user_home(folder: Path, **files: object) -> dict[str, str]:
    """The environment of a user with these files: opencode's configuration and logins."""
    names = {"config": CONFIG, "auth": AUTH, "codex": CODEX}
    for name, content in files.items():
        path = folder / names[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return {"HOME": str(folder)}


OWN_PROVIDER = """{
  // the house's own model
  "model": "house/big",
  "provider": {"house": {
    "npm": "@ai-sdk/openai-compatible",
    "options": {
      "baseURL": "https://models.example.org/v1/", "apiKey": "{env:HOUSE_KEY}", "timeout": 5,
      "headers": {"X-Team": "{file:team}"},
    },
    "models": {"big": {"name": "Big // one"}},
  }},
}"""


def test_opencode_keeps_its_own_provider_without_its_key(tmp_path):
    env = user_home(tmp_path, config=OWN_PROVIDER) | {"HOUSE_KEY": KEY}
    (tmp_path / CONFIG).with_name("team").write_text("blue\n")
    route = route_of(BUILTIN["opencode"], env)
    assert route is not None
    assert route.upstreams == {
        "opencode.house": Upstream("https://models.example.org/v1", (("x-team", "blue"),), KEY)
    }
    config = json.loads(route.env(env, "http://gw", TOKEN)["OPENCODE_CONFIG_CONTENT"])
    assert config["model"] == "house/big" and config["enabled_providers"] == ["house"]
    assert config["provider"]["house"] == {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": "http://gw/opencode.house", "apiKey": TOKEN, "timeout": 5},
        "models": {"big": {"name": "Big // one"}},
    }


SAVED = {"type": "api", "key": KEY}
OAUTH = {"type": "oauth", "refresh": "r", "access": "a", "expires": 1}


@pytest.mark.parametrize(
    ("auth", "model", "providers"),
    [
        ({"anthropic": SAVED}, "", ["anthropic"]),
        ({"anthropic": SAVED}, "anthropic/claude-x", ["anthropic"]),
        ({"anthropic": OAUTH}, "", None),
        ({"anthropic": OAUTH, "openai": SAVED}, "", None),  # it may use either
        ({"anthropic": OAUTH, "openai": SAVED}, "openai/gpt-x", ["openai"]),
        ({"anthropic": OAUTH, "openai": SAVED}, "anthropic/claude-x", None),
        ({"groq": SAVED}, "", None),  # where it is, only opencode knows
        ("not JSON", "", None),
    ],
)
def test_opencode_uses_a_key_only_if_its_model_does(tmp_path, auth, model, providers):
    route = route_of(BUILTIN["opencode"], user_home(tmp_path, auth=auth), model)
    paths = [f"opencode.{name}" for name in providers] if providers else None
    assert (list(route.upstreams) if route else None) == paths


@pytest.mark.parametrize(
    ("login", "env", "key"),
    [
        ({"tokens": {"id_token": "x"}}, {"OPENAI_API_KEY": KEY}, ""),  # meant for other programs
        ({"tokens": {"id_token": "x"}}, {"CODEX_API_KEY": KEY}, KEY),
        ({"OPENAI_API_KEY": KEY, "tokens": None}, {}, KEY),
        ({}, {"OPENAI_API_KEY": KEY}, KEY),
    ],
)
def test_a_subscription_of_codex_is_not_replaced_by_a_key(tmp_path, login, env, key):
    env = user_home(tmp_path, codex=login) | env
    route = route_of(BUILTIN["codex"], env)
    assert (route.secrets if route else frozenset()) == ({key} if key else frozenset())
    if not key:
        assert call_way(BUILTIN["codex"], AgentSettings(), env).calls == "login"


def test_what_turned_it_off_is_named():
    claude, env = BUILTIN["claude"], {"ANTHROPIC_API_KEY": KEY}
    off = AgentSettings(gateway=False)
    ways = [
        call_way(claude, AgentSettings(), env),
        call_way(claude, off, env),
        call_way(claude._replace(gateway=False), AgentSettings(), env),
        call_way(claude, AgentSettings(), env, AgentSpec("claude", gateway=False)),
        call_way(claude, AgentSettings(), {}),
    ]
    assert [str(way) for way in ways] == [
        "through the gateway, which keeps the key",
        "direct: with your key ([gateway] enabled = false in config.toml)",
        "direct: with your key (gateway = false in its table of config.toml)",
        "direct: with your key (--no-gateway)",
        "direct: with its own login: a subscription has no key for the gateway to keep",
    ]
