"""Each parser on every stream that was recorded with the real programs."""

import json

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


@pytest.mark.parametrize("name", NAMES)
def test_the_closing_word(name):
    found = sample(name)
    heard, scenario, code = found.heard(), name.split("/")[1], found.head["exit"]
    if code is None or "sigterm" in scenario:
        assert (heard.ended, heard.ok) == (False, None), "it was killed"
    elif code == 0:
        assert heard.ended and heard.ok == (name != "gemini/error-in-stream")
    else:
        assert not heard.ok
        assert heard.ended or scenario in ("bad-resume", "dead-mcp", "max-turns")


TURNS = {"success": 3, "http-429-once": 3, "blocked": 1, "nothing-done": 1, "resume": 1,
         "sigterm-waiting": 1}  # fmt: skip


@pytest.mark.parametrize("scenario", TURNS)
@pytest.mark.parametrize("agent", ["claude", "codex", "copilot", "gemini", "opencode", "qwen"])
def test_turns_are_answers_of_the_model(agent, scenario):
    heard = sample(f"{agent}/{scenario}").heard()
    assert heard.turns == (1 if agent == "codex" else TURNS[scenario])  # codex tells its own


@pytest.mark.parametrize("agent", ["claude", "codex", "copilot", "gemini", "opencode", "qwen"])
def test_what_it_is_doing_names_the_command(agent):
    heard = sample(f"{agent}/sigterm-waiting").heard()
    assert " " in heard.now and "echo hello" in heard.now


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
    for given, reset in (("1763000000000", 1_763_000_000_000), ("0", None)):
        told = hear(Heard(), (line % "rejected").replace("1763000000", given)).trouble
        assert told is not None and told.reset_at == reset
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


def test_claude_tells_what_it_does_and_waits_for():
    from hypervisor.domain.agents.streams.claude import hear

    def after(*lines):
        heard = Heard()
        for line in lines:
            heard = hear(heard, line)
        return heard

    use = (
        '{"type":"assistant","message":{"id":"%s","usage":{"input_tokens":5,"output_tokens":1},'
        '"content":[{"type":"tool_use","name":"Edit","input":{"%s":"a.py"}}]}}'
    )
    for name in ("command", "file_path", "path"):
        assert after(use % ("m", name)).now == "Edit a.py"
    assert after(use % ("m", "path"), use % ("m", "path"))[1:4] == (Tokens(5, 1), None, 1)
    assert after(use % ("", "path"), use % ("", "path"))[1:4] == (Tokens(10, 2), None, 2)
    denied = '{"type":"%s","subtype":"%s","tool_name":"Bash"}'
    assert after(denied % ("system", "permission_denied")).denied == ("Bash",)
    assert after(denied % ("system", "notice")).denied == ()
    retry = '{"type":"system","subtype":"api_retry","error":"e","attempt":2,%s"retry_delay_ms":%d}'
    told = after(retry % ('"error_status":503,', 700)).trouble
    assert told is not None and (told.status, told.retry_after, told.retrying) == (503, 700, True)
    cut = after(retry % ("", 0)).trouble
    assert cut is not None and cut[0] == "network" and (cut.status, cut.retry_after) == (None, None)
    assert "(try 2)" in cut.text


def test_figures_of_several_models_are_added_up():
    from hypervisor.domain.agents.streams.claude import hear

    model = {"cacheCreationInputTokens": 1, "outputTokens": 2, "cacheReadInputTokens": 3}
    used = {"a": {**model, "inputTokens": 10, "costUSD": 0.5}, "b": {**model, "inputTokens": 20}}
    line = json.dumps({"type": "result", "model_usage_since_last_result": used})
    heard = hear(Heard(turns=4), line)
    assert (heard.tokens, heard.cost, heard.turns) == (Tokens(32, 4, 6), 0.5, 4)
    total = '{"type":"result","is_error":false,"total_cost_usd":%s,"num_turns":7}'
    resumed = Heard(cost_before=0.5, tokens=Tokens(1))
    assert hear(resumed, total % "0.75")[1:4] == (Tokens(1), 0.25, 7)
    assert hear(resumed, total % "0.25").cost == 0.0, "never less than nothing"


def test_a_session_that_is_not_there_is_told_in_plain_words_too():
    from hypervisor.domain.agents.streams.claude import NO_SESSION, hear

    told = hear(Heard(), f"{NO_SESSION}: x").trouble
    assert told is not None and told.kind == "resume"
    earlier = Heard(trouble=told._replace(kind="quota"))
    assert hear(earlier, f"{NO_SESSION}: x") == earlier
    assert hear(Heard(), "any other line") == Heard()
