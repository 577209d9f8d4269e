"""Sees to it that notices arrive, without holding up the supervisor.

The notifier is part of the supervisor: it files what events ask for and, when
something is due, starts the deliverer. That is a process of its own, one per host
and store, so that a slow receiver holds up nobody; inside it a thread for each
rule, so that no receiver holds up another. It stays until nothing is left to be
delivered, longer than the supervisor if need be.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from hypervisor.core.errors import StoreError
from hypervisor.notifications.matching import Passed, collect
from hypervisor.notifications.notice import is_due
from hypervisor.notifications.notify import deliver, reachable
from hypervisor.notifications.sql import notices

if TYPE_CHECKING:
    from hypervisor.notifications.notice import Rule
    from hypervisor.queue.context import Context

PAUSE_MS = 300
PAGES = 10  # at a time: the supervisor has more to do
START_MS = 3_000  # before a deliverer is started again
MOST_AT_ONCE = 16
STEP = 0.1
REST = 0.3  # while every receiver is left alone for a time
LINGER = 2.0  # seconds that the deliverer stays with nothing to do

logger = logging.getLogger("hypervisor.notifications")


class Notifier:
    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._passed: Passed = {}
        self._looked_at: int | None = None
        self._started_at: int | None = None

    def tick(self, now: int) -> None:
        """File what the events since the last look ask for; have it delivered."""
        if self._looked_at is not None and 0 <= now - self._looked_at < PAUSE_MS:
            return
        self._looked_at = now
        self._passed = collect(self._hv, self._passed, PAGES)
        if self._passed and self._is_due(now):
            self._start(now)

    def last_look(self) -> None:
        """Before the supervisor ends: what happened since is not left for the next one."""
        self._looked_at = self._started_at = None
        with suppress(StoreError):
            self.tick(self._hv.now())

    def _is_due(self, now: int) -> bool:
        waiting = self._hv.store.read(notices.waiting)
        due = {name for name, (_, due_at) in waiting.items() if is_due(due_at, now)}
        return bool(due) and any(rule.name in due for rule in reachable(self._hv))

    def _start(self, now: int) -> None:
        if self._started_at is None or not 0 <= now - self._started_at < START_MS:
            self._started_at = now
            self._hv.launcher.start_notifier()


class Deliverer:
    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._passed: Passed = {}
        self._at_work: dict[str, threading.Thread] = {}
        self._is_ending = threading.Event()

    def run(self) -> None:
        """Deliver until nothing is left that could ever be delivered from here."""
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < LINGER:
            try:
                if self.tick(self._hv.now()):
                    idle_since = time.monotonic()
            except StoreError as error:
                logger.warning("%s", error)
                self._is_ending.wait(1.0)
            self._is_ending.wait(STEP if self._at_work else REST)
        self._is_ending.set()
        for thread in self._at_work.values():
            thread.join()

    def tick(self, now: int) -> bool:
        """Begin what is due. False if nothing waits and nobody is at work."""
        self._passed = collect(self._hv, self._passed)
        self._at_work = {name: each for name, each in self._at_work.items() if each.is_alive()}
        waiting = self._hv.store.read(notices.waiting)
        ours = [rule for rule in reachable(self._hv) if rule.name in waiting]
        for rule in ours:
            room = MOST_AT_ONCE - len(self._at_work)
            due = is_due(waiting[rule.name][1], now)
            if due and room > 0 and rule.name not in self._at_work:
                self._begin(rule)
        return bool(ours or self._at_work)

    def _begin(self, rule: Rule) -> None:
        def work() -> None:
            with suppress(StoreError):  # what was not written down is delivered again
                deliver(self._hv, rule, lambda: not self._is_ending.is_set())

        thread = threading.Thread(target=work, name=f"notify {rule.name}", daemon=True)
        self._at_work[rule.name] = thread
        thread.start()
