"""A worker of agents with a runner that reports scripted states of a stream."""

from __future__ import annotations

from typing import Any, cast

from hypervisor.agents import stream_state as kinds
from hypervisor.agents.agent_worker import agent_worker
from hypervisor.agents.builtin_profiles import BUILTIN
from hypervisor.agents.context import AgentContext
from hypervisor.agents.homes import AgentHomes
from hypervisor.agents.stream_state import StreamError, StreamState
from hypervisor.batches.pipeline_names import batches_of
from hypervisor.queue.agent_session import Tokens
from hypervisor.queue.attempt import Ended
from hypervisor.runs.spec import agent_of
from tests.support.benches import Bench, Script
from tests.support.specs import run_spec

ACCOUNT = "anthropic:1234"
DONE = StreamState(
    "s-1", Tokens(100, 10), 0.10, 1, 1, ended=True, ok=True, result={"status": "completed"}
)
LIMIT = StreamError(kinds.QUOTA, "too many requests", 429, retrying=True)


class Agent(Script):
    """A runner whose items have a list of stream states and of what `wait` returns."""

    def __init__(self, log):
        super().__init__(log)
        self.stream_state = StreamState()
        self.hung = False
        self.briefs: list[tuple[str, str, int | None, StreamState]] = []
        self.token = ""

    def read_session_file(self):
        """It has none."""

    def brief(self, text, session="", budget=None, known=None, *, granted=()):
        self.briefs.append((text, session, budget, known or StreamState()))

    def start(self, item, token, output):
        self.stream_state, self.hung, self.token = self.briefs[-1][3], False, token
        super().start(item, token, output)

    def wait(self, seconds):
        answer = super().wait(seconds)
        if isinstance(answer, StreamState):
            self.stream_state = answer
            return None
        if isinstance(answer, tuple) and not isinstance(answer, Ended):
            self.stream_state, answer = answer
        return answer


class Prompts:
    """Names the prompt in one word."""

    def write(self, task, item, context="", messages=""):
        return f"do {item.text}{messages and f': {messages}'}"

    def go_on(self, task, item, context="", messages=""):
        return f"go on{messages and f': {messages}'}"

    def answered(self, task, item, context, messages):
        return f"answered: {messages}"

    def correct(self, task, mismatch):
        return f"correct {mismatch}"

    def pull(self, caller):
        return "pull"


class AgentBench(Bench):
    kind = Agent

    def __init__(self, folder, settings=None, agent_settings=None, **spec):
        super().__init__(folder, settings, agent_settings, **spec)
        self.homes = AgentHomes(str(folder))

    def described(self, **spec):
        spec.setdefault("agents", ("claude",))
        return run_spec("/", agent="claude", **spec)

    def item(self, text, *answers, home=True, **more):
        made = super().item(text, *answers, **more)
        if home:
            self.homes.prepare(made)
        return made

    def in_turn(self, text, *attempts):
        """The results of successive attempts at an item."""
        answers, start = iter(attempts), self.runner.start

        def next_one(item, token, output):
            if item.text == text:
                self.runner.items[text] = next(answers)
            start(item, token, output)

        self.runner.start = next_one

    def worker(self, name="claude"):
        accounts = {each: f"account:{each}" for each in agent_of(self.spec).agents} | {
            "claude": ACCOUNT
        }
        ctx, prompts = self.context(agent=name), cast(Any, Prompts())
        agent = AgentContext(ctx, self.runner, BUILTIN[name], accounts, self.homes, prompts)
        return agent_worker(agent, batches_of)

    def work(self, name="claude"):
        self.runner.asked = ""
        self.worker(name).run()
        return self

    def task(self, task):
        return self.store.task(task)

    def outcomes_of(self, task):
        return [each.outcome for each in self.store.detail(task).attempts]

    def runs(self):
        return list(reversed(self.store.sessions()))
