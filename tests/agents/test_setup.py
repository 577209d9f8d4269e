"""What an agent's run gets: arguments, environment, files; and nothing of the user's."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.homes import AgentHomes, link_login
from hypervisor.agents.mcp_config import McpAccess
from hypervisor.agents.profile import AgentProfile, account_of
from hypervisor.agents.secrets import HIDDEN, TokenHider
from hypervisor.agents.setup import AgentSetup, Prompt, add_file_usage, prepare_launch, secrets_of
from hypervisor.agents.stream_state import StreamState
from hypervisor.core.errors import InvalidInput
from hypervisor.queue.agent_session import Tokens
from hypervisor.runs.spec import AgentSpec

TOKEN = "1q22pqqjp2tt.1.x7k2"
ACCESS = McpAccess("/p/.hypervisor/store.db", "batch1", TOKEN, mark=("HV_ATTEMPT", "t.1"))
GIVEN = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/me",
    "LC_ALL": "C",
    "SECRET": "no",
    "TERM": "xterm",
    "ANTHROPIC_API_KEY": "sk-0123456789",
    "OPENAI_API_KEY": "sk-9876543210",
    "GEMINI_API_KEY": "g-0123456789",
    "XDG_RUNTIME_DIR": "/run/me",
    "https_proxy": "http://p:1",
}


@pytest.fixture
def home(tmp_path):
    return AgentHomes(str(tmp_path)).prepare("task1")


def ready(name, home, **spec):
    how = AgentSpec(name, permissions=spec.pop("permissions", "full"), **spec)
    setup = AgentSetup(BUILTIN[name], how, "/project", GIVEN, ACCESS, schema='{"type":"object"}')
    return prepare_launch(setup, home, Prompt("do it"))


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode", "qwen", "copilot"])
def test_only_its_own_variables_and_no_secret_among_the_words(name, home):
    prepared = ready(name, home)
    assert prepared.env["HOME"] == home.home and prepared.env["TMPDIR"] == home.tmp
    assert "SECRET" not in prepared.env and prepared.env["https_proxy"] == "http://p:1"
    words = " ".join(prepared.argv)
    assert TOKEN not in words and "sk-" not in words and "g-0123456789" not in words
    assert prepared.stdin == b"do it" or "do it" in prepared.argv
    foreign = {"claude": "OPENAI_API_KEY", "codex": "ANTHROPIC_API_KEY"}.get(name)
    assert foreign not in prepared.env


def test_it_finds_the_users_login(home, tmp_path):
    login = tmp_path / "me" / ".claude" / ".credentials.json"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    spec = AgentSpec("claude", permissions="full")
    given = {**GIVEN, "HOME": str(tmp_path / "me")}
    prepare_launch(
        AgentSetup(BUILTIN["claude"], spec, "/project", given, ACCESS), home, Prompt("do it")
    )
    assert os.path.samefile(f"{home.home}/.claude/.credentials.json", login)


def test_its_server_knows_the_marks_of_its_secrets_and_the_program_is_the_one_that_was_found(home):
    _, entry = servers("claude", home)
    assert (
        TokenHider(entry["env"]["HV_HIDE"]).clean(f"a {GIVEN['ANTHROPIC_API_KEY']}")
        == f"a {HIDDEN}"
    )
    spec = AgentSpec("claude", permissions="full")
    unknown = AgentSetup(BUILTIN["claude"], spec, "/project", GIVEN, ACCESS)
    found = unknown._replace(program="/opt/claude")
    launches = [prepare_launch(setup, home, Prompt("do it")) for setup in (unknown, found)]
    assert [launch.argv[0] for launch in launches] == ["claude", "/opt/claude"]


def servers(name, home):
    """Our server, as each program reads it."""
    prepared = ready(name, home)
    if name == "codex":
        path = os.path.join(prepared.env["CODEX_HOME"], "config.toml")
        with open(path, "rb") as file:
            return path, tomllib.load(file)["mcp_servers"]["hypervisor"]
    path = {
        "gemini": f"{home.home}/.gemini/settings.json",
        "qwen": f"{home.home}/.qwen/settings.json",
        "opencode": prepared.env.get("OPENCODE_CONFIG", ""),
    }.get(name) or f"{home.home}/mcp.json"
    with open(path) as file:
        read = json.load(file)
    return path, (read["mcp"] if name == "opencode" else read["mcpServers"])["hypervisor"]


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode", "qwen", "copilot"])
def test_it_gets_our_server_with_the_claim(name, home):
    path, entry = servers(name, home)
    assert os.stat(path).st_mode & 0o777 == 0o600
    env = entry["environment" if name == "opencode" else "env"]
    assert env["HV_TOKEN"] == TOKEN and env["HV_BATCH"] == "batch1"
    assert env["HYPERVISOR_STORE"] == "/p/.hypervisor/store.db"
    assert env["HV_ATTEMPT"] == "t.1" and env["XDG_RUNTIME_DIR"] == "/run/me"
    assert not any("KEY" in each for each in env)
    words = entry["command"] if name == "opencode" else [entry["command"], *entry["args"]]
    assert words[-3:] == ["mcp", "--tools", "worker"]


def test_what_each_program_needs_beside(home):
    assert servers("claude", home)[1]["alwaysLoad"] is True
    codex = servers("codex", home)[1]
    assert codex["required"] is True and codex["default_tools_approval_mode"] == "approve"
    assert servers("gemini", home)[1]["trust"] is True
    with open(servers("qwen", home)[0]) as file:
        assert json.load(file)["tools"]["toolSearch"]["enabled"] is False


def test_codex_keeps_its_key_to_itself(home):
    """Neither the commands it runs nor a file of its home gets the environment with the key."""
    with open(servers("codex", home)[0], "rb") as file:
        config = tomllib.load(file)
    assert config["shell_environment_policy"]["exclude"] == list(BUILTIN["codex"].keys)
    assert config["features"]["shell_snapshot"] is False


def test_the_server_starts_without_path_and_home(home):
    _, entry = servers("claude", home)
    words = [entry["command"], *entry["args"][:-3], "--version"]
    ended = subprocess.run(words, env={}, cwd="/", capture_output=True, timeout=180)
    assert ended.returncode == 0, ended


def test_a_keeper_tells_whose_the_claims_are():
    access = McpAccess("s", "b", keeper_pid=7, keeper_name="w", pull=3, capabilities=("x", "y"))
    assert access.env({}) == {
        "HYPERVISOR_STORE": "s",
        "HV_BATCH": "b",
        "HV_KEEPER_PID": "7",
        "HV_KEEPER_NAME": "w",
        "HV_PULL": "3",
        "HV_CAPABILITIES": "x,y",
    }


def test_a_mode_that_it_does_not_have_is_refused(home):
    with pytest.raises(InvalidInput, match="no permission mode read-only"):
        ready("agy", home, permissions="read-only")


def test_opencode_is_told_what_it_may_do(home):
    for mode, edits, commands in (
        ("read-only", "deny", "deny"),
        ("edit", "allow", "deny"),
        ("full", "allow", "allow"),
    ):
        prepared = ready("opencode", home, permissions=mode)
        with open(prepared.env["OPENCODE_CONFIG"]) as file:
            rules = json.load(file)["permission"]
        assert (rules["edit"], rules["bash"]) == (edits, commands)


def test_a_prompt_that_is_too_long_for_an_argument_is_refused(home):
    profile = AgentProfile("x", "x", argv=("{prompt}",), prompt="argument")
    with pytest.raises(InvalidInput, match="too long"):
        setup = AgentSetup(profile, AgentSpec("x"), "/", GIVEN, ACCESS)
        prepare_launch(setup, home, Prompt("y" * 200_000))


def test_the_secrets_that_it_can_see():
    given = {**GIVEN, "http_proxy": "http://me:hush-hush@p:1", "PGPASSWORD": "pg-secret"}
    access = ACCESS._replace(store="postgresql://u:store-secret@h/db")
    found = secrets_of(BUILTIN["claude"], given, access)
    assert {"sk-0123456789", "hush-hush", "pg-secret", "store-secret"} <= found
    assert "http://p:1" not in found and "sk-9876543210" not in found


def test_accounts_are_told_apart_by_their_keys():
    claude = BUILTIN["claude"]
    one, other = account_of(claude, GIVEN), account_of(claude, {"ANTHROPIC_API_KEY": "another"})
    assert one.startswith("anthropic:") and one != other
    assert "sk-0123456789" not in one
    assert account_of(claude, {}) == "anthropic:login"
    assert account_of(AgentProfile("mine", "mine"), {}) == "mine:login"


def test_a_home_is_private_and_can_be_made_again(tmp_path):
    homes = AgentHomes(str(tmp_path))
    home = homes.prepare("task1")
    assert os.stat(home.root).st_mode & 0o777 == 0o700
    for folder in (home.home, home.tmp):
        with open(os.path.join(folder, "file"), "w") as file:
            file.write("kept?")
    homes.prepare("task1")
    assert os.listdir(home.home) == ["file"] and os.listdir(home.tmp) == []
    assert homes.exists("task1") and list(homes.all()) == ["task1"]
    os.chmod(home.home, 0o500)
    homes.remove("task1")
    homes.remove("task1")
    assert not homes.exists("task1") and list(homes.all()) == []
    for name in ("../x", "a/b", "", "."):
        with pytest.raises(InvalidInput):
            homes.at(name)


def test_of_a_login_there_are_only_links(tmp_path):
    user, home = tmp_path / "user", tmp_path / "home"
    (user / ".x").mkdir(parents=True)
    (user / ".x" / "login.json").write_text("mine")
    home.mkdir()
    names = [".x/login.json", ".x/none.json", "../secret", "/etc/passwd"]
    assert link_login(str(home), str(user), names) == [".x/login.json"]
    assert link_login(str(home), str(user), names) == [".x/login.json"]
    assert (home / ".x" / "login.json").is_symlink()
    homes = AgentHomes(str(tmp_path))
    made = homes.prepare("t")
    link_login(made.home, str(user), names)
    homes.remove("t")
    assert (user / ".x" / "login.json").read_text() == "mine"
    assert link_login(str(home), "", names) == []


def test_what_a_login_holds_is_secret_too(tmp_path):
    login = {
        "oauth": {"accessToken": "at-0123456789", "expires": 1, "scopes": ["read-all-of-it"]},
        "apiKey": "ak-0123456789",
        "name": "my own name",
    }
    (tmp_path / "login.json").write_text(json.dumps(login))
    (tmp_path / "broken.json").write_text("{")
    profile = AgentProfile("x", "x", login=("login.json", "broken.json", "none.json"))
    assert secrets_of(profile, {"HOME": str(tmp_path)}) == {"at-0123456789", "ak-0123456789"}


def test_what_an_agent_put_into_its_home_leads_nowhere(home, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("untouched")
    os.symlink(mine, f"{home.home}/mcp.json.new")
    os.mkfifo(f"{home.home}/report-schema.json")
    os.mkdir(f"{home.home}/mcp.json")
    ready("claude", home)
    assert mine.read_text() == "untouched"
    for name in ("mcp.json", "report-schema.json"):
        assert json.loads(Path(home.home, name).read_text()), "ours, and no pipe"


def test_tokens_that_are_reported_in_a_file_only(home):
    copilot, before = BUILTIN["copilot"], StreamState("s-1")
    old = {"modelMetrics": {"m": {"usage": {"inputTokens": 9, "outputTokens": 9}}}}
    path = f"{home.home}/usage.json"
    with open(path, "w") as file:
        json.dump(old, file)
    argv = ready("copilot", home).argv
    assert argv[argv.index("--usage-output-file") + 1] == path
    assert add_file_usage(copilot, home, before) == before, (
        "an earlier attempt's are not this one's"
    )
    with open(path, "w") as file:
        json.dump(
            {
                "modelMetrics": {
                    "m": {"usage": {"inputTokens": 70, "outputTokens": 5, "cacheReadTokens": 30}}
                }
            },
            file,
            indent=2,
        )
    assert add_file_usage(copilot, home, before).tokens == Tokens(40, 5, 30)
    os.unlink(path)
    os.mkfifo(path)
    assert add_file_usage(copilot, home, before) == before
    assert add_file_usage(BUILTIN["claude"], home, before) == before


def test_another_address_is_for_codex_alone(home):
    given = {**GIVEN, "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    for name in ("codex", "claude"):
        spec = AgentSpec(name, permissions="full")
        prepare_launch(
            AgentSetup(BUILTIN[name], spec, "/project", given, ACCESS), home, Prompt("do it")
        )
    with open(f"{home.home}/.codex/config.toml", "rb") as file:
        assert tomllib.load(file)["openai_base_url"] == given["OPENAI_BASE_URL"]
    with open(f"{home.home}/mcp.json") as file:
        assert set(json.load(file)) == {"mcpServers"}
