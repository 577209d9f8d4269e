"""`hv run --agent` and what people see about agents, with a stand-in for the real programs."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from hypervisor.agents.config import agent_settings_from
from hypervisor.runs.config import settings_from
from tests.cli.conftest import assert_one_clear_line, until
from tests.support.mcp_servers import end_mcp_servers, mcp_servers

KEY = "sk-planted-in-the-environment-4711"
DOCS = Path(__file__).resolve().parents[2] / "docs" / "how-to"


@pytest.fixture
def hv(project):
    """A project whose config.toml knows the stand-ins, with a key for them."""
    project.equip(KEY)
    return project


def run(hv, *args, code=0, agent="fake-claude"):
    done = hv("run", "--agent", agent, "--quiet", *args)
    assert done.code == code, done
    return done


def items(*names):
    return [word for name in names for word in ("--item", name)]


def batch_of(hv, done):
    found = re.search(r"batch (\S+):", done.err)
    assert found is not None, done
    return found[1]


class TestRunning:
    def test_each_item_is_worked_on_once_and_a_second_run_skips_it(self, hv):
        first = run(hv, "--prompt", "Look at {item}. act-ok", *items("a.py", "b.py"))
        again = run(hv, "--prompt", "Look at {item}. act-ok", *items("a.py", "b.py", "c.py"))

        assert batch_of(hv, first) == batch_of(hv, again)
        assert "2 already done, skipped" in again.err
        tasks = hv.tasks(batch_of(hv, again))
        assert [(task["title"], task["state"], task["attempts"]) for task in tasks] == [
            (name, "done", 1) for name in ("a.py", "b.py", "c.py")
        ]

    def test_agents_share_a_server_that_outlives_their_attempts(self, hv):
        """The supervisor has started it: processes started by an agent end with its attempt."""
        done = run(hv, "--prompt", "act-mcp", *items("a", "b", "c"))
        assert {task["state"] for task in hv.tasks(batch_of(hv, done))} == {"done"}
        assert len(mcp_servers(hv.folder)) == 1
        assert not list(hv.folder.rglob("mcp.log"))  # no agent had to start one
        end_mcp_servers(hv.folder)

    def test_another_prompt_another_agent_or_a_name_makes_another_batch(self, hv):
        (hv.folder / "review.md").write_text("act-ok")
        ways = [("--prompt", "review.md"), ("--prompt", "act-ok again"), ("--name", "mine")]
        names = {batch_of(hv, run(hv, *way, *items("a"))) for way in ways}
        names.add(batch_of(hv, run(hv, "--prompt", "review.md", *items("a"), agent="fake-codex")))
        assert len(names) == 4 and "mine" in names
        assert any(name.startswith("fake-claude-review-") for name in names)

    def test_without_a_prompt_the_item_says_what_to_do(self, hv):
        done = run(hv, *items("act-tells, please"))
        (told,) = (hv.folder / "agents" / "provider").glob("told-*")
        prompt = json.loads(told.read_text())["prompt"]
        assert "Do what the task's own text asks for." in prompt
        assert "Title: `act-tells, please`" in prompt
        assert hv.tasks(batch_of(hv, done))[0]["state"] == "done"

    def test_what_an_agent_could_not_do_is_reported_with_what_would_help(self, hv):
        done = run(hv, "--prompt", "act-blocked", "--name", "b", *items("a"), code=9)
        assert "no key" in done.out
        task = hv.task(hv.tasks("b")[0]["id"])
        assert (task["state"], task["unblock"]) == ("blocked", "give it one")

    def test_the_budget_pauses_the_batch_and_says_how_to_continue(self, hv):
        given = ("--prompt", "act-ok", "--name", "b", "--workers", "1")
        done = run(hv, *given, "--budget", "0.15", *items("a", "b", "c", "d"), code=9)
        assert "budget is used up: 0.20 of 0.15 USD" in done.out
        assert hv.json("stats", "--batch", "b")["states"]["done"] == 2

        run(hv, *given, "--budget", "5", *items("a", "b", "c", "d"))
        assert hv.json("summary", "b")["cost"] == pytest.approx(0.40)


class TestBeforeItStarts:
    def test_a_dry_run_shows_the_program_its_words_and_the_first_prompt(self, hv):
        before = hv.content()
        given = ("--prompt", "Look at {item}.", "--permissions", "read-only", "--allow", "Bash")
        shown = hv.ok("run", "--agent", "fake-claude", *given, *items("a.py", "b.py"), "--dry-run")
        assert "fake-claude 1.2.3" in shown and "fake-claude -p --output-format" in shown
        assert "read-only, Bash" in shown and "sandbox:    none" in shown
        assert "calls:      direct: no key that the gateway knows" in shown
        assert "Look at `a.py`." in shown and "b.py" not in shown
        assert "STANDIN_KEY" in shown and KEY not in shown
        assert hv.content() == before

        as_json = hv.json("run", "--agent", "fake-codex", *items("a"), "--dry-run")
        assert as_json["agent"] == "fake-codex" and as_json["sandbox"]

    def test_an_agent_that_is_not_installed_is_refused_with_how_to_get_it(self, bare):
        done = bare("run", "--agent", "gemini", "--item", "a")
        assert (done.code, done.out) == (11, "")
        assert_one_clear_line(done.err)
        assert "npm install -g @google/gemini-cli" in done.err
        assert not (bare.folder / ".hypervisor").exists()

    def test_one_that_nobody_is_logged_in_to_is_refused_with_what_to_set(self, hv):
        del hv.env["STANDIN_KEY"]
        said = hv.refused(11, "run", "--agent", "fake-claude", "--item", "a")
        assert "set STANDIN_KEY" in said

    def test_an_unknown_agent_is_refused(self, hv):
        assert "did you mean claude?" in hv.refused(2, "run", "--agent", "cluade", "--item", "a")
        assert "[agents.nobody]" in hv.refused(2, "run", "--agent", "nobody", "--item", "a")

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--prompt", "x y", "--item", "a", "--", "echo"], "--prompt works only with an agent"),
            (["--agent", "fake-claude", "--item", "a", "--", "echo"], "not both"),
            (["--agent", "fake-claude", "--item", "a", "--shell"], "--shell cannot be used with"),
            (
                ["--agent", "fake-claude", "--item", "a", "--claim", "3"],
                "--claim cannot be used with",
            ),
            (["--agent", "fake-claude", "--item", "a", "--prompt", "no.md"], "no such file"),
            (["--agent", "fake-claude", "--item", "a", "--prompt", " "], "--prompt is empty"),
            (["--agent", "fake-claude", "--item", "a", "--budget", "0"], "invalid amount"),
            (["--agent", "fake-claude", "--item", "a", "--tokens", "many"], "invalid number"),
            (["--agent", "fake-claude", "--item", "a", "--turns", "0"], "turns must be between"),
            (["--agent", "fake-claude", "--item", "a", "--pull", "0"], "pull must be between"),
            (["--agent", "fake-claude", "--item", "a", "--fallback", "fake-claude"], "another"),
            (["--agent", "auto", "--item", "a", "--fallback", "nobody"], "unknown agent 'nobody'"),
            (["--agent", "fake-claude", "--item", "a", "--prompt", "."], "is a folder"),
            (
                ["--agent", "fake-claude", "--item", "a", "--pull", "--scratch"],
                "cannot be used with --pull",
            ),
            (["--agent", "fake-claude", "--item", "a", "--pull", "--task-tokens", "9"], "--pull"),
        ],
    )
    def test_words_that_make_no_sense_are_refused(self, hv, words, said):
        assert said in hv.refused(2, "run", *words)

    def test_a_schema_must_be_one(self, hv):
        (hv.folder / "s.json").write_text("[1]")
        said = hv.refused(2, "run", "--agent", "fake-claude", "--item", "a", "--schema", "s.json")
        assert "not a JSON Schema" in said

    def test_preflight_says_who_works_on_what_and_what_nobody_can_do(self, hv):
        config = hv.folder / ".hypervisor" / "config.toml"
        config.write_text(
            config.read_text()
            + '[[routing]]\ntags = ["hard"]\nagent = "fake-claude"\n'
            + '[[routing]]\nagent = ["gone", "fake-gemini"]\n'.replace('"gone", ', "")
        )
        rows = [{"id": 1, "tags": ["hard"]}, {"id": 2}, {"id": 3, "requires": ["browser"]}]
        (hv.folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
        done = hv("preflight", "--agent", "auto", "--items", "t.jsonl")
        assert done.code == 9
        assert "Agents: fake-claude on 1, fake-gemini on 1." in done.out
        assert "1 requires something no agent here can do" in done.out and "(browser)" in done.out

    def test_what_it_may_cost_is_told_from_how_it_went(self, hv):
        run(hv, "--prompt", "act-ok-2", "--name", "before", *items("a", "b"))
        more = items(*"cdefghijkl")
        given = ("--agent", "fake-claude", "--prompt", "act-ok-2", "--budget", "1")
        said = hv.ok("preflight", *given, *more)
        assert "Cost: about 2.00 USD, based on earlier runs." in said
        assert "the batch will be paused before it is finished" in said

    def test_auto_gives_each_task_to_the_agent_of_its_rule(self, hv):
        config = hv.folder / ".hypervisor" / "config.toml"
        rules = '[[routing]]\ntags = ["hard"]\nagent = "fake-claude"\n'
        config.write_text(config.read_text() + rules + '[[routing]]\nagent = "fake-codex"\n')
        rows = [{"id": "act-ok 1", "tags": "hard"}, {"id": "act-ok 2"}]
        (hv.folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
        run(hv, "--items", "t.jsonl", "--name", "b", agent="auto")
        told = {hv.json("logs", task["id"])["agent"] for task in hv.tasks("b")}
        assert told == {"fake-claude", "fake-codex"}


class TestLooking:
    def test_agents_are_listed_with_what_is_wrong(self, hv):
        found = {each["name"]: each for each in hv.json("agents")}
        ours = found["fake-claude"]
        assert ours["ready"] and ours["version"].startswith("1.2.3") and not ours["learned"]
        assert not found["gemini"]["ready"] and found["gemini"]["why"] == "not installed"
        shown = hv.ok("agents")
        assert re.search(r"^fake-claude +1\.2\.3 +\(400 MB\) +0 +direct +ready", shown, re.M)
        assert re.search(r"^  gemini +npm install -g @google/gemini-cli$", shown, re.M)
        assert "fake-codex" in hv.ok("agents", "--names").split()

    def test_agents_can_be_asked_for_before_there_is_a_store(self, bare):
        assert "not installed" in bare.ok("agents")
        assert not (bare.folder / ".hypervisor").exists()

    def test_memory_is_shown_once_it_was_learned(self, hv):
        run(hv, "--prompt", "act-slow-5", *items("a"))
        found = {each["name"]: each for each in hv.json("agents")}
        assert found["fake-claude"]["learned"]

    def test_a_check_asks_the_real_program_for_one_word(self, hv):
        said = hv.ok("agents", "check", "fake-claude")
        assert said.startswith("fake-claude works: answered in")
        assert hv.refused(2, "agents", "check") and hv.refused(2, "agents", "check", "nobody")
        assert "npm install" in hv.refused(11, "agents", "check", "gemini")

    def test_a_brake_is_shown_and_can_be_lifted(self, hv):
        (hv.folder / "agents" / "provider" / "limit").write_text("9999999999")
        hv.ok(
            "run",
            "--agent",
            "fake-claude",
            "--prompt",
            "act-ok",
            "--name",
            "b",
            "--detach",
            "--item",
            "a",
        )
        until(lambda: hv.json("status", "b")["cooldowns"], "the account rests")
        (cooldown,) = hv.json("status", "b")["cooldowns"]
        provider = cooldown["account"].partition(":")[0]
        assert f"{provider} is rate-limited until" in hv.ok("status", "b")
        assert f"hv agents lift {cooldown['account']}" in hv.ok("agents")
        assert KEY not in json.dumps(cooldown)

        (hv.folder / "agents" / "provider" / "limit").unlink()
        assert "can be used again" in hv.ok("agents", "lift", cooldown["account"])
        until(lambda: hv.json("stats", "--batch", "b")["states"]["done"], "it goes on")
        assert "is not rate-limited" in hv.ok("agents", "lift", cooldown["account"])

    def test_logs_tell_who_said_what_and_give_the_kept_lines(self, hv):
        run(hv, "--prompt", "act-ok", "--name", "b", *items("a"))
        task = hv.tasks("b")[0]["id"]
        told = hv.ok("logs", task)
        assert "▸ Bash  x\n  fine\n" in told and '{"type"' not in told
        raw = [json.loads(line)["type"] for line in hv.ok("logs", task, "--raw").splitlines()]
        assert raw[0] == "system" and raw[-1] == "result"
        said = hv.json("logs", task)["transcript"]
        assert {each["who"] for each in said} >= {"note", "tool", "answer", "end"}
        assert json.loads(hv.ok("logs", task, "--raw", "--json"))["text"].startswith('{"type"')

    def test_a_task_shows_the_sessions_of_its_agents(self, hv):
        run(hv, "--prompt", "act-ok", "--name", "b", *items("a"))
        task = hv.tasks("b")[0]["id"]
        assert "1  fake-claude: completed, 1,020 tokens, 0.10 USD, " in hv.ok("show", task)
        (session,) = hv.json("show", task)["sessions"]
        assert (session["agent"], session["cost"]) == ("fake-claude", 0.1)

    def test_what_it_changed_in_a_copy_is_a_patch(self, hv):
        (hv.folder / "a.txt").write_text("one\n")
        run(hv, "--prompt", "act-edits", "--name", "b", "--scratch", *items("a"))
        patch = hv.ok("logs", hv.tasks("b")[0]["id"], "--patch")
        assert "+changed by the agent" in patch and "new.txt" in patch
        assert (hv.folder / "a.txt").read_text() == "one\n"

        run(hv, "--prompt", "act-ok", "--name", "c", *items("a"))
        assert "no patch stored here for" in hv.refused(
            4, "logs", hv.tasks("c")[0]["id"], "--patch"
        )

    def test_a_running_agent_is_shown_with_what_it_does(self, hv):
        hv.ok(
            "run",
            "--agent",
            "fake-codex",
            "--prompt",
            "act-slow-1000",
            "--name",
            "b",
            "--detach",
            "--item",
            "a",
        )
        until(lambda: [a for a in hv.json("top") if a["last_line"] == "shell: x"], "a tool is used")
        (now,) = hv.json("top")
        assert now["agent"] == "fake-codex"
        assert "fake-codex" in hv.ok("top") and "▸ shell: x" in hv.ok("top")
        follow = hv.start("logs", now["task"], "--follow")
        assert follow.stdout.readline().startswith("session ")
        assert follow.stdout.readline() == "▸ shell  x\n"
        hv.ok("kill", now["task"])
        assert follow.wait(120) == 0

    def test_tokens_and_cost_are_shown_and_an_estimate_is_called_one(self, hv):
        said = run(hv, "--prompt", "act-ok-2", "--name", "c", *items("a", "b"))
        assert "4.1k tokens · 0.40" in said.out
        found = hv.json("summary", "c")
        assert (found["tokens"], found["cost"], found["estimated"]) == (4080, 0.4, False)
        assert "4,080 tokens · cost 0.40 USD" in hv.ok("summary", "c")

        run(hv, "--prompt", "act-ok", "--name", "x", *items("a"), agent="fake-codex")
        assert hv.json("summary", "x")["estimated"]
        assert "(an estimate)" in hv.ok("summary", "x")
        assert "≈" in hv.ok("status", "x")

    def test_the_report_tells_them_too(self, hv):
        run(hv, "--prompt", "act-ok", "--name", "b", *items("a"))
        path = hv.json("report", "b")["path"]
        page = Path(path).read_text()
        assert "1,020" in page and "0.10" in page and "fake-claude" in page


@pytest.mark.parametrize(
    "page", ["route-agents.md", "budgets.md", "agent-settings.md", "limits-and-load.md"]
)
def test_the_settings_on_the_pages_are_valid(page):
    found = re.findall(r"```toml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert found
    own = '[agents.browsing-claude]\nlike = "claude"\n'
    for text in found:
        config = tomllib.loads(text if "[agents." in text else text + own)
        settings_from(config)
        agent_settings_from(config)


def test_every_key_of_a_profile_is_explained():
    from hypervisor.agents.config import PROFILE, ROUTE

    settings = (DOCS.parent / "config.md").read_text()
    routing = (DOCS / "route-agents.md").read_text()
    assert [key for key in PROFILE if f"| `{key}` |" not in settings] == []
    assert [key for key in ROUTE if f"| `{key}` |" not in routing] == []
