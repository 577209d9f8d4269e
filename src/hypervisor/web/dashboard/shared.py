"""Renderings that several tabs share: after an event, they all ask for the same parts at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from hypervisor.core.records import NamedTuple

AGE = 0.5  # seconds that a rendering is handed out
MAX_KEPT = 500


class Rendering(NamedTuple):
    until: float
    text: asyncio.Task[str]


class Shared:
    """`forget` is called before a browser hears of a change: what is begun later shows it."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Rendering] = {}

    def forget(self) -> None:
        """Those that are being rendered still go to who has asked for them, and to nobody else."""
        self._kept.clear()

    async def get(self, key: Hashable, render: Callable[[], Coroutine[Any, Any, str]]) -> str:
        now = time.monotonic()
        kept = self._kept.get(key)
        if kept is None or now >= kept.until:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            kept = Rendering(now + AGE, asyncio.create_task(render()))
            self._kept[key] = kept
        return await asyncio.shield(kept.text)  # others may wait for it, too
