"""Runs an agent as an attempt: as LocalRunner does with commands, and listens to what it says.

The pipe wakes whoever waits, but only for what is worth a look: a session's name, trouble, the
last word. An agent that does not end after its last word is ended.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hypervisor.adapters import tree
from hypervisor.adapters.agents.equipping import Prepared, Prompt, equip, used
from hypervisor.adapters.agents.homes import AgentHomes, Home
from hypervisor.adapters.agents.mcp_files import McpAccess
from hypervisor.adapters.agents.scratch import Scratch
from hypervisor.adapters.agents.transcript import Channel, Redactor, Transcript
from hypervisor.adapters.cgroup import Group
from hypervisor.adapters.commands import Pipes
from hypervisor.adapters.runner import LocalRunner
from hypervisor.domain.agents.heard import Heard
from hypervisor.domain.agents.profile import AgentProfile
from hypervisor.domain.attempt import Ended
from hypervisor.domain.run import RunSpec
from hypervisor.domain.template import Item

NOTHING = Heard()
HANGING = 1.0  # seconds that one gets between the signals once its last word is said


class Station(NamedTuple):
    """What all attempts of one worker have in common."""

    profile: AgentProfile
    program: str  # "" if it was not found
    problem: str
    homes: AgentHomes
    given: Mapping[str, str]  # the user's environment
    told: Mapping[str, str]  # what Hypervisor adds to it
    mcp: McpAccess
    schema: str  # of a report, as text
    hear: Callable[[Heard, str], Heard]
    home: str = ""  # its name, for an agent that claims by itself


class AgentRunner(LocalRunner):
    def __init__(
        self, spec: RunSpec, station: Station, mark: str, group: Group | None, niceness: int
    ) -> None:
        super().__init__(spec, None, {}, mark, group, niceness)
        self.heard = Heard()
        self.hung = False
        self._mark = mark
        self._station = station
        self._prompt = Prompt("")
        self._known = Heard()
        self._redactor = Redactor()
        self._transcript: Transcript | None = None
        self._channels: list[Channel] = []
        self._last_word: float | None = None
        self._home: Home | None = None

    @property
    def hopeless(self) -> str | None:
        return self._station.problem or None

    def brief(
        self, text: str, session: str = "", budget: int | None = None, known: Heard = NOTHING
    ) -> None:
        """What the next agent is told, the session it goes on with and what is known of that,
        the money it may spend."""
        self._prompt, self._known = Prompt(text, session, budget), known

    def start(self, item: Item, token: str, output: str) -> None:
        """Without a token, it is an agent that claims by itself."""
        self.heard, self.hung, self._last_word = self._known, False, None
        self._begin()
        task, attempt = token.split(".")[:2] if token else ("", "")
        self._home = home = self._own_home(task or self._station.home)
        mark = f"{task}.{attempt}" if token else self._mark
        prepared = self._equipped(home, token, mark)
        env = {**prepared.env, **self._station.told, tree.MARK: mark}
        env |= {"HV_TASK": task} if task else {}
        os.chdir(prepared.cwd)
        self._redactor = Redactor(prepared.secrets)
        self._transcript = Transcript(output, prepared.secrets, self._listen)
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
        """One that starts anew finds nothing that another left: it may have been spoilt."""
        if not self._prompt.session:
            self._station.homes.remove(name)
        return self._station.homes.prepare(name)

    def _equipped(self, home: Home, token: str, mark: str) -> Prepared:
        station, spec = self._station, self._spec
        if spec.workspace == "scratch":
            copy = Scratch(home.scratch, spec.cwd)
            copy.make(anew=not self._prompt.session)
            spec = spec._replace(cwd=home.scratch)
        mcp = station.mcp._replace(token=token, mark=(tree.MARK, mark))
        return equip(
            station.profile, spec, home, self._prompt, mcp, station.given, station.schema,
            station.program,
        )  # fmt: skip

    def keep_changes(self, task: str, path: str) -> int:
        """Write what was changed in the scratch copy to a file; returns its size."""
        home = self._station.homes.at(task)
        copy = Scratch(home.scratch, self._spec.cwd)
        return copy.keep(path) if os.path.isdir(home.scratch) else 0

    def wait(self, seconds: float) -> Ended | None:
        until = time.monotonic() + seconds
        before, asked = self.heard, self.asked
        while True:
            now = time.monotonic()
            if self._is_hanging(now):
                self.hung = True
                return self.stop(HANGING)
            ended = super().wait(max(min(until, self._patience(until)) - now, 0))
            self._read()
            if ended is not None:
                return ended
            news = is_news(before, self.heard) or self.asked != asked
            if news or time.monotonic() >= until:
                return None

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
        return self._last_word + self._station.profile.grace

    def _listen(self, line: str) -> None:
        self.heard = self._cleaned(self.heard, self._station.hear(self.heard, line))
        if self.heard.ended and self._last_word is None:
            self._last_word = time.monotonic()
        elif not self.heard.ended:
            self._last_word = None

    def _cleaned(self, before: Heard, now: Heard) -> Heard:
        """What is understood may show more than what was printed: codes are resolved by then."""
        clean = self._redactor.clean
        if now.said is not before.said:
            now = now._replace(said=self._redactor.clean_more(now.said, before.said))
        if now.result is not before.result:
            now = now._replace(result=self._redactor.clean_value(now.result))
        if now.trouble is not before.trouble and now.trouble is not None:
            now = now._replace(trouble=now.trouble._replace(text=clean(now.trouble.text)))
        return now if now.now is before.now else now._replace(now=clean(now.now))

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
        if self._home is not None:
            self.heard = used(self._station.profile, self._home, self.heard)


def is_news(before: Heard, now: Heard) -> bool:
    """Whether the worker should look at once."""
    trouble = now.trouble.kind if now.trouble else ""
    known = before.trouble.kind if before.trouble else ""
    return now.session != before.session or now.ended != before.ended or trouble != known
