"""Retention: outputs are kept for a while and up to a size, never deleted while needed.

Homes of agents are of use while their task is unfinished, and go with it.
"""

from typing import NamedTuple

from hypervisor.agents.sql import sessions
from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context
from hypervisor.queue.sql import event_log
from hypervisor.runs import sql
from hypervisor.runs.spec import Output

DAY = 86_400_000
LOOKED_UP = 500


class Collected(NamedTuple):
    """What `gc` deleted (or would, in a dry run) and what it kept."""

    outputs: int
    bytes: int
    kept: int
    kept_bytes: int
    homes: int = 0  # of agents


def gc(hv: Context, dry_run: bool = False, now: int | None = None) -> Collected:
    """Delete outputs that are old or too many; an unfinished task keeps all of its own.

    Homes of agents go as soon as nobody needs them."""
    at = hv.now() if now is None else now
    found = sorted(hv.outputs.all(), key=lambda output: output.changed_at)
    finished = _finished(hv, sorted({output.task for output in found}))
    doomed = _to_delete(hv, found, finished, at)
    homes = _stale_homes(hv)
    if not dry_run:
        doomed = _delete(hv, doomed, homes, now)
    gone, all_bytes = sum(o.size for o in doomed), sum(o.size for o in found)
    return Collected(len(doomed), gone, len(found) - len(doomed), all_bytes - gone, len(homes))


def _delete(hv: Context, doomed: list[Output], homes: list[str], now: int | None) -> list[Output]:
    """Returns the outputs that are gone."""
    gone = hv.outputs.remove(doomed)
    for name in homes:
        hv.homes.remove(name)
    if gone or homes:
        data = {"outputs": len(gone), "bytes": sum(output.size for output in gone)}
        more = {"homes": len(homes)} if homes else {}
        hv.store.write_unsynced(event_log.note, "gc", {**data, **more}, hv.actor, hv.at(now))
    return gone


def _stale_homes(hv: Context) -> list[str]:
    """Homes of tasks that have ended, and of agents that claimed by themselves and are gone."""
    names = list(hv.homes.all())
    finished = _finished(hv, [name for name in names if name.isalnum()])
    return [name for name in names if name in finished or _owner_is_dead(hv, name)]


def _owner_is_dead(hv: Context, name: str) -> bool:
    pid, dash, start = name.partition("-")
    if not (dash and pid.isdecimal() and start.isdecimal()):
        return False
    return hv.probe.process_start(int(pid)) != int(start)


def _to_delete(hv: Context, found: list[Output], finished: set[str], now: int) -> list[Output]:
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
    """Which of these tasks have ended; the output of an agent that claimed by itself has its
    session in place of the task. What the store does not know is left alone: it may belong to
    another store that shares the folder."""
    ended: set[str] = set()
    for start in range(0, len(tasks), LOOKED_UP):
        some = tasks[start : start + LOOKED_UP]
        states = hv.store.read(sql.states, some)
        ended |= {task for task, state in states.items() if state in lifecycle.TERMINAL}
        ended |= hv.store.read(sessions.settled, [task for task in some if task not in states])
    return ended
