"""Retention: outputs are kept for a while and up to a size, never deleted while needed."""

from typing import NamedTuple

from hypervisor.domain import lifecycle
from hypervisor.domain.run import Output
from hypervisor.operations.context import Context

DAY = 86_400_000
LOOKED_UP = 500


class Collected(NamedTuple):
    """What `gc` deleted (or would, in a dry run) and what it kept."""

    outputs: int
    bytes: int
    kept: int
    kept_bytes: int


def gc(hv: Context, dry_run: bool = False, now: int | None = None) -> Collected:
    """Delete outputs that are old or too many; an unfinished task keeps all of its own."""
    at = hv.now() if now is None else now
    found = sorted(hv.outputs.all(), key=lambda output: output.changed_at)
    finished = _finished(hv, sorted({output.task for output in found}))
    doomed = _doomed(hv, found, finished, at)
    if not dry_run:
        for output in doomed:
            hv.outputs.remove(output.task, output.attempt)
        if doomed:
            data = {"outputs": len(doomed), "bytes": sum(output.size for output in doomed)}
            hv.store.note("gc", data, hv.actor, now=now)
    gone, all_bytes = sum(o.size for o in doomed), sum(o.size for o in found)
    return Collected(len(doomed), gone, len(found) - len(doomed), all_bytes - gone)


def _doomed(hv: Context, found: list[Output], finished: set[str], now: int) -> list[Output]:
    """Oldest first: all that are past their time, then as many as it takes to fit."""
    oldest_kept = now - hv.settings.keep_days * DAY
    too_much = sum(output.size for output in found) - hv.settings.keep_size
    doomed = []
    for output in found:
        if output.task in finished and (output.changed_at < oldest_kept or too_much > 0):
            doomed.append(output)
            too_much -= output.size
    return doomed


def _finished(hv: Context, tasks: list[str]) -> set[str]:
    """Which of these tasks have ended. One that the store does not know is left alone: it
    may belong to another store that shares the folder."""
    ended: set[str] = set()
    for start in range(0, len(tasks), LOOKED_UP):
        states = hv.store.states(tasks[start : start + LOOKED_UP])
        ended |= {task for task, state in states.items() if state in lifecycle.TERMINAL}
    return ended
