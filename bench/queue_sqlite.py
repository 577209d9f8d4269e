"""The rivals on one host: Huey, litequeue, persist-queue, and a script with mkdir locks."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

OFF, NORMAL, FULL = 0, 1, 2  # PRAGMA synchronous
LEVELS = {OFF: "OFF", NORMAL: "NORMAL", FULL: "FULL"}
BUSY_SECONDS = 60


def _insist(connection: Any, level: int) -> None:
    """A comparison is worth nothing if a connection syncs more or less than it says."""
    found = connection.execute("PRAGMA synchronous").fetchone()[0]
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if (found, mode) != (level, "wal"):
        raise RuntimeError(f"synchronous={found}, journal_mode={mode}; wanted {level}, wal")


class HueyQueue:
    """Huey's storage layer alone: its serializer, task registry and signals cost nothing here."""

    def __init__(self, folder: str, level: int) -> None:
        from huey.storage import SqliteStorage

        fsync = {OFF: False, NORMAL: None, FULL: True}[level]
        self._storage = SqliteStorage(
            filename=os.path.join(folder, "huey.db"), fsync=fsync, timeout=BUSY_SECONDS
        )
        if level == NORMAL:  # between Huey's two settings
            self._storage.conn.execute("PRAGMA synchronous=NORMAL")
        _insist(self._storage.conn, level)

    def put(self, items: Sequence[int]) -> None:
        for item in items:
            self._storage.enqueue(str(item).encode())

    def drain(self) -> list[int]:
        """Huey deletes a task as it hands it out: there is nothing left to complete."""
        done: list[int] = []
        while (data := self._storage.dequeue()) is not None:
            done.append(int(bytes(data)))
        return done

    def close(self) -> None:
        self._storage.close()


class Huey(NamedTuple):
    level: int
    pace: float = 1

    @property
    def name(self) -> str:
        return f"Huey {LEVELS[self.level]}"

    @property
    def group(self) -> str:
        return "durable" if self.level == FULL else "relaxed"

    def create(self, where: str) -> None:
        self.open(where, 0).close()

    def open(self, where: str, seat: int) -> HueyQueue:
        return HueyQueue(where, self.level)


class LitequeueQueue:
    def __init__(self, folder: str, level: int) -> None:
        from litequeue import LiteQueue

        self._queue = LiteQueue(os.path.join(folder, "lite.db"), timeout=BUSY_SECONDS)
        self._queue.conn.execute(f"PRAGMA synchronous={level}")
        _insist(self._queue.conn, level)

    def put(self, items: Sequence[int]) -> None:
        for item in items:
            self._queue.put(str(item))

    def drain(self) -> list[int]:
        done: list[int] = []
        while (message := self._queue.pop()) is not None:
            self._queue.done(message.message_id)
            done.append(int(message.data))
        return done

    def close(self) -> None:
        self._queue.conn.close()


class Litequeue(NamedTuple):
    level: int
    pace: float = 1

    @property
    def name(self) -> str:
        return f"litequeue {LEVELS[self.level]}"

    @property
    def group(self) -> str:
        return "durable" if self.level == FULL else "relaxed"

    def create(self, where: str) -> None:
        self.open(where, 0).close()

    def open(self, where: str, seat: int) -> LitequeueQueue:
        return LitequeueQueue(where, self.level)


class PersistQueueQueue:
    def __init__(self, folder: str) -> None:
        from persistqueue import SQLiteAckQueue

        # auto_resume puts other processes' unfinished items back: of no use with several.
        self._queue = SQLiteAckQueue(folder, auto_resume=False, timeout=BUSY_SECONDS)
        _insist(self._queue._putter, FULL)

    def put(self, items: Sequence[int]) -> None:
        for item in items:
            self._queue.put(item)

    def drain(self) -> list[int]:
        from persistqueue import Empty

        done: list[int] = []
        while True:
            try:
                item = self._queue.get(block=False, raw=True)
            except Empty:
                return done
            self._queue.ack(id=item["pqid"])
            done.append(item["data"])

    def close(self) -> None:
        self._queue.close()


class PersistQueue(NamedTuple):
    pace: float = 1
    name: str = "persist-queue FULL"
    group: str = "durable"

    def create(self, where: str) -> None:
        self.open(where, 0).close()

    def open(self, where: str, seat: int) -> PersistQueueQueue:
        return PersistQueueQueue(where)


class ScriptQueue:
    """A list in a text file; the process that can create an item's lock folder has it; then a
    result file."""

    def __init__(self, folder: str) -> None:
        self._list = os.path.join(folder, "queue.txt")
        self._lock = os.path.join(folder, "queue.lock")
        self._locks = os.path.join(folder, "locks")
        self._results = os.path.join(folder, "results")

    def put(self, items: Sequence[int]) -> None:
        for item in items:
            self._take_list()
            with open(self._list, "a") as file:
                file.write(f"{item}\n")
            os.rmdir(self._lock)

    def drain(self) -> list[int]:
        done: list[int] = []
        with open(self._list) as file:
            for line in file:
                item = line.strip()
                try:
                    os.mkdir(os.path.join(self._locks, item))
                except FileExistsError:
                    continue
                with open(os.path.join(self._results, item), "w") as result:
                    result.write("done\n")
                done.append(int(item))
        return done

    def _take_list(self) -> None:
        while True:
            try:
                return os.mkdir(self._lock)
            except FileExistsError:
                time.sleep(0.0005)

    def close(self) -> None: ...


class Script(NamedTuple):
    pace: float = 1
    name: str = "mkdir-lock script"
    group: str = "none"

    def create(self, where: str) -> None:
        for name in ("locks", "results"):
            os.mkdir(os.path.join(where, name))

    def open(self, where: str, seat: int) -> ScriptQueue:
        return ScriptQueue(where)
