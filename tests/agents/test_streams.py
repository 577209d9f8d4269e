"""Each parser on every stream that was recorded with the real programs."""

import json

import pytest

from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.classify import classify
from hypervisor.agents.cooldown import reset_of
from hypervisor.agents.stream_errors import stream_error
from hypervisor.agents.stream_state import StreamState
from hypervisor.agents.streams import with_usage
from hypervisor.agents.streams.claude import NO_SESSION
from hypervisor.queue.agent_session import Tokens
from hypervisor.queue.attempt import Ended
from tests.agents.expected import EXPECTED, Expected
from tests.agents.samples import NAMES, sample, state_after

# The tokens in the stream are those of the server: successful runs.
WHOLE = ("success", "blocked", "structured", "nothing-done", "dead-mcp", "max-turns")


@pytest.mark.parametrize("name", NAMES)
def test_the_state_at_the_end(name):
    found = sample(name)
    state = found.state()
    outcome = classify(state, found.ended, None, codes=BUILTIN[found.agent].codes)
    met = state.error
    assert name in EXPECTED, "a new sample: add it to expected.py"
    assert EXPECTED[name] == Expected(
        outcome.name,
        state.tokens,
        state.cost and round(state.cost, 6),
        state.tools,
        state.denied,
        state.mcp,
        met and met.kind,
        met and met.status,
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_session_is_named_as_soon_as_the_stream_does(name):
    found = sample(name)
    state = found.state()
    if state.error is not None and state.error.kind == "resume":
        assert state.session == ""
        return
    lines = [line for line in found.lines if state.session and state.session in line]
    assert bool(state.session) == bool(lines)
    if lines:
        until = found._replace(lines=found.lines[: found.lines.index(lines[0]) + 1])
        assert found.agent == "copilot" or until.state().session == state.session


@pytest.mark.parametrize("name", [n for n in NAMES if n.split("/")[1] in WHOLE])
def test_tokens_are_what_the_server_dealt_out(name):
    found = sample(name)
    state = found.state()
    if found.agent == "copilot":
        assert state.tokens == Tokens()
        state = with_usage("copilot", state, json.dumps(found.head["usage_file"], indent=2))
    assert tuple(state.tokens) == found.dealt


@pytest.mark.parametrize("name", NAMES)
def test_half_a_line_loses_nothing(name):
    """A killed program leaves an incomplete line; nothing parsed before is lost."""
    found = sample(name)
    for cut in (1, len(found.lines) // 2, len(found.lines)):
        half = [*found.lines[: cut - 1], found.lines[cut - 1][:-7]] if found.lines else []
        state = found._replace(lines=half).state()
        whole = found._replace(lines=found.lines[: max(cut - 1, 0)]).state()
        assert state.session == whole.session and state.tokens == whole.tokens


@pytest.mark.parametrize("name", NAMES)
def test_the_closing_word(name):
    found = sample(name)
    state, scenario, code = found.state(), name.split("/")[1], found.head["exit"]
    if code is None or "sigterm" in scenario:
        assert (state.ended, state.ok) == (False, None), "it was killed"
    elif code == 0:
        assert state.ended and state.ok == (name != "gemini/error-in-stream")
    else:
        assert not state.ok
        assert state.ended or scenario in ("bad-resume", "dead-mcp", "max-turns")


TURNS = {
    "success": 3,
    "http-429-once": 3,
    "blocked": 1,
    "nothing-done": 1,
    "resume": 1,
    "sigterm-waiting": 1,
}


@pytest.mark.parametrize("scenario", TURNS)
@pytest.mark.parametrize("agent", ["claude", "codex", "copilot", "gemini", "opencode", "qwen"])
def test_turns_are_answers_of_the_model(agent, scenario):
    state = sample(f"{agent}/{scenario}").state()
    assert state.turns == (1 if agent == "codex" else TURNS[scenario])  # codex reports its own


@pytest.mark.parametrize("agent", ["claude", "codex", "copilot", "gemini", "opencode", "qwen"])
def test_what_it_is_doing_names_the_command(agent):
    state = sample(f"{agent}/sigterm-waiting").state()
    assert " " in state.activity and "echo hello" in state.activity


def test_a_resumed_run_tells_its_own_tokens():
    before = StreamState(tokens_before=Tokens(3000, 60, 0), cost_before=0.0132)
    assert sample("codex/resume").state(before).tokens == Tokens(1000, 20, 0)
    assert sample("claude/resume").state(before).tokens == Tokens(1000, 20, 0)
    assert sample("claude/resume").state(before).cost == pytest.approx(0.0044)
    assert sample("gemini/resume").state(before).tokens == Tokens(1000, 20, 0)
    qwen = sample("qwen/resume")
    total = qwen.state().tokens
    assert qwen.state(before).tokens == Tokens(total.input - 3000, total.output - 60, 0)
    copilot = sample("copilot/resume")
    usage = json.dumps(copilot.head["usage_file"])
    assert with_usage("copilot", copilot.state(before), usage).tokens == Tokens(1000, 20, 0)


def test_a_limit_is_seen_while_the_agent_still_tries():
    """… so that it can be stopped at once."""
    for name in ("claude/http-429", "codex/http-429", "gemini/http-429", "copilot/http-429"):
        found = sample(name)
        seen = []
        for number in range(len(found.lines)):
            state = found._replace(lines=found.lines[: number + 1]).state()
            if state.error is not None:
                seen.append(state.error)
        assert seen[0].kind == "quota" and seen[0].retrying, name
        assert seen[-1].kind == "quota" and not seen[-1].retrying, name


def test_an_outage_is_seen_while_the_agent_still_tries():
    for name in ("claude/down", "codex/down", "gemini/down"):
        found = sample(name)
        state = StreamState()
        for number in range(len(found.lines)):
            state = found._replace(lines=found.lines[: number + 1]).state()
            if state.error is not None:
                break
        assert state.error is not None and state.error.kind == "network", name
        assert state.error.retrying, name


def retried(status, attempt, delay):
    """What claude prints before it retries."""
    event = {
        "type": "system",
        "subtype": "api_retry",
        "attempt": attempt,
        "retry_delay_ms": delay,
        "error_status": status,
        "error": "rate_limit",
    }
    return state_after("claude", StreamState(), json.dumps(event)).error


def test_a_short_retry_after_is_told_from_the_programs_own_pause():
    now = 1_763_000_000_000
    assert reset_of(retried(429, 1, 5_000), now) == now + 5_000
    assert reset_of(retried(429, 1, 561), now) is None
    assert reset_of(retried(429, 3, 2_356), now) is None


def failed_with(header):
    """What opencode prints about a refused request."""
    data = {"message": "Rate limit", "statusCode": 429, "responseHeaders": {"retry-after": header}}
    event = {"type": "error", "error": {"name": "APIError", "data": data}}
    return state_after("opencode", StreamState(), json.dumps(event)).error


def test_a_retry_after_is_followed_in_seconds_and_as_a_date():
    now = 1_794_906_000_000  # 2026-11-17 09:00:00
    assert reset_of(failed_with("12"), now) == now + 12_000
    assert reset_of(failed_with("Tue, 17 Nov 2026 09:10:00 GMT"), now) == now + 600_000
    assert reset_of(failed_with("Tue, 17 Nov 2026 08:10:00 GMT"), now) == now + 1_000
    assert reset_of(failed_with("soon"), now) is None


def test_a_refused_request_has_its_own_status():
    """codex reports a 400 only by its body; an earlier 404 was about something else."""
    said = json.dumps({"error": {"message": "invalid: HTTP 404 expected", "type": "x"}})
    before = {"type": "error", "message": "Reconnecting... 1/5 (unexpected status 404 Not Found)"}
    state = StreamState()
    for event in (before, {"type": "turn.failed", "error": {"message": said}}):
        state = state_after("codex", state, json.dumps(event))
    assert state.error is not None
    assert (state.error.status, state.error.text) == (400, "invalid: HTTP 404 expected")


@pytest.mark.parametrize(
    "status, words, kind",
    [
        (402, "Payment Required", "billing"),
        (400, "Your credit balance is too low to access the API", "billing"),
        (None, "Quota exceeded. Check your plan and billing details.", "billing"),
        (429, "You exceeded your current quota, check your plan and billing details", "quota"),
        (403, "Your plan does not include this model", "access"),
        (403, "invalid api key", "auth"),
        (None, "Your plan does not include this model", "access"),
        (None, "getaddrinfo ENOTFOUND api.example.com", "network"),
        (None, "failed to lookup address information: Name does not resolve", "network"),
    ],
)
def test_kinds_of_errors(status, words, kind):
    assert stream_error(words, status).kind == kind


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_the_last_line_of_a_long_answer_is_kept(agent):
    text = "word " * (1 << 20) + "\nBLOCKED: no key"
    event = {
        "claude": {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}},
        "codex": {"type": "item.completed", "item": {"type": "agent_message", "text": text}},
        "gemini": {"type": "message", "role": "assistant", "content": text, "delta": True},
    }[agent]
    state = state_after(agent, StreamState(), json.dumps(event))
    assert classify(state, Ended(0, None, 0.0, 0), None)[:3] == ("blocked", "block", "no key")


def test_an_error_that_was_overcome_is_forgotten():
    for agent in ("claude", "codex", "gemini", "copilot", "opencode", "qwen"):
        assert sample(f"{agent}/http-429-once").state().error is None
    assert sample("codex/dropped-once").state().error is None


def test_when_a_limit_ends():
    now = 1_763_000_000_000
    told = sample("gemini/usage-limit").state().error
    assert told is not None and reset_of(told, now) == now + 2_500
    told = sample("codex/usage-limit").state().error
    assert told is not None and reset_of(told, now) is not None
    told = sample("opencode/http-429").state().error
    assert told is not None and reset_of(told, now) == now + 2_000


def test_claude_reports_when_a_limit_ends():
    """From its documentation; the scripted provider does not send it."""
    line = (
        '{"type":"rate_limit_event","rate_limit_info":'
        '{"status":"%s","resetsAt":1763000000,"rateLimitType":"five_hour"}}'
    )
    assert state_after("claude", StreamState(), line % "allowed_warning").error is None
    told = state_after("claude", StreamState(), line % "rejected").error
    assert told is not None and (told.kind, told.reset_at) == ("quota", 1_763_000_000_000)
    for given, reset in (("1763000000000", 1_763_000_000_000), ("0", None)):
        told = state_after(
            "claude", StreamState(), (line % "rejected").replace("1763000000", given)
        ).error
        assert told is not None and told.reset_at == reset
    refused = (
        '{"type":"assistant","is_api_error_message":true,"api_error_status":429,'
        '"message":{"content":[{"type":"text","text":"You\'ve hit your limit"}]}}'
    )
    kept = state_after(
        "claude", state_after("claude", StreamState(), line % "rejected"), refused
    ).error
    assert kept is not None and (kept.status, kept.reset_at) == (429, 1_763_000_000_000)


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "qwen"])
def test_one_that_continues_after_its_last_word_has_not_ended(agent):
    found = sample(f"{agent}/success")
    twice = found._replace(lines=found.lines * 2)
    assert twice.state().ended
    assert not twice._replace(lines=twice.lines[:-1]).state().ended


# Recorded separately: refusals that the samples do not contain.
REFUSALS = [
    (
        "codex",
        "complete_task",
        '{"type":"item.completed","item":{"id":"item_1","type":"mcp_tool_call","server":"hypervisor",'
        '"tool":"complete_task","arguments":{"summary":"s"},"result":null,"error":{"message":'
        '"MCP tool call requires approval, but approval policy is never"},"status":"failed"}}',
    ),
    (
        "opencode",
        "bash",
        '{"type":"tool_use","sessionID":"ses_1","part":{"type":"tool","tool":"bash","callID":"c",'
        '"state":{"status":"error","input":{"command":"touch x"},"error":"The user has specified a '
        'rule which prevents you from using this specific tool call. Here are some …"}}}',
    ),
    (
        "opencode",
        "bash",
        '{"type":"tool_use","sessionID":"ses_1","part":{"type":"tool","tool":"bash","callID":"c",'
        '"state":{"status":"error","input":{"command":"touch x"},"error":"The user rejected '
        'permission to use this specific tool call."}}}',
    ),
]


@pytest.mark.parametrize("agent, tool, line", REFUSALS)
def test_refusals(agent, tool, line):
    state = state_after(agent, StreamState(), line)
    assert (state.denied, state.tools) == ((tool,), 0)


def test_what_came_from_the_cache_is_counted_once():
    """The last line of a run that read 600 new tokens and 400 from the cache, and wrote 20."""
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
        assert state_after(agent, StreamState(), line).tokens == Tokens(600, 20, 400), agent
    usage = (
        '{"modelMetrics":{"m":{"usage":{"inputTokens":1000,"outputTokens":20,'
        '"cacheReadTokens":400,"cacheWriteTokens":0}}}}'
    )
    assert with_usage("copilot", StreamState(), usage).tokens == Tokens(600, 20, 400)


def test_claude_tells_what_it_does_and_waits_for():
    def after(*lines):
        return state_after("claude", StreamState(), *lines)

    use = (
        '{"type":"assistant","message":{"id":"%s","usage":{"input_tokens":5,"output_tokens":1},'
        '"content":[{"type":"tool_use","name":"Edit","input":{"%s":"a.py"}}]}}'
    )
    for name in ("command", "file_path", "path"):
        assert after(use % ("m", name)).activity == "Edit a.py"
    assert after(use % ("m", "path"), use % ("m", "path"))[1:4] == (Tokens(5, 1), None, 1)
    assert after(use % ("", "path"), use % ("", "path"))[1:4] == (Tokens(10, 2), None, 2)
    denied = '{"type":"%s","subtype":"%s","tool_name":"Bash"}'
    assert after(denied % ("system", "permission_denied")).denied == ("Bash",)
    assert after(denied % ("system", "notice")).denied == ()
    retry = '{"type":"system","subtype":"api_retry","error":"e","attempt":2,%s"retry_delay_ms":%d}'
    told = after(retry % ('"error_status":503,', 700)).error
    assert told is not None and (told.status, told.retry_after, told.retrying) == (503, 700, True)
    cut = after(retry % ("", 0)).error
    assert cut is not None and cut[0] == "network" and (cut.status, cut.retry_after) == (None, None)
    assert "(try 2)" in cut.text


def test_figures_of_several_models_are_added_up():
    model = {"cacheCreationInputTokens": 1, "outputTokens": 2, "cacheReadInputTokens": 3}
    used = {"a": {**model, "inputTokens": 10, "costUSD": 0.5}, "b": {**model, "inputTokens": 20}}
    line = json.dumps({"type": "result", "model_usage_since_last_result": used})
    state = state_after("claude", StreamState(turns=4), line)
    assert (state.tokens, state.cost, state.turns) == (Tokens(32, 4, 6), 0.5, 4)
    total = '{"type":"result","is_error":false,"total_cost_usd":%s,"num_turns":7}'
    resumed = StreamState(cost_before=0.5, tokens=Tokens(1))
    assert state_after("claude", resumed, total % "0.75")[1:4] == (Tokens(1), 0.25, 7)
    assert state_after("claude", resumed, total % "0.25").cost == 0.0, "never less than nothing"


def test_a_session_that_is_not_there_is_reported_in_plain_words_too():
    told = state_after("claude", StreamState(), f"{NO_SESSION}: x").error
    assert told is not None and told.kind == "resume"
    earlier = StreamState(error=told._replace(kind="quota"))
    assert state_after("claude", earlier, f"{NO_SESSION}: x") == earlier
    assert state_after("claude", StreamState(), "any other line") == StreamState()


@pytest.mark.parametrize("size", [100_000, 5_000_000])
def test_the_end_of_a_very_long_message_is_kept(size):
    """In pieces or at once, the last line is what counts."""
    piece = {"type": "message", "role": "assistant", "content": "x" * 9_999 + "\n", "delta": True}
    last = {**piece, "content": "COMPLETED: read it"}
    state = StreamState()
    for event in [piece] * (size // 10_000) + [last]:
        state = state_after("gemini", state, json.dumps(event))
    assert state.message.endswith("\nCOMPLETED: read it") and len(state.message) <= 3 << 20
    whole = {"type": "agent_message", "text": "x" * size + "\nCOMPLETED: read it"}
    at_once = state_after(
        "codex", StreamState(), json.dumps({"type": "item.completed", "item": whole})
    )
    assert at_once.message.endswith("\nCOMPLETED: read it")
