"""Runs an agent as an attempt, like LocalRunner for commands, and follows its output.

The output wakes the worker only for important events: a session name, an error, the last message.
An agent that does not exit after its last message is stopped.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.agents.homes import AgentHomes, Home
from hypervisor.agents.mcp_config import ARGUMENTS
from hypervisor.agents.profile import ACP
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
from hypervisor.agents.tool_times import ToolTimes
from hypervisor.agents.transcript_writer import Channel, Redactor, TranscriptWriter
from hypervisor.inputs.template import Item
from hypervisor.queue.attempt import Ended
from hypervisor.resources.cgroup import Group
from hypervisor.runs.processes import tree
from hypervisor.runs.processes.commands import Pipes
from hypervisor.runs.processes.runner import LocalRunner

if TYPE_CHECKING:
    from hypervisor.agents.gateway.access import Access
    from hypervisor.runs.sandbox.prepare import Sandbox

NOTHING = StreamState()
OUR_SERVER = tuple(os.fsencode(word) for word in ARGUMENTS)
CANCEL_PATIENCE = 3.0  # seconds for an agent to end its turn
HANGING = 1.0  # seconds between signals after its last message


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
        tools_path: Callable[[str, int], str] | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        """`variables` are added to the environment; `own_home` is the home of a pull agent.
        `tools_path`: where to note the times of tool calls, for traces."""
        super().__init__(
            setup.cwd,
            setup.spec,
            variables,
            mark=mark,
            group=group,
            niceness=niceness,
            sandbox=sandbox,
        )
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
        self._tools_path = tools_path
        self._tools: ToolTimes | None = None
        self._access: Access | None = None

    @property
    def fatal_error(self) -> str | None:
        return self._setup.problem or super().fatal_error

    def brief(
        self,
        text: str,
        session: str = "",
        budget: int | None = None,
        known: StreamState = NOTHING,
        *,
        granted: tuple[str, ...] = (),
    ) -> None:
        """Set the prompt of the next agent, the session it resumes, the money it may spend, and
        what people allowed it."""
        self._prompt, self._known = Prompt(text, session, budget, granted=granted), known

    def use_gateway(self, access: Access) -> None:
        """The next agent calls its model through the gateway."""
        self._access = access

    def start(self, item: Item, token: str, output: str) -> None:
        """Without a token, it is a pull agent."""
        self.stream_state, self.hung, self._last_word = self._known, False, None
        self._speaks = False
        self._begin()
        task, attempt = token.split(".")[:2] if token else ("", "")
        mark = f"{task}.{attempt}" if token else self._mark
        self._tools = None
        if self._tools_path and token:
            self._tools = ToolTimes(self._tools_path(task, int(attempt)))
        self._home = home = self._own_home(task or self._own_home_name)
        prepared = self._prepared(home, token, mark)
        env = {**prepared.env, **self._env, **self._variables, tree.MARK: mark}
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
            self._start_program(prepared, env, Pipes(out[1], err[1]))
        except OSError:
            self._hang_up()
            raise
        finally:
            os.close(out[1])
            os.close(err[1])

    def _start_program(self, prepared: Launch, env: dict[str, str], pipes: Pipes) -> None:
        if self._sandbox is None:
            return self._launch(prepared.argv, env, pipes, prepared.stdin)
        from hypervisor.agents.confinement import confined

        assert self._home is not None
        attempt = confined(self._setup, prepared, self._home, self._access)
        attempt = attempt._replace(name=env[tree.MARK], env=env, root=self._root)
        return self._confine(attempt, pipes, prepared.stdin)

    def _own_home(self, name: str) -> Home:
        """A new session gets an empty home: an earlier one could have tampered with it. A resumed
        session may follow an attempt that was killed before its home was scrubbed."""
        setup = self._setup
        if not self._prompt.session:
            self._homes.remove(name)
        home = self._homes.prepare(name)
        if self._prompt.session:
            secrets = secrets_of(setup.profile, setup.user_env, setup.mcp)
            scrub(home, secrets, setup.profile.login)
        return home

    def _prepared(self, home: Home, token: str, mark: str) -> Launch:
        setup = self._setup
        setup = setup._replace(mcp=setup.mcp._replace(token=token, mark=(tree.MARK, mark)))
        if self._folder:
            setup = setup._replace(cwd=self._folder)
        if self._sandbox is not None and not self._sandbox.problem:
            from hypervisor.agents.confinement import address_file

            setup = setup._replace(relay=self._sandbox.mcp_words(address_file(home)))
        return prepare_launch(setup, home, self._prompt, self._access)

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
        """All processes while it starts, then only its tools: the program itself and our server use
        CPU even while they wait."""
        if not self._speaks:
            return alive
        ours = {self.leader}
        if self._sandbox is not None:
            from hypervisor.agents.confinement import wrapped

            ours = wrapped(self.leader, alive)
        if self._setup.profile.stream == ACP:  # the program is the child of our bridge
            ours |= {process.pid for process in alive if process.parent in ours}
        others = [process for process in alive if process.pid not in ours]
        return [process for process in others if not is_our_server(process.pid)]

    def stop(self, grace: float) -> Ended:
        """An error it is stopped for stays, whatever it prints until it exits, unless that is the
        end of
        a successful session: an answer that came too late would make a rate limit a crash."""
        self._cancel()
        error = self.stream_state.error
        ended = super().stop(grace)
        self._hang_up()
        if error is not None and not self.stream_state.ok:
            self.stream_state = self.stream_state._replace(error=error)
        return ended

    def _cancel(self) -> None:
        """An agent that speaks ACP is asked to end its turn; its processes are ended after that."""
        if self._setup.profile.stream != ACP or self._command is None or not self._speaks:
            return
        until = time.monotonic() + CANCEL_PATIENCE
        with suppress(ProcessLookupError):
            os.kill(self._command.pid, signal.SIGTERM)
        ending = select.poll()
        ending.register(self._command.fileno(), select.POLLIN)
        while time.monotonic() < until and not ending.poll(50):
            self._read()  # a full pipe would hold it up

    def clear(self, grace: float) -> int:
        left = super().clear(grace)
        self._hang_up()
        return left

    def close(self) -> None:
        self._hang_up()
        super().close()

    def read_session_file(self) -> None:
        """Look for token counts that the program does not print while it runs."""
        stream = self._setup.profile.stream
        if stream == "codex" and self._home is not None and self._access is None:
            from hypervisor.agents.session_files import with_live_tokens

            self.stream_state = with_live_tokens(stream, self._home.home, self.stream_state)

    def _is_hanging(self, now: float) -> bool:
        return self._command is not None and now >= self._patience(now + 1)

    def _patience(self, otherwise: float) -> float:
        """Until when it may keep running after its last message."""
        if self._last_word is None:
            return otherwise
        return self._last_word + self._setup.profile.grace

    def _listen(self, line: str) -> None:
        self._speaks = self._speaks or line.startswith("{")  # warnings come before that
        update = self._parse(self.stream_state, line)
        self.stream_state = self._cleaned(self.stream_state, update.state)
        if self._tools and update.events:
            self._tools.note(update.events, int(time.time() * 1000))
        if self.stream_state.ended and self._last_word is None:
            self._last_word = time.monotonic()
        elif not self.stream_state.ended:
            self._last_word = None

    def _cleaned(self, before: StreamState, now: StreamState) -> StreamState:
        """Parsed text may reveal more than the printed line: escapes are decoded."""
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
        """Read a channel; close it at end of file, or polling it would return at once forever."""
        for channel in list(self._channels):
            if not channel.read():
                self._poll.unregister(channel.fileno())
                channel.close()
                self._channels.remove(channel)

    def _hang_up(self) -> None:
        """No writer is left: read the rest and close."""
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
    """Whether to wake the worker."""
    trouble = now.error.kind if now.error else ""
    known = before.error.kind if before.error else ""
    return now.session != before.session or now.ended != before.ended or trouble != known
