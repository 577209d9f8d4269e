"""The agent programs of this host, for checks before anything runs."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from hypervisor.agents import discovery
from hypervisor.agents.classify import classify
from hypervisor.agents.command_line import LaunchOptions, arguments
from hypervisor.agents.gateway.access import CallWay, call_way
from hypervisor.agents.homes import Home
from hypervisor.agents.installed import InstalledAgent, Preview, ProbeResult
from hypervisor.agents.mcp_config import McpAccess
from hypervisor.agents.profile import AgentProfile
from hypervisor.agents.prompts import Prompts
from hypervisor.agents.session import cost_micros
from hypervisor.agents.setup import (
    AgentSetup,
    Prompt,
    add_file_usage,
    agent_environment,
    prepare_launch,
)
from hypervisor.agents.stream_state import StreamState
from hypervisor.agents.streams import parser
from hypervisor.agents.transcript_writer import Redactor
from hypervisor.inputs.template import Item
from hypervisor.queue.attempt import Ended
from hypervisor.queue.task import Task
from hypervisor.runs.processes import tree
from hypervisor.runs.spec import AgentSpec, RunSpec, agent_of

if TYPE_CHECKING:
    from hypervisor.agents.agent_settings import AgentSettings

QUESTION = "Answer with the one word OK. Use no tools."
GRACE = 1.0


class LocalAgents:
    def __init__(self, data: str, prompts: str, user_env: Mapping[str, str] | None = None) -> None:
        """`prompts` is the folder of the prompt frames."""
        self._data, self._prompts = data, prompts
        self._user_env = os.environ if user_env is None else user_env

    def find(self, profile: AgentProfile) -> InstalledAgent:
        return discovery.find(profile, self._user_env)

    def call_way(
        self, profile: AgentProfile, settings: AgentSettings, spec: AgentSpec | None = None
    ) -> CallWay:
        """How its model is called, through the gateway or not, and why not."""
        return call_way(profile, settings, self._user_env, spec)

    def preview(self, profile: AgentProfile, spec: RunSpec, task: Task, item: Item) -> Preview:
        prompts, agent = Prompts(spec, self._prompts), agent_of(spec)
        pulls = agent.mode == "pull"
        prompt = prompts.pull("worker-PID") if pulls else prompts.write(task, item)
        options = LaunchOptions(
            prompt="PROMPT",
            permissions=agent.permissions,
            allow=agent.allow,
            mcp="MCP.json",
            model=agent.model,
            turns=agent.turns,
            budget=agent.task_budget,
            schema="SCHEMA",
            schema_file="SCHEMA.json",
        )
        program = discovery.locate(profile, self._user_env) or profile.program
        names = sorted({*agent_environment(profile, self._user_env), "HOME", "TMPDIR"})
        argv = (program, *arguments(profile, options))
        return Preview(argv, prompt, spec.cwd, tuple(names), profile.own_sandbox)

    def probe(self, profile: AgentProfile, spec: AgentSpec, seconds: float) -> ProbeResult:
        began = time.monotonic()
        tree.become_reaper()
        with tempfile.TemporaryDirectory(prefix="hv-probe-", ignore_cleanup_errors=True) as folder:
            state, ended = self._one_turn(profile, spec, folder, seconds)
        outcome = classify(state, ended, None, wants_report=False, codes=profile.codes)
        cost, estimated = cost_micros(state, profile.price)
        ok = outcome.name == "completed"
        text = (
            " ".join(state.message.split())[:300] if ok else _why(outcome.reason, outcome.evidence)
        )
        milliseconds = round((time.monotonic() - began) * 1000)
        return ProbeResult(ok, outcome.name, text, milliseconds, state.tokens, cost, estimated)

    def _one_turn(
        self, profile: AgentProfile, spec: AgentSpec, folder: str, seconds: float
    ) -> tuple[StreamState, Ended]:
        home = Home(folder, os.path.join(folder, "home"), os.path.join(folder, "tmp"))
        for path in (home.home, home.tmp):
            os.mkdir(path, 0o700)
        # With a separate store: the MCP connection is tested, too.
        access = McpAccess(os.path.join(folder, "store.db"), "")
        program = discovery.locate(profile, self._user_env)
        setup = AgentSetup(profile, spec, home.tmp, self._user_env, access, program)
        ready = prepare_launch(setup, home, Prompt(QUESTION))
        agent = subprocess.Popen(
            ready.argv,
            env=ready.env,
            cwd=ready.cwd,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            output, _ = agent.communicate(ready.stdin or b"", seconds)
            code, error = agent.returncode, None
        except subprocess.TimeoutExpired as late:
            output, code, error = late.stdout or b"", None, f"no answer within {seconds:.0f} s"
        finally:
            tree.stop_descendants(GRACE)
            agent.poll()
        state = add_file_usage(profile, home, _parsed(profile, output, ready.secrets))
        return state, Ended(code, None, 0.0, 0, error=error)


def _parsed(profile: AgentProfile, output: bytes, secrets: Collection[str]) -> StreamState:
    state, parse = StreamState(), parser(profile.stream)
    clean = Redactor(secrets).clean(output.decode("utf-8", "replace"))
    for line in clean.splitlines():
        state = parse(state, line).state
    return state


def _why(reason: str, evidence: str) -> str:
    return f"{reason}: {evidence}"[:500] if evidence else reason
