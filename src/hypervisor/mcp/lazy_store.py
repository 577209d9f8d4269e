"""A store that is made when a tool is first called.

Clients start our server in every project they open; that alone must leave nothing behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

from hypervisor.queue.context import Context


class LazyStore:
    def __init__(self, connect: Callable[[], Context]) -> None:
        self._connect = connect
        self._context: Context | None = None
        self._making = threading.Lock()  # tools run in threads

    def stand_in(self, hv: Context) -> None:
        """Be the store of a context that has none."""
        hv.store = cast(Any, self)
        hv.parts = LazyParts(self._made)

    def close(self) -> None:
        if self._context is not None:
            self._context.close()

    def _made(self) -> Context:
        with self._making:
            if self._context is None:
                self._context = self._connect()
            return self._context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made().store, name)


class LazyParts:
    """The parts of a context that is made when one of them is first used."""

    def __init__(self, made: Callable[[], Context]) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made().parts, name)
