"""The sender of traces: a process of its own, one per host and store.

It reads the event log, makes spans of what has ended on this host, sends them, and then notes how
far it is. What the receiver did not accept is sent again later; after a crash in between, the same
spans with the same ids. It ends when there is nothing new for a while.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.agents.tool_times import tool_times
from hypervisor.core.errors import HypervisorError, NotFound
from hypervisor.monitoring.telemetry import sql
from hypervisor.monitoring.telemetry.make_spans import (
    attempt_span,
    batch_span,
    task_span,
    tool_spans,
)
from hypervisor.monitoring.telemetry.progress import Sent, save, sent
from hypervisor.monitoring.telemetry.span import Span
from hypervisor.queue.event import Event
from hypervisor.queue.lifecycle import TERMINAL, UNFINISHED
from hypervisor.queue.sql import queries
from hypervisor.queue.sql.settlement import OUTCOMES
from hypervisor.runs.telemetry_settings import telemetry_of

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

PAGE = 500  # events
AT_ONCE = 512  # spans
LINGER, STEP = 5.0, 0.5  # seconds

Export = Callable[[Sequence[Span]], bool]
logger = logging.getLogger("hypervisor.monitoring")


class TraceSender:
    def __init__(
        self, hv: Context, environment: Mapping[str, str], export: Export | None = None
    ) -> None:
        self._hv, self._export = hv, export
        self._wanted = telemetry_of(hv.settings.telemetry, environment)
        self._host = hv.probe.host()

    def run(self) -> None:
        """Send until nothing has happened for a while, or the receiver does not answer."""
        if self._wanted is None or not self._connect():
            return
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < LINGER:
            try:
                before = sent(self._hv)
                if not self.send_page(before):
                    return
                if sent(self._hv) != before:
                    idle_since = time.monotonic()
                    continue
            except HypervisorError as error:
                logger.warning("traces were not sent: %s", error)
                return
            time.sleep(STEP)

    def send_page(self, before: Sent) -> bool:
        """Send what the next events are about. False: it was not accepted."""
        events = queries.events(self._hv.store, before.after, PAGE)
        spans = list(self._spans(events))
        ended = [event.batch for event in events if event.state in TERMINAL and event.batch]
        open_batches = tuple(dict.fromkeys((*before.open, *ended)))
        if len(events) < PAGE:  # only at the end of the log is it known whether a batch is over
            over = dict(self._batches(open_batches))
            spans += [span for span in over.values() if span]
            open_batches = tuple(id for id in open_batches if id not in over)
        for start in range(0, len(spans), AT_ONCE):
            if not self._send(spans[start : start + AT_ONCE]):
                return False
        now_sent = Sent(events[-1].seq if events else before.after, open_batches)
        if now_sent != before:
            save(self._hv, now_sent)
        return True

    def _connect(self) -> bool:
        assert self._wanted is not None
        if self._export is None:
            try:
                from hypervisor.monitoring.telemetry.otlp import exporter
            except ImportError:
                from hypervisor.core.extras import install_command

                logger.warning("traces need OpenTelemetry: %s", install_command("telemetry"))
                return False
            self._export = exporter(self._wanted)
        return True

    def _send(self, spans: Sequence[Span]) -> bool:
        assert self._export is not None
        if self._export(spans):
            return True
        logger.warning("the receiver did not accept traces; they are sent again later")
        return False

    def _spans(self, events: Sequence[Event]) -> Iterator[Span]:
        """Of the attempts and tasks that ended with these events, on this host."""
        assert self._wanted is not None
        content = self._wanted.content
        of_task = self._hv.store.read(sql.attempts, [event.task for event in events if event.task])
        titles = self._titles(events) if content else {}
        for event in events:
            attempts = of_task.get(event.task, [])
            own = next((a for a in attempts if a.number == event.attempt), None)
            if own and own.ended_at is not None and own.host == self._host and _ends(event, own):
                yield attempt_span(own, content)
                yield from tool_spans(own, tool_times(self._tools(own)))
            if event.state in TERMINAL and attempts and attempts[-1].host == self._host:
                title = titles.get(event.task, "")
                yield task_span(attempts, event.state or "", event.at, title)

    def _titles(self, events: Sequence[Event]) -> dict[str, str]:
        ids = sorted({event.task for event in events if event.state in TERMINAL})
        return {task.id: task.title for task in self._hv.store.read(queries.tasks, ids)}

    def _tools(self, attempt: sql.TracedAttempt) -> str:
        if not attempt.agent:
            return ""
        with suppress(OSError, HypervisorError):
            path = self._hv.outputs.tools_path(attempt.task, attempt.number)
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        return ""

    def _batches(self, ids: Sequence[str]) -> Iterator[tuple[str, Span | None]]:
        """Those that are over, with their spans; None if that is another host's, or it is gone."""
        assert self._wanted is not None
        for id in ids:
            try:
                batch = self._hv.store.read(queries.batch, id)
            except NotFound:
                yield id, None
                continue
            states = self._hv.store.read(queries.stats, id, self._hv.now(), False).states
            if any(states.get(state) for state in UNFINISHED):
                continue
            last = self._hv.store.read(sql.last_of_batch, id)
            is_ours = last is not None and last[1] == self._host
            content = self._wanted.content
            yield id, batch_span(batch, states, last[0], content) if last and is_ours else None


def _ends(event: Event, attempt: sql.TracedAttempt) -> bool:
    """Whether it ended with this event; a task can also be cancelled after its last attempt."""
    return OUTCOMES.get(event.kind) == attempt.outcome
