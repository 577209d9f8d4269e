"""Which agent gets which task."""

import pytest

from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.profile import Price
from hypervisor.agents.routing import DEFAULTS, Route, lacking, route
from hypervisor.queue.task import NewTask

CLAUDE, CODEX, GEMINI = BUILTIN["claude"], BUILTIN["codex"], BUILTIN["gemini"]


def task(type="task", requires=(), **data):
    return NewTask("t", type=type, requires=requires, data=data or None)


FOUNDING = [
    (task("mechanical"), "gemini"),
    (task("judgement"), "claude"),
    (task(tags=["mechanical"]), "gemini"),
    (task(tags="#judgement, other"), "claude"),
    (task(columns={"complexity": "Simple"}), "gemini"),
    (task(columns={"complexity": "complex", "tags": ["x"]}), "claude"),
    (task("mechanical", columns={"complexity": "complex"}), "claude"),
    (task(tags="judgement", columns={"tags": "mechanical"}), "claude"),
    (task(tags=[1, "mechanical"]), "gemini"),
    (task("anything"), "codex"),
    (task(tags={"odd": 1}, complexity=5), "codex"),
]


@pytest.mark.parametrize("given, agent", FOUNDING)
def test_mechanical_work_is_cheap_and_judgement_strong(given, agent):
    assert route(given, DEFAULTS, "codex") == agent


def test_the_first_rule_that_fits():
    rules = (
        Route(("codex",), types=("fix", "test"), tags=("python",)),
        Route(("gemini",), types=("fix",)),
        Route(("qwen",), requires=("browser",)),
        *DEFAULTS,
    )
    assert route(task("fix", tags=["python"]), rules, "claude") == "codex"
    assert route(task("fix"), rules, "claude") == "gemini"
    assert route(task(requires=("browser",)), rules, "claude") == "qwen"
    assert route(task("other"), rules, "claude") == "claude"
    assert route(task("fix"), (Route(("opencode",)),), "claude") == "opencode"


def test_only_agents_that_are_here_and_able():
    here = {"claude": CLAUDE, "codex": CODEX._replace(capabilities=("agent", "browser"))}
    assert route(task("mechanical"), DEFAULTS, "claude", here) == "codex"
    assert route(task("mechanical", ("mcp",)), DEFAULTS, "claude", here) == "claude"
    assert route(task("judgement", ("browser",)), DEFAULTS, "claude", here) == "codex"
    assert route(task("x", ("browser",)), (), "claude", here) == "codex"
    assert route(task("x", ("gpu",)), DEFAULTS, "claude", here) == ""
    assert route(task("x", ("gpu",)), DEFAULTS, "claude", here, has=("gpu",)) == "claude"
    assert route(task("x", ("agent:codex",)), DEFAULTS, "claude", here) == "codex"


def test_the_cheapest():
    rule = (Route(("claude", "codex", "gemini"), pick="cheapest"),)
    here = {"claude": CLAUDE, "codex": CODEX, "gemini": GEMINI._replace(price=None)}
    assert route(task(), rule, "claude", here) == "codex"
    prices = {"gemini": Price(0.1, 0.4)}
    assert route(task(), rule, "claude", here, prices=prices) == "gemini"
    assert route(task(), rule, "claude", prices=prices) == "gemini"
    assert route(task(), rule, "claude", {"claude": CLAUDE}) == "claude"


def test_what_nobody_can_do():
    assert lacking(task(requires=("gpu", "mcp")), BUILTIN.values()) == ("gpu",)
    assert lacking(task(requires=("gpu",)), BUILTIN.values(), has=("gpu",)) == ()
    assert lacking(task(requires=("gpu",)), ()) == ("gpu",)
    assert lacking(task(), BUILTIN.values()) == ()
