"""Running the self-test: in a scratch store, at low priority, never in the store of the user."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.selftest import simulation
from hypervisor.selftest.bugs import BUGS
from hypervisor.selftest.host_facts import host_facts
from hypervisor.selftest.part import Outcome, PartResult, Setting, Skipped, Violation
from hypervisor.selftest.parts import NOT_COVERED, PARTS, Part

NICENESS = 10
BUG_SECONDS = 60.0  # at most, until a planted bug is found

Progress = Callable[[Part, str], None]


class Report(NamedTuple):
    """What was tried, and what held."""

    began: int  # milliseconds since 1970
    seconds: float
    seed: int
    held: bool  # nothing was violated, and every planted bug was found
    results: tuple[PartResult, ...]
    bugs: tuple[PartResult, ...]  # of parts with a planted bug: violated is right
    host: dict[str, str]
    not_covered: tuple[str, ...]


class Scope(NamedTuple):
    """What to run."""

    seconds: float
    seed: int
    only: Sequence[str] = ()
    prove: bool = False


def run_selftest(where: str, scope: Scope, progress: Progress = lambda part, text: None) -> Report:
    """Try to break a scratch store beside `where`: a folder, or a postgresql:// URL."""
    parts = _chosen(scope.only)
    os.nice(NICENESS)
    began, started = time.time_ns() // 1_000_000, time.monotonic()
    with _scratch(where) as (folder, kind, new_store):
        share = sum(part.share for part in parts) or 1.0
        base = Setting(folder, new_store, kind, scope.seed, 0.0)
        results = [
            _run(part, base._replace(seconds=scope.seconds * part.share / share), progress)
            for part in parts
        ]
        bugs = _prove(base, scope.only, progress) if scope.prove else []
        facts = host_facts(folder, new_store())
    held = all(each.outcome != "violated" for each in results)
    found = all(each.outcome == "violated" for each in bugs)
    seconds = time.monotonic() - started
    return Report(
        began,
        round(seconds, 1),
        scope.seed,
        held and found,
        tuple(results),
        tuple(bugs),
        facts,
        NOT_COVERED,
    )


def replay(where: str, saved: dict[str, Any]) -> str | None:
    """Play a failing history again. Returns what did not hold, None if everything did."""
    try:
        wanted, seed, steps = saved["store"], int(saved["seed"]), list(saved["steps"])
    except (KeyError, TypeError, ValueError):
        raise InvalidInput("not a history that `hv selftest` saved") from None
    with _scratch(where) as (folder, kind, new_store):
        if wanted != kind:
            raise InvalidInput(f"this history needs a {wanted} store: name one with --store")
        setting = Setting(folder, new_store, kind, seed, 0.0)
        try:
            simulation.replay({**saved, "steps": steps}, setting)
        except Violation as violation:
            return str(violation)
    return None


def _chosen(only: Sequence[str]) -> list[Part]:
    names = [part.name for part in PARTS]
    for name in only:
        if name not in names:
            raise InvalidInput(f"no part {name!r}; choose from {', '.join(names)}")
    return [part for part in PARTS if not only or part.name in only]


def _prove(base: Setting, only: Sequence[str], progress: Progress) -> list[PartResult]:
    """Every planted bug must be found. The store of a bug is PostgreSQL's only if it can be."""
    by_name = {part.name: part for part in PARTS}
    return [
        _run(by_name[bug.part], base._replace(seconds=BUG_SECONDS, bug=bug.name), progress)
        for bug in BUGS
        if (not only or bug.part in only) and (base.kind == "sqlite" or bug.on_postgres)
    ]


def _run(part: Part, base: Setting, progress: Progress) -> PartResult:
    folder = base.folder / (part.name if base.bug is None else f"{part.name}-{base.bug}")
    folder.mkdir()
    began = time.monotonic()
    setting = base._replace(folder=folder, began=began, tell=lambda text: progress(part, text))
    outcome: Outcome = "held"
    message, figures, replay = "", {}, None
    try:
        figures = part.run(setting)
    except Violation as violation:
        outcome, message, replay = "violated", str(violation), violation.replay
    except Skipped as skipped:
        outcome, message = "skipped", str(skipped)
    except (TimeoutError, EOFError) as error:
        outcome, message = "violated", f"a process did not answer: {error}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = round(time.monotonic() - began, 1)
    return PartResult(
        part.name, base.kind, outcome, base.seed, seconds, figures, message, replay, base.bug
    )


@contextmanager
def _scratch(where: str) -> Iterator[tuple[Path, Literal["sqlite", "postgres"], Callable[[], str]]]:
    """A folder, the kind of the database, and what makes an empty store in it."""
    is_url = "://" in where
    folder = Path(tempfile.mkdtemp(prefix="hv-selftest-", dir=None if is_url else where))
    made = iter(range(1_000_000))

    def new_file() -> str:
        place = folder / f"store{next(made)}"
        place.mkdir()
        return str(place / "store.db")

    try:
        if not is_url:
            yield folder, "sqlite", new_file
            return
        from hypervisor.selftest.scratch_database import scratch_databases  # needs psycopg

        with scratch_databases(where) as new_database:
            yield folder, "postgres", new_database
    finally:
        shutil.rmtree(folder, ignore_errors=True)
