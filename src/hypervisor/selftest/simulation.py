"""A seeded simulation of queue and store: processes, clocks, disk and lost answers.

The store is real; the host under it is not. It runs in a child process, which has a simulated disk
under SQLite and may have a bug planted.
"""

from __future__ import annotations

import random
import shutil
import time
import traceback
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from hypervisor.selftest.crew import Child, ForkServer
from hypervisor.selftest.jobs import say
from hypervisor.selftest.part import Figures, Setting, Violation, ensure
from hypervisor.selftest.shrink import shrink
from hypervisor.selftest.simulated_world import Step, Store, World

STEPS = 80  # of a history
SHRINK_SECONDS = 20.0
# How often each step comes, and how many numbers it takes.
STEP_KINDS = {
    "add": (8, 2),
    "claim": (16, 3),
    "heartbeat": (4, 1),
    "complete": (14, 1),
    "fail": (3, 1),
    "release": (2, 1),
    "block": (1, 1),
    "receipt": (4, 1),
    "repeat": (4, 0),
    "cancel": (1, 1),
    "retry": (2, 1),
    "crash": (3, 1),
    "sweep": (3, 0),
    "advance": (6, 1),
    "set_clock": (2, 1),
    "cut": (1, 0),
    "cut_within": (2, 1),
    "fail_sync": (1, 0),
}


def run(setting: Setting) -> Figures:
    with closing(ForkServer("hypervisor.selftest.simulation")) as crew:
        where = setting.new_store()
        child = crew.start(
            "simulate",
            str(setting.folder),
            where,
            setting.kind,
            setting.seed,
            setting.seconds,
            bug=setting.bug,
        )
        return _follow(child, setting)


def replay(file: dict[str, Any], setting: Setting) -> None:
    """Play a saved history again. Raises its Violation, if it still comes."""
    with closing(ForkServer("hypervisor.selftest.simulation")) as crew:
        child = crew.start(
            "play_again",
            str(setting.folder),
            setting.new_store(),
            setting.kind,
            file["seed"],
            file["steps"],
            bug=file.get("bug"),
        )
        _follow(child, setting)


def _follow(child: Child, setting: Setting) -> Figures:
    figures: Figures = {}
    for message in child.hear_all(setting.seconds + 120):
        if "violation" in message:
            file = {"store": setting.kind, "bug": setting.bug, **message}
            raise Violation(message["violation"], replay={"part": "simulation", **file})
        figures = message
        setting.tell(f"{figures['steps']:,} steps")
    ensure(child.wait() == 0, "the simulation ended with an error")
    return figures


# In the child process


def simulate(folder: str, where: str, kind: str, seed: int, seconds: float) -> None:
    """Play histories until the time is over, or one fails."""
    field = _field(kind, where, Path(folder))
    until = time.monotonic() + seconds
    figures = {"histories": 0, "steps": 0}
    told = 0.0
    while not figures["histories"] or time.monotonic() < until:
        number = seed + figures["histories"]
        steps = generate(random.Random(number))
        problem = field.play(steps, number)
        if problem is not None:
            fails = partial(field.fails, seed=number)
            short = shrink(steps, fails, SHRINK_SECONDS)
            say({"violation": field.play(short, number) or problem, "seed": number, "steps": short})
            return
        figures["histories"] += 1
        figures["steps"] += len(steps)
        if time.monotonic() - told > 1:
            told = time.monotonic()
            say(figures)
    say(figures)


def play_again(folder: str, where: str, kind: str, seed: int, steps: list[Step]) -> None:
    problem = _field(kind, where, Path(folder)).play(steps, seed)
    say({"histories": 1, "steps": len(steps)} if problem is None else {"violation": problem})


def generate(dice: random.Random) -> list[Step]:
    names = list(STEP_KINDS)
    weights = [weight for weight, _ in STEP_KINDS.values()]
    chosen = dice.choices(names, weights, k=STEPS)
    return [[name, *(dice.randrange(1000) for _ in range(STEP_KINDS[name][1]))] for name in chosen]


class _Field:
    """Plays histories, each on an empty store."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._played = folder, 0

    def play(self, steps: Sequence[Step], seed: int) -> str | None:
        """What did not hold, None if everything did."""
        self._played += 1
        folder = self._folder / f"world{self._played}"
        folder.mkdir()
        try:
            World(self.store(folder), folder / "life0", seed).play(steps)
        except Violation as violation:
            return str(violation)
        except Exception as error:
            trace = traceback.extract_tb(error.__traceback__)[-1]
            return f"unexpected error: {error!r} ({Path(trace.filename).name}:{trace.lineno})"
        finally:
            shutil.rmtree(folder)
        return None

    def fails(self, steps: Sequence[Step], seed: int) -> bool:
        return self.play(steps, seed) is not None

    def store(self, folder: Path) -> Store:
        raise NotImplementedError


class _SqliteField(_Field):
    def __init__(self, folder: Path) -> None:
        from hypervisor.selftest.recorded_disk import put_under_sqlite
        from hypervisor.selftest.simulated_disk import SimulatedDisk

        super().__init__(folder)
        self._disk = SimulatedDisk()
        put_under_sqlite(self._disk)

    def store(self, folder: Path) -> Store:
        from hypervisor.store.sqlite import SqliteDatabase

        self._disk.begin()
        (folder / "life0").mkdir()
        return Store(
            lambda life, clocks: SqliteDatabase(str(life / "store.db"), clocks=clocks), self._disk
        )


class _PostgresField(_Field):
    def __init__(self, folder: Path, where: str) -> None:
        super().__init__(folder)
        self._where = where

    def store(self, folder: Path) -> Store:
        from hypervisor.selftest.simulated_time import PostgresInSimulatedTime

        return Store(lambda life, clocks: PostgresInSimulatedTime(self._where, clocks), None)


def _field(kind: str, where: str, folder: Path) -> _Field:
    return _SqliteField(folder) if kind == "sqlite" else _PostgresField(folder, where)
