"""The deliverer: a separate process, one per host and store, so that a slow receiver delays
nothing else, with a thread for each rule, so that no receiver delays another.

It runs until everything is delivered, longer than the supervisor if necessary.
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

MAX_CONCURRENT = 16
STEP = 0.1
IDLE_STEP = 0.3  # while no receiver is due
LINGER = 2.0  # seconds that the deliverer keeps running with nothing to do

logger = logging.getLogger("hypervisor.notifications")


class Deliverer:
    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._passed: Passed = {}
        self._threads: dict[str, threading.Thread] = {}
        self._is_ending = threading.Event()

    def run(self) -> None:
        """Deliver until nothing is left that can be delivered from here."""
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < LINGER:
            try:
                if self.tick(self._hv.now()):
                    idle_since = time.monotonic()
            except StoreError as error:
                logger.warning("%s", error)
                self._is_ending.wait(1.0)
            self._is_ending.wait(STEP if self._threads else IDLE_STEP)
        self._is_ending.set()
        for thread in self._threads.values():
            thread.join()

    def tick(self, now: int) -> bool:
        """Start due deliveries. False if nothing waits and nothing is being delivered."""
        self._passed = collect(self._hv, self._passed)
        self._threads = {
            name: thread for name, thread in self._threads.items() if thread.is_alive()
        }
        waiting = self._hv.store.read(notices.waiting)
        rules = [rule for rule in reachable(self._hv) if rule.name in waiting]
        for rule in rules:
            room = MAX_CONCURRENT - len(self._threads)
            due = is_due(waiting[rule.name][1], now)
            if due and room > 0 and rule.name not in self._threads:
                self._begin(rule)
        return bool(rules or self._threads)

    def _begin(self, rule: Rule) -> None:
        def work() -> None:
            with suppress(StoreError):  # a delivery that was not recorded is repeated
                deliver(self._hv, rule, lambda: not self._is_ending.is_set())

        thread = threading.Thread(target=work, name=f"notify {rule.name}", daemon=True)
        self._threads[rule.name] = thread
        thread.start()
