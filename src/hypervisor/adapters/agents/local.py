"""The agent programs of this host, for whoever wants to know of them before anything runs."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping

from hypervisor.adapters import tree
from hypervisor.adapters.agents import finding
from hypervisor.adapters.agents.equipping import Prompt, equip, used
from hypervisor.adapters.agents.homes import Home
from hypervisor.adapters.agents.mcp_files import McpAccess
from hypervisor.adapters.agents.prompts import Prompts
from hypervisor.adapters.agents.transcript import Redactor
from hypervisor.adapters.environment import agent_environment
from hypervisor.domain.agents.budgeting import cost_micros
from hypervisor.domain.agents.commandline import Asked, words
from hypervisor.domain.agents.found import Found, Preview, Probed
from hypervisor.domain.agents.heard import Heard
from hypervisor.domain.agents.judging import judge
from hypervisor.domain.agents.profile import AgentProfile
from hypervisor.domain.agents.streams import hearing
from hypervisor.domain.attempt import Ended
from hypervisor.domain.run import RunSpec
from hypervisor.domain.task import Task
from hypervisor.domain.template import Item

QUESTION = "Answer with the one word OK. Use no tools."
GRACE = 1.0


class LocalAgents:
    def __init__(self, data: str, prompts: str, given: Mapping[str, str] | None = None) -> None:
        """`prompts` is where the frames of prompts are."""
        self._data, self._prompts = data, prompts
        self._given = os.environ if given is None else given

    def find(self, profile: AgentProfile) -> Found:
        return finding.find(profile, self._given)

    def preview(self, profile: AgentProfile, spec: RunSpec, task: Task, item: Item) -> Preview:
        prompts = Prompts(spec, self._prompts)
        pulls = spec.mode == "pull"
        prompt = prompts.pull("worker-PID") if pulls else prompts.write(task, item)
        asked = Asked(
            "PROMPT", "", spec.permissions, spec.allow, "MCP.json", spec.model, spec.turns,
            spec.task_budget, "SCHEMA", "SCHEMA.json",
        )  # fmt: skip
        program = finding.locate(profile, self._given) or profile.program
        names = sorted({*agent_environment(profile, self._given), "HOME", "TMPDIR"})
        argv = (program, *words(profile, asked))
        return Preview(argv, prompt, spec.cwd, tuple(names), profile.sandbox)

    def probe(self, profile: AgentProfile, spec: RunSpec, seconds: float) -> Probed:
        began = time.monotonic()
        tree.become_reaper()
        with tempfile.TemporaryDirectory(prefix="hv-probe-", ignore_cleanup_errors=True) as folder:
            heard, ended = self._one_turn(profile, spec, folder, seconds)
        outcome = judge(heard, ended, None, wants_report=False, codes=profile.codes)
        cost, estimated = cost_micros(heard, profile.price)
        ok = outcome.name == "completed"
        told = " ".join(heard.said.split())[:300] if ok else _why(outcome.reason, outcome.evidence)
        took = round((time.monotonic() - began) * 1000)
        return Probed(ok, outcome.name, told, took, heard.tokens, cost, estimated)

    def _one_turn(
        self, profile: AgentProfile, spec: RunSpec, folder: str, seconds: float
    ) -> tuple[Heard, Ended]:
        home = Home(folder, os.path.join(folder, "home"), os.path.join(folder, "tmp"))
        for each in (home.home, home.tmp):
            os.mkdir(each, 0o700)
        # A store of its own: the connection over MCP is part of what has to work.
        access = McpAccess(os.path.join(folder, "store.db"), "")
        ready = equip(
            profile, spec._replace(cwd=home.tmp), home, Prompt(QUESTION), access, self._given,
            program=finding.locate(profile, self._given),
        )  # fmt: skip
        agent = subprocess.Popen(
            ready.argv, env=ready.env, cwd=ready.cwd, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            said, _ = agent.communicate(ready.stdin or b"", seconds)
            code, error = agent.returncode, None
        except subprocess.TimeoutExpired as late:
            said, code, error = late.stdout or b"", None, f"no answer within {seconds:.0f} s"
        finally:
            tree.stop_descendants(GRACE)
            agent.poll()
        heard = used(profile, home, _heard(profile, said, ready.secrets))
        return heard, Ended(code, None, 0.0, 0, error=error)


def _heard(profile: AgentProfile, said: bytes, secrets: Collection[str]) -> Heard:
    heard, hear = Heard(), hearing(profile.stream)
    clean = Redactor(secrets).clean(said.decode("utf-8", "replace"))
    for line in clean.splitlines():
        heard = hear(heard, line)
    return heard


def _why(reason: str, evidence: str) -> str:
    return f"{reason}: {evidence}"[:500] if evidence else reason
