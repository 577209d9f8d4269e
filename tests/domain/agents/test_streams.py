"""Each parser on every stream that was recorded with the real programs."""

import pytest

from hypervisor.domain.agents.builtin import BUILTIN
from hypervisor.domain.agents.heard import Heard, Tokens
from hypervisor.domain.agents.judging import judge
from hypervisor.domain.agents.streams import with_usage
from tests.domain.agents.expected import EXPECTED, Expected
from tests.domain.agents.samples import NAMES, sample

# What the server dealt out is what the stream told: runs that came to a good end.
WHOLE = ("success", "blocked", "structured", "nothing-done", "dead-mcp", "max-turns")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_heard(name):
    found = sample(name)
    heard = found.heard()
    outcome = judge(heard, found.ended, None, codes=BUILTIN[found.agent].codes)
    trouble = heard.trouble
    assert name in EXPECTED, "a new sample: say in expected.py what is to be heard in it"
    assert EXPECTED[name] == Expected(
        outcome.name, heard.tokens, heard.cost and round(heard.cost, 6), heard.tools,
        heard.denied, heard.mcp, trouble and trouble.kind, trouble and trouble.status,
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_session_is_named_as_soon_as_the_stream_does(name):
    found = sample(name)
    heard = found.heard()
    if heard.trouble is not None and heard.trouble.kind == "resume":
        assert heard.session == ""
        return
    lines = [line for line in found.lines if heard.session and heard.session in line]
    assert bool(heard.session) == bool(lines)
    if lines:
        hear_until = found._replace(lines=found.lines[: found.lines.index(lines[0]) + 1])
        assert found.agent == "copilot" or hear_until.heard().session == heard.session


@pytest.mark.parametrize("name", [n for n in NAMES if n.split("/")[1] in WHOLE])
def test_tokens_are_what_the_server_dealt_out(name):
    found = sample(name)
    heard = found.heard()
    if found.agent == "copilot":
        assert heard.tokens == Tokens()
        import json

        heard = with_usage("copilot", heard, json.dumps(found.head["usage_file"], indent=2))
    assert tuple(heard.tokens) == found.dealt


@pytest.mark.parametrize("name", NAMES)
def test_heard_in_the_middle_of_any_line(name):
    """A killed program leaves half a line; nothing that was heard before is lost by it."""
    found = sample(name)
    for cut in (1, len(found.lines) // 2, len(found.lines)):
        half = [*found.lines[: cut - 1], found.lines[cut - 1][:-7]] if found.lines else []
        heard = found._replace(lines=half).heard()
        whole = found._replace(lines=found.lines[: max(cut - 1, 0)]).heard()
        assert heard.session == whole.session and heard.tokens == whole.tokens


def test_a_resumed_run_tells_its_own_tokens():
    before = Heard(before=Tokens(3000, 60, 0), cost_before=0.0132)
    assert sample("codex/resume").heard(before).tokens == Tokens(1000, 20, 0)
    assert sample("claude/resume").heard(before).tokens == Tokens(1000, 20, 0)
    assert sample("claude/resume").heard(before).cost == pytest.approx(0.0044)
    assert sample("gemini/resume").heard(before).tokens == Tokens(1000, 20, 0)
    qwen = sample("qwen/resume")
    total = qwen.heard().tokens
    assert qwen.heard(before).tokens == Tokens(total.input - 3000, total.output - 60, 0)
    copilot = sample("copilot/resume")
    import json

    usage = json.dumps(copilot.head["usage_file"])
    assert with_usage("copilot", copilot.heard(before), usage).tokens == Tokens(1000, 20, 0)


def test_a_limit_is_seen_while_the_agent_still_tries():
    """… so that it can be stopped at once."""
    for name in ("claude/http-429", "codex/http-429", "gemini/http-429", "copilot/http-429"):
        found = sample(name)
        seen = []
        for number in range(len(found.lines)):
            heard = found._replace(lines=found.lines[: number + 1]).heard()
            if heard.trouble is not None:
                seen.append(heard.trouble)
        assert seen[0].kind == "quota" and seen[0].retrying, name
        assert seen[-1].kind == "quota" and not seen[-1].retrying, name


def test_trouble_that_was_overcome_is_forgotten():
    for agent in ("claude", "codex", "gemini", "copilot", "opencode", "qwen"):
        assert sample(f"{agent}/http-429-once").heard().trouble is None
    assert sample("codex/dropped-once").heard().trouble is None


def test_when_a_limit_ends():
    from hypervisor.domain.agents.braking import reset_of

    now = 1_763_000_000_000
    told = sample("gemini/usage-limit").heard().trouble
    assert told is not None and reset_of(told, now) == now + 2_500
    told = sample("codex/usage-limit").heard().trouble
    assert told is not None and reset_of(told, now) is not None
    told = sample("opencode/http-429").heard().trouble
    assert told is not None and reset_of(told, now) == now + 2_000


def test_claude_tells_when_a_limit_ends():
    """From its documentation; no provider here sends it."""
    from hypervisor.domain.agents.streams.claude import hear

    line = (
        '{"type":"rate_limit_event","rate_limit_info":'
        '{"status":"%s","resetsAt":1763000000,"rateLimitType":"five_hour"}}'
    )
    assert hear(Heard(), line % "allowed_warning").trouble is None
    told = hear(Heard(), line % "rejected").trouble
    assert told is not None and (told.kind, told.reset_at) == ("quota", 1_763_000_000_000)
    refused = (
        '{"type":"assistant","is_api_error_message":true,"api_error_status":429,'
        '"message":{"content":[{"type":"text","text":"You\'ve hit your limit"}]}}'
    )
    kept = hear(hear(Heard(), line % "rejected"), refused).trouble
    assert kept is not None and (kept.status, kept.reset_at) == (429, 1_763_000_000_000)


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "qwen"])
def test_one_that_goes_on_after_its_last_word_has_not_ended(agent):
    found = sample(f"{agent}/success")
    twice = found._replace(lines=found.lines * 2)
    assert twice.heard().ended
    assert not twice._replace(lines=twice.lines[:-1]).heard().ended


# Recorded one by one: what a refusal looks like where the samples have none.
REFUSALS = [
    ("codex", "complete_task",
     '{"type":"item.completed","item":{"id":"item_1","type":"mcp_tool_call","server":"hypervisor",'
     '"tool":"complete_task","arguments":{"summary":"s"},"result":null,"error":{"message":'
     '"MCP tool call requires approval, but approval policy is never"},"status":"failed"}}'),
    ("opencode", "bash",
     '{"type":"tool_use","sessionID":"ses_1","part":{"type":"tool","tool":"bash","callID":"c",'
     '"state":{"status":"error","input":{"command":"touch x"},"error":"The user has specified a '
     'rule which prevents you from using this specific tool call. Here are some …"}}}'),
    ("opencode", "bash",
     '{"type":"tool_use","sessionID":"ses_1","part":{"type":"tool","tool":"bash","callID":"c",'
     '"state":{"status":"error","input":{"command":"touch x"},"error":"The user rejected '
     'permission to use this specific tool call."}}}'),
]  # fmt: skip


@pytest.mark.parametrize("agent, tool, line", REFUSALS)
def test_refusals(agent, tool, line):
    from hypervisor.domain.agents.streams import hearing

    heard = hearing(agent)(Heard(), line)
    assert (heard.denied, heard.tools) == ((tool,), 0)


def test_what_came_from_the_cache_is_counted_once():
    """The last line of a run that read 600 tokens anew and 400 from the cache, and wrote 20."""
    from hypervisor.domain.agents.streams import hearing

    told = {
        "codex": '{"type":"turn.completed","usage":{"input_tokens":1000,"cached_input_tokens":400,'
        '"cache_write_input_tokens":0,"output_tokens":20,"reasoning_output_tokens":0}}',
        "gemini": '{"type":"result","status":"success","stats":{"total_tokens":1020,'
        '"input_tokens":1000,"output_tokens":20,"cached":400,"input":600}}',
        "qwen": '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"usage":'
        '{"input_tokens":1000,"output_tokens":20,"cache_read_input_tokens":400}}',
        "claude": '{"type":"result","subtype":"success","is_error":false,"usage":'
        '{"input_tokens":500,"cache_creation_input_tokens":100,"cache_read_input_tokens":400,'
        '"output_tokens":20}}',
        "opencode": '{"type":"step_finish","part":{"reason":"stop","cost":0,"tokens":'
        '{"input":600,"output":20,"reasoning":0,"cache":{"write":0,"read":400}}}}',
    }
    for agent, line in told.items():
        assert hearing(agent)(Heard(), line).tokens == Tokens(600, 20, 400), agent
    usage = (
        '{"modelMetrics":{"m":{"usage":{"inputTokens":1000,"outputTokens":20,'
        '"cacheReadTokens":400,"cacheWriteTokens":0}}}}'
    )
    assert with_usage("copilot", Heard(), usage).tokens == Tokens(600, 20, 400)
