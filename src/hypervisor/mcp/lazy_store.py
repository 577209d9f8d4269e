"""A store that is made when a tool is first called.

Clients start our server in every project they open; that alone must leave nothing behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class StoreLater:
    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._store: Any = None
        self._making = threading.Lock()  # tools run in threads

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def __getattr__(self, name: str) -> Any:
        with self._making:
            if self._store is None:
                self._store = self._make()
        return getattr(self._store, name)
