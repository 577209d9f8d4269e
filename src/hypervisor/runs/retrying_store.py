"""The store as workers use it: calls are retried during an outage.

Between attempts a worker can wait: its results are safe in the journal. While an attempt runs, the
worker must keep watching it, so no call waits. A full disk is waited for until there is room; a
deleted or upgraded store is not waited for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING, Any, Concatenate, cast

from hypervisor.core.errors import STORE_LOST, StoreError, StoreFull
from hypervisor.queue.sql import event_log, receipts

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.runs.runner import Runner
    from hypervisor.store.database import Answer, Database, Given

STORE_PATIENCE, ASKED_PATIENCE = 60.0, 5.0  # seconds; the second once the worker should end
BETWEEN_TRIES = 0.5

logger = logging.getLogger("hypervisor.runs")


# A failed call may have taken effect; repeating one of these would add a second row. Everything
# else may be repeated: a result is recognized by its token, and the next claim releases tasks of a
# claim that got no answer.
NEVER_REPEATED = (
    event_log.note,
    receipts.append,
    receipts.append_of_attempt,
    receipts.append_under_claim,
)


class RetryingStore:
    """Forwards every call, and retries those that fail, unless they only append."""

    def __init__(self, store: Database, runner: Runner) -> None:
        self._store, self._runner = store, runner
        self._waits = True

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        return self._patient(value) if callable(value) else value

    def call(self, operation: Callable[..., Answer], *args: Any) -> Answer:
        """Run an operation of several transactions; a retry repeats all of it."""
        return cast("Answer", self._patient(operation)(self._store, *args))

    @contextmanager
    def without_retry(self) -> Iterator[None]:
        before, self._waits = self._waits, False
        try:
            yield
        finally:
            self._waits = before

    def _patient(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def patient(*args: Any, **named: Any) -> Any:
            try:
                return call(*args, **named)
            except StoreError as error:
                if args and args[0] in NEVER_REPEATED:
                    raise
                return self._again(call, args, named, error)

        return patient

    def _again(self, call: Callable[..., Any], args: Any, named: Any, first: StoreError) -> Any:
        error, since = first, time.monotonic()
        logger.warning("%s", first)
        while self._is_worth_waiting(error, time.monotonic() - since):
            self._runner.pause(BETWEEN_TRIES)
            try:
                return call(*args, **named)
            except StoreError as again:
                error = again
        raise error

    def _is_worth_waiting(self, error: StoreError, waited: float) -> bool:
        asked = self._runner.asked
        if not self._waits or asked == "stop" or isinstance(error, STORE_LOST):
            return False
        if asked:
            return waited < ASKED_PATIENCE
        return isinstance(error, StoreFull) or waited < STORE_PATIENCE


def patient(hv: Context, runner: Runner) -> Context:
    """The same context with a store that retries, until the runner is asked to stop."""
    context = copy(hv)
    context.store = cast("Database", RetryingStore(hv.store, runner))
    return context


def retry_outage(
    hv: Context,
    operation: Callable[Concatenate[Database, Given], Answer],
    *args: Given.args,
    **options: Given.kwargs,
) -> Answer:
    """Run an operation that takes a store; a retry repeats the whole operation, not single calls,
    so it must be able to run twice."""
    assert not options
    store: Any = hv.store
    return cast("Answer", store.call(operation, *args))


def without_retry(hv: Context) -> AbstractContextManager[None]:
    """While an attempt runs: its watch must not wait for the store."""
    store: Any = hv.store
    return cast("AbstractContextManager[None]", store.without_retry())


@contextmanager
def if_possible(hv: Context) -> Iterator[None]:
    """For optional writes: tried once, and errors are ignored."""
    with suppress(StoreError), without_retry(hv):
        yield
