"""Runs an agent as an attempt: as LocalRunner does with commands, and listens to what it says.

The pipe wakes whoever waits, but only for what is worth a look: a session's name, trouble, the
last word. An agent that does not end after its last word is ended.
"""

from __future__ import annotations

import os
import select
import time

from hypervisor.agents.homes import AgentHomes, Home
from hypervisor.agents.mcp_config import ARGUMENTS
from hypervisor.agents.scratch import Scratch
from hypervisor.agents.scrubbing import scrub
from hypervisor.agents.setup import (
    AgentSetup,
    Launch,
    Prompt,
    add_file_usage,
    prepare_launch,
    secrets_of,
)
from hypervisor.agents.stream_state import StreamState
from hypervisor.agents.streams import parser
from hypervisor.agents.transcript_writer import Channel, Redactor, TranscriptWriter
from hypervisor.inputs.template import Item
from hypervisor.queue.attempt import Ended
from hypervisor.resources.cgroup import Group
from hypervisor.runs.processes import tree
from hypervisor.runs.processes.commands import Pipes
from hypervisor.runs.processes.runner import LocalRunner

NOTHING = StreamState()
OUR_SERVER = tuple(os.fsencode(word) for word in ARGUMENTS)
HANGING = 1.0  # seconds that one gets between the signals once its last word is said


class AgentRunner(LocalRunner):
    def __init__(
        self,
        setup: AgentSetup,
        homes: AgentHomes,
        variables: dict[str, str],
        *,
        own_home: str,
        mark: str,
        group: Group | None,
        niceness: int,
    ) -> None:
        """`variables` are what Hypervisor adds to the environment; `own_home` is the home of an
        agent that claims by itself."""
        super().__init__(setup.spec, None, variables, mark=mark, group=group, niceness=niceness)
        self.stream_state = StreamState()
        self.hung = False
        self._mark = mark
        self._setup, self._homes, self._own_home_name = setup, homes, own_home
        self._parse = parser(setup.profile.stream)
        self._prompt = Prompt("")
        self._known = StreamState()
        self._redactor = Redactor()
        self._transcript: TranscriptWriter | None = None
        self._channels: list[Channel] = []
        self._last_word: float | None = None
        self._home: Home | None = None
        self._secrets: frozenset[str] = frozenset()
        self._speaks = False

    @property
    def fatal_error(self) -> str | None:
        return self._setup.problem or None

    def brief(
        self, text: str, session: str = "", budget: int | None = None, known: StreamState = NOTHING
    ) -> None:
        """What the next agent is told, the session it goes on with and what is known of that,
        the money it may spend."""
        self._prompt, self._known = Prompt(text, session, budget), known

    def start(self, item: Item, token: str, output: str) -> None:
        """Without a token, it is an agent that claims by itself."""
        self.stream_state, self.hung, self._last_word = self._known, False, None
        self._speaks = False
        self._begin()
        task, attempt = token.split(".")[:2] if token else ("", "")
        mark = f"{task}.{attempt}" if token else self._mark
        self._home = home = self._own_home(task or self._own_home_name)
        prepared = self._prepared(home, token, mark)
        env = {**prepared.env, **self._env, tree.MARK: mark}
        env |= {"HV_TASK": task} if task else {}
        os.chdir(prepared.cwd)
        self._secrets = prepared.secrets
        self._redactor = Redactor(self._secrets)
        self._transcript = TranscriptWriter(output, self._secrets, self._listen)
        out, err = self._transcript.pipe(), self._transcript.pipe()
        self._channels = [out[0], err[0]]
        for channel in self._channels:
            self._poll.register(channel.fileno(), select.POLLIN)
        try:
            self._launch(prepared.argv, env, Pipes(out[1], err[1]), prepared.stdin)
        except OSError:
            self._hang_up()
            raise
        finally:
            os.close(out[1])
            os.close(err[1])

    def _own_home(self, name: str) -> Home:
        """One that starts anew finds nothing that another left: it may have been spoilt. One that
        goes on may follow an attempt that was killed together with whoever would have scrubbed."""
        setup = self._setup
        if not self._prompt.session:
            self._homes.remove(name)
        home = self._homes.prepare(name)
        if self._prompt.session:
            secrets = secrets_of(setup.profile, setup.given, setup.mcp)
            scrub(home, secrets, setup.profile.login)
        return home

    def _prepared(self, home: Home, token: str, mark: str) -> Launch:
        setup = self._setup
        setup = setup._replace(mcp=setup.mcp._replace(token=token, mark=(tree.MARK, mark)))
        if setup.spec.workspace == "scratch":
            Scratch(home.scratch, setup.spec.cwd).make(anew=not self._prompt.session)
            setup = setup._replace(spec=setup.spec._replace(cwd=home.scratch))
        return prepare_launch(setup, home, self._prompt)

    def keep_changes(self, task: str, path: str) -> int:
        """Write what was changed in the scratch copy to a file; returns its size."""
        home = self._homes.at(task)
        copy = Scratch(home.scratch, self._spec.cwd)
        return copy.keep(path) if os.path.isdir(home.scratch) else 0

    def wait(self, seconds: float) -> Ended | None:
        until = time.monotonic() + seconds
        before, asked = self.stream_state, self.asked
        while True:
            now = time.monotonic()
            if self._is_hanging(now):
                self.hung = True
                return self.stop(HANGING)
            ended = super().wait(max(min(until, self._patience(until)) - now, 0))
            self._read()
            if ended is not None:
                return ended
            news = is_news(before, self.stream_state) or self.asked != asked
            if news or time.monotonic() >= until:
                return None

    def _at_work(self, alive: list[tree.Process]) -> list[tree.Process]:
        """All while it starts, then the tools that it runs: the program itself and our server burn
        CPU while they only wait."""
        if not self._speaks:
            return alive
        others = [process for process in alive if process.pid != self.leader]
        return [process for process in others if not is_our_server(process.pid)]

    def stop(self, grace: float) -> Ended:
        ended = super().stop(grace)
        self._hang_up()
        return ended

    def clear(self, grace: float) -> int:
        left = super().clear(grace)
        self._hang_up()
        return left

    def close(self) -> None:
        self._hang_up()
        super().close()

    def _is_hanging(self, now: float) -> bool:
        return self._command is not None and now >= self._patience(now + 1)

    def _patience(self, otherwise: float) -> float:
        """Until when it may go on after its last word."""
        if self._last_word is None:
            return otherwise
        return self._last_word + self._setup.profile.grace

    def _listen(self, line: str) -> None:
        self._speaks = self._speaks or line.startswith("{")  # warnings come before that
        update = self._parse(self.stream_state, line)
        self.stream_state = self._cleaned(self.stream_state, update.state)
        if self.stream_state.ended and self._last_word is None:
            self._last_word = time.monotonic()
        elif not self.stream_state.ended:
            self._last_word = None

    def _cleaned(self, before: StreamState, now: StreamState) -> StreamState:
        """What is understood may show more than what was printed: codes are resolved by then."""
        clean = self._redactor.clean
        if now.message is not before.message:
            now = now._replace(message=self._redactor.clean_more(now.message, before.message))
        if now.result is not before.result:
            now = now._replace(result=self._redactor.clean_value(now.result))
        if now.error is not before.error and now.error is not None:
            now = now._replace(error=now.error._replace(text=clean(now.error.text)))
        return (
            now if now.activity is before.activity else now._replace(activity=clean(now.activity))
        )

    def _read(self) -> None:
        """A channel that nobody writes into any more would wake us for ever."""
        for channel in list(self._channels):
            if not channel.read():
                self._poll.unregister(channel.fileno())
                channel.close()
                self._channels.remove(channel)

    def _hang_up(self) -> None:
        """Nobody is left who could write: take the rest, which one look gets, and close."""
        self._read()
        for channel in self._channels:
            self._poll.unregister(channel.fileno())
            channel.close()
        self._channels = []
        if self._transcript is not None:
            self._transcript.close()
            self._transcript = None
        home, self._home = self._home, None
        if home is not None:
            self.stream_state = add_file_usage(self._setup.profile, home, self.stream_state)
            scrub(home, self._secrets, self._setup.profile.login)


def is_our_server(pid: int) -> bool:
    return all(word in tree.command_line(pid) for word in OUR_SERVER)


def is_news(before: StreamState, now: StreamState) -> bool:
    """Whether the worker should look at once."""
    trouble = now.error.kind if now.error else ""
    known = before.error.kind if before.error else ""
    return now.session != before.session or now.ended != before.ended or trouble != known
