"""Verifies a stack of commits: several prefixes at a time, until it is clear what may land."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from hypervisor.git.bench import Cancelled
from hypervisor.git.culprit import Plan, Result, Run
from hypervisor.git.verify import Verdict, Verifier

MAX_WIDTH = 8  # verifications of one lane at a time
LOOK = 1.0  # seconds between looks at whether it is still needed


@dataclass
class Trial:
    """`verdicts` has all that were seen of a prefix, in order."""

    result: Result
    verdicts: dict[int, list[Verdict]] = field(default_factory=dict)

    def last(self, prefix: int) -> Verdict:
        return self.verdicts[prefix][-1]


class _Running:
    """The verifications in progress."""

    def __init__(self, verifier: Verifier, commits: Sequence[str], pool: ThreadPoolExecutor):
        self._verifier, self._commits, self._pool = verifier, commits, pool
        self._runs: dict[Future[Verdict], tuple[Run, threading.Event]] = {}

    @property
    def runs(self) -> frozenset[Run]:
        return frozenset(run for run, cancel in self._runs.values() if not cancel.is_set())

    def start(self, run: Run) -> None:
        cancel = threading.Event()
        future = self._pool.submit(
            self._verifier.verify, self._commits[run.prefix], again=run.again, cancel=cancel
        )
        self._runs[future] = (run, cancel)

    def ended(self) -> list[tuple[Run, Verdict]]:
        """Wait a moment for one to end; those that were stopped have no verdict."""
        verdicts = []
        for future in wait(self._runs, LOOK, return_when=FIRST_COMPLETED).done:
            run, _ = self._runs.pop(future)
            try:
                verdicts.append((run, future.result()))
            except Cancelled:
                continue
        return verdicts

    def stop(self, plan: Plan | None = None) -> None:
        """Stop all, or those that the plan no longer needs."""
        for run, cancel in self._runs.values():
            if plan is None or plan.useless(run):
                cancel.set()


def try_stack(
    verifier: Verifier,
    commits: Sequence[str],
    width: Callable[[], int] = lambda: 1,
    is_needed: Callable[[], bool] = lambda: True,
) -> Trial | None:
    """`commits`: the target as it is, then each prefix of the stack on it. None: it `is_needed` no
    longer, and what was running has been stopped."""
    known = verifier.known(commits[0])
    plan = Plan(len(commits) - 1, base_passed=known is not None and known.passed)
    verdicts: dict[int, list[Verdict]] = {}
    with ThreadPoolExecutor(MAX_WIDTH, thread_name_prefix="verify") as pool:
        running = _Running(verifier, commits, pool)
        try:
            while (result := plan.result) is None:
                if not is_needed():
                    return None
                for run in plan.wanted(min(width(), MAX_WIDTH), running.runs):
                    running.start(run)
                for run, verdict in running.ended():
                    verdicts.setdefault(run.prefix, []).append(verdict)
                    plan.record(run, verdict.passed)
                running.stop(plan)
        finally:
            running.stop()
    return Trial(result, verdicts)
