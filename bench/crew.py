"""Processes that start the same thing at the same moment and say when they were done."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from typing import Any, NamedTuple, Protocol

START_TIMEOUT = 120


class Job(Protocol):
    """Something picklable to be done by several processes at once."""

    def ready(self, seat: int, of: int) -> tuple[Callable[[], Any], Callable[[], None]]:
        """Open what is needed. Returns the timed part and the untimed clean-up."""
        ...


class Race(NamedTuple):
    """From the first start to the last finish, and each process's answer."""

    seconds: float
    answers: list[Any]


class CrewError(Exception):
    """A process could not do its part; the text is its traceback."""


class Crew:
    """As many processes as the largest size; each race uses the first few of them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        spawn = get_context("spawn")
        self._barriers = {size: spawn.Barrier(size) for size in set(sizes)}
        self._pipes = []
        self._processes = []
        for seat in range(max(sizes)):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(seat, theirs, self._barriers), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def race(self, size: int, job: Job) -> Race:
        for pipe in self._pipes[:size]:
            pipe.send((job, size))
        told = [pipe.recv() for pipe in self._pipes[:size]]
        failed = [answer for answer in told if isinstance(answer, str)]
        if failed:
            self._barriers[size].reset()
            raise CrewError(next((each for each in failed if not _is_broken(each)), failed[0]))
        starts, ends, answers = zip(*told, strict=True)
        return Race(max(ends) - min(starts), list(answers))

    def close(self) -> None:
        for pipe in self._pipes:
            with suppress(OSError):  # it may have been stopped together with us
                pipe.send(None)
        for process in self._processes:
            process.join(10)
            process.terminate()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_broken(told: str) -> bool:
    """Whether a process was only kept from starting, because another could not."""
    return "BrokenBarrierError" in told.rstrip().rpartition("\n")[2]


def _serve(seat: int, pipe: Any, barriers: dict[int, Any]) -> None:
    while (order := pipe.recv()) is not None:
        job, size = order
        try:
            pipe.send(_run(job, seat, size, barriers[size]))
        except Exception:
            barriers[size].abort()
            pipe.send(traceback.format_exc(limit=-3))


def _run(job: Job, seat: int, size: int, barrier: Any) -> tuple[float, float, Any]:
    work, clean_up = job.ready(seat, size)
    try:
        gc.collect()
        gc.freeze()  # what earlier jobs have imported must not slow this one down
        barrier.wait(START_TIMEOUT)
        start = time.monotonic()  # the same clock in all processes
        answer = work()
        return start, time.monotonic(), answer
    finally:
        clean_up()
