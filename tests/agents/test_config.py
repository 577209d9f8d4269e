"""The tables of config.toml about agents."""

import tomllib

import pytest

from hypervisor.agents.agent_settings import AgentSettings
from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.config import MAX_AGENTS, agent_settings_from
from hypervisor.agents.profile import AgentProfile, Price
from hypervisor.agents.routing import Route
from hypervisor.core.errors import InvalidInput
from hypervisor.core.validate import MAX_NAMES
from hypervisor.runs.spec import PERMISSIONS

CLAUDE = BUILTIN["claude"]

ALL = """
[agents.claude]
model = "opus"
workers = 3
memory = "1G"

[agents.mine]
program = "/opt/mine"
stream = "text"
argv = ["run", "--file={prompt}", "{pick}", "{turns}"]
resume = ["go-on", "{session}", "{prompt}"]
prompt = "argument"
env = { NO_UPDATES = "1" }
passes = ["MINE_URL"]
keys = ["MINE_KEY"]
login = [".mine/auth.json"]
mcp = ["--mcp", "{value}"]
allow = ["--allow", "{value}"]
turns = ["--turns", "{value}"]
budget = ["--money", "{value}"]
schema = ["--schema", "{file}"]
usage = ["--usage", "{value}"]
pick = ["--model", "{value}"]
provider = "mine"
capabilities = ["browser"]
grace = "5s"
sandbox = "network"
own_sandbox = "its own"
hosts = ["api.mine.example"]
install = "get it"
price = { input = 1.0, output = 2.5 }
permissions = { full = ["--all"] }
codes = { 53 = "turns" }

[agents.reviewer]
like = "mine2"

[agents.mine2]
like = "claude"
permissions = { edit = ["--some"] }

[[routing]]
agent = "mine"
types = ["fix"]
tags = "python"

[[routing]]
agent = ["claude", "codex"]
complexity = ["complex"]
requires = ["mcp"]
pick = "cheapest"

[budget]
day = 12.5
day_tokens = 5000000

[prices.codex]
input = 1
output = 8
cached = 0.1
"""


def test_everything_that_can_be_said():
    settings = agent_settings_from(tomllib.loads(ALL))
    assert set(settings.profiles) == {*BUILTIN, "mine", "mine2", "reviewer"}
    claude = settings.profiles["claude"]
    assert claude == CLAUDE._replace(model="opus", workers=3, memory=1 << 30)
    mine = settings.profiles["mine"]
    assert (mine.program, mine.stream, mine.prompt, mine.grace) == (
        "/opt/mine",
        "text",
        "argument",
        5.0,
    )
    assert mine.passes == ("MINE_URL", "MINE_KEY") and mine.keys == ("MINE_KEY",)
    assert mine.env == {"NO_UPDATES": "1"} and mine.permissions == {"full": ("--all",)}
    assert mine.codes == {53: "turns"} and mine.price == Price(1.0, 2.5)
    assert mine.login == (".mine/auth.json",) and mine.memory == AgentProfile("", "").memory
    assert not mine.verified
    assert settings.routes == (
        Route(("mine",), ("fix",), ("python",)),
        Route(("claude", "codex"), (), (), ("complex",), ("mcp",), "cheapest"),
    )
    assert (settings.day_budget, settings.day_tokens) == (12_500_000, 5_000_000)
    assert settings.prices == {"codex": Price(1, 8, 0.1)}


def test_a_profile_like_another():
    agents = agent_settings_from(tomllib.loads(ALL)).profiles
    assert agents["reviewer"].argv == agents["mine2"].argv == CLAUDE.argv
    assert agents["mine2"].permissions["edit"] == ("--some",)
    assert agents["mine2"].permissions["full"] == CLAUDE.permissions["full"]
    assert agents["claude"].verified and not agents["mine2"].verified
    assert agents["reviewer"].model == "opus"  # like the user's claude, not the built-in one


def test_what_is_just_within_bounds():
    words = {mode: ["--" + mode] for mode in PERMISSIONS}
    mine = {
        "argv": ["x{promt}y"],
        "permissions": words,
        "grace": "600s",
        "like": "mine",
        "codes": {"1": "turns", "255": "auth"},
    }
    tables = {f"a{n}": MINE for n in range(MAX_AGENTS - 2)} | {"agy": {"model": "m"}}
    agents = agent_settings_from({"agents": {**tables, "mine": {**mine, "like": "agy"}}}).profiles
    found = agents["mine"]
    assert (found.grace, found.codes) == (600.0, {1: "turns", 255: "auth"})
    assert found.argv == ("x{promt}y",), "it is no placeholder as a whole"
    assert found.permissions == {mode: ("--" + mode,) for mode in PERMISSIONS}
    assert not agents["agy"].verified, "what no test has run is not verified by a new model"
    itself = agent_settings_from({"agents": {"claude": {"like": "claude", "model": "m"}}}).profiles
    assert itself["claude"] == CLAUDE._replace(model="m")


def test_argv_may_be_left_out():
    told = {
        "claude": {"workers": 3},
        "reviewer": {"like": "claude"},
        "reads": {"program": "m"},
        "takes": {"program": "m", "prompt": "argument"},
    }
    agents = agent_settings_from({"agents": told}).profiles
    assert agents["claude"].argv == agents["reviewer"].argv == CLAUDE.argv
    assert (agents["reads"].argv, agents["reads"].prompt) == ((), "stdin")
    assert (agents["takes"].argv, agents["takes"].prompt) == (("{prompt}",), "argument")


def test_nothing_said_is_the_built_in_ones():
    assert (
        agent_settings_from({}).profiles == BUILTIN == agent_settings_from({"agents": {}}).profiles
    )
    assert agent_settings_from({"budget": {}}) == AgentSettings()


MINE = {"argv": ["x"]}
WRONG = [
    ({"agents": 5}, "agents must be tables, as in [agents.NAME]."),
    ({"agents": {"x": 5}}, "agents.x must be a table, as in [agents.x]."),
    ({"agents": {"x": {"arg": []}}}, "unknown key agents.x.arg; did you mean agents.x.argv?"),
    ({"agents": {"a b": MINE}}, "agents.a b: an agent's name has letters"),
    ({"agents": {"auto": MINE}}, "agents.auto: an agent's name has letters"),
    ({"agents": {"x": {"like": "claud"}}}, "unknown agent 'claud'; did you mean claude?"),
    ({"agents": {"x": {"like": "y"}, "y": {"like": "x"}}}, "agents.x.like refers back to itself."),
    (
        {"agents": {"cluade": {"workers": 2}}},
        "unknown agent 'cluade'; did you mean claude? A new one n",
    ),
    ({"agents": {f"a{n}": {} for n in range(101)}}, "agents: 101 tables (maximum 100)."),
    ({"agents": {"x": {"like": ["claude"]}}}, "agents.x.like must be text"),
    ({"agents": {"x": {"argv": "go"}}}, "agents.x.argv must be a list of words"),
    ({"agents": {"x": {"argv": ["a"] * (MAX_NAMES + 1)}}}, "agents.x.argv must be a list of"),
    ({"agents": {"x": {"argv": ["{promt}"]}}}, "unknown placeholder {promt}; use one of"),
    ({"agents": {"x": {"argv": ["{prompt}"]}}}, 'has {prompt}, so prompt must be "argument".'),
    ({"agents": {"x": {"argv": [], "prompt": "argument"}}}, "agents.x.argv has no {prompt}."),
    ({"agents": {"x": {**MINE, "resume": ["go"]}}}, "agents.x.resume has no {session}."),
    ({"agents": {"x": {**MINE, "stream": "xml"}}}, "agents.x.stream must be one of claude, codex"),
    ({"agents": {"x": {**MINE, "env": {"A": 1}}}}, "agents.x.env must be a table of texts"),
    ({"agents": {"x": {**MINE, "env": {"A": "a", "B": 1}}}}, "agents.x.env must be a table of"),
    ({"agents": {"x": {**MINE, "env": {"A B": "1"}}}}, "agents.x.env must be a table of texts, as"),
    ({"agents": {"x": {**MINE, "env": {"A": "a\0"}}}}, 'of texts, as in {NO_UPDATES = "1"}.'),
    ({"agents": {"x": {**MINE, "env": 5}}}, "agents.x.env must be a table of texts, as in {N"),
    ({"agents": {"x": {**MINE, "keys": ["A B"]}}}, "agents.x.keys must be names of environment"),
    ({"agents": {"x": {**MINE, "keys": ["A", "A B"]}}}, "agents.x.keys must be names of"),
    ({"agents": {"x": {**MINE, "login": ["a", "/x"]}}}, "agents.x.login must be paths"),
    ({"agents": {"x": {**MINE, "login": [""]}}}, "agents.x.login must be paths below the home"),
    ({"agents": {"x": {**MINE, "permissions": 5}}}, "x.permissions must be a table of lists for"),
    ({"agents": {"x": {**MINE, "codes": 5}}}, "agents.x.codes must be exit codes"),
    ({"agents": {"x": {**MINE, "codes": {"0": "turns"}}}}, "agents.x.codes must be exit"),
    ({"agents": {"x": {**MINE, "codes": {"256": "turns"}}}}, "agents.x.codes must be"),
    ({"agents": {"x": {**MINE, "codes": {"x": "turns"}}}}, "x.codes must be exit codes with"),
    ({"agents": {"x": {**MINE, "codes": {"1": "auth", "2": "x"}}}}, "x.codes must be exit codes"),
    ({"agents": {"x": {**MINE, "login": ["/etc/x"]}}}, "agents.x.login must be paths below"),
    ({"agents": {"x": {**MINE, "login": ["../x"]}}}, "agents.x.login must be paths below"),
    ({"agents": {"x": {**MINE, "permissions": {"all": []}}}}, "for read-only, edit, full"),
    ({"agents": {"x": {**MINE, "workers": 0}}}, "agents.x.workers must be a whole number between"),
    ({"agents": {"x": {**MINE, "grace": "1h"}}}, "agents.x.grace must be at most 600 s."),
    ({"agents": {"x": {**MINE, "price": {"input": 1}}}}, "agents.x.price must be a table with"),
    ({"agents": {"x": {**MINE, "codes": {"53": "x"}}}}, "agents.x.codes must be exit codes with"),
    ({"routing": {}}, "routing must be a list of tables, as in [[routing]]."),
    ({"routing": [{}]}, "routing[1].agent is missing"),
    ({"routing": [{"agent": "clod"}]}, "routing[1].agent: unknown agent 'clod'"),
    ({"routing": [{"agent": 5}]}, "routing[1].agent must be an agent or a list of them"),
    ({"routing": [{"agent": ["claude", 5]}]}, "routing[1].agent must be an agent or a list"),
    ({"routing": [{"agent": "claude", "type": "x"}]}, "did you mean routing[1].types?"),
    ({"routing": [{"agent": "claude", "pick": "best"}]}, "must be one of first, cheapest."),
    ({"budget": {"day": -1}}, "budget.day must be a number between 0 and 1,000,000."),
    ({"budget": {"day": "5"}}, "budget.day must be a number"),
    ({"budget": {"day_tokens": 1.5}}, "budget.day_tokens must be a whole number"),
    ({"prices": {"x": {"output": 1}}}, "prices.x must be a table with the price of a million"),
]


@pytest.mark.parametrize("config, message", WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_is_named(config, message):
    with pytest.raises(InvalidInput) as error:
        agent_settings_from(config)
    assert message in str(error.value)
