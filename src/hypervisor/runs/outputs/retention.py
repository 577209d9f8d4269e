"""Retention: outputs are kept for some time and up to a total size, but as long as their task is
unfinished. Homes of agents are deleted when their task has ended.
"""

from hypervisor.core.records import NamedTuple
from hypervisor.queue import lifecycle
from hypervisor.queue.context import Context
from hypervisor.queue.sql import agent_sessions, event_log
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
    """Delete outputs beyond the limits of age and size; unfinished tasks keep all of theirs.

    Homes of agents are deleted as soon as they are not needed."""
    at = hv.now() if now is None else now
    outputs = sorted(hv.outputs.all(), key=lambda output: output.changed_at)
    finished = _finished(hv, sorted({output.task for output in outputs}))
    to_delete = _to_delete(hv, outputs, finished, at)
    homes = _stale_homes(hv)
    if not dry_run:
        to_delete = _delete(hv, to_delete, homes, now)
        _remove_shared(hv, at - int(hv.settings.keep_days * DAY))
    deleted_bytes, all_bytes = sum(o.size for o in to_delete), sum(o.size for o in outputs)
    return Collected(
        len(to_delete),
        deleted_bytes,
        len(outputs) - len(to_delete),
        all_bytes - deleted_bytes,
        len(homes),
    )


def _delete(hv: Context, outputs: list[Output], homes: list[str], now: int | None) -> list[Output]:
    """Returns the outputs that are gone."""
    deleted = hv.outputs.remove(outputs)
    for name in homes:
        hv.homes.remove(name)
    if deleted or homes:
        data = {"outputs": len(deleted), "bytes": sum(output.size for output in deleted)}
        more = {"homes": len(homes)} if homes else {}
        hv.store.write_unsynced(event_log.note, "gc", {**data, **more}, hv.actor, hv.at(now))
    return deleted


def _remove_shared(hv: Context, before: int) -> None:
    """What hosts keep for each other is deleted by age only: `keep_size` is about this disk."""
    from hypervisor.runs.outputs import sql as shared_sql

    shared = hv.outputs.shared
    while shared is not None:
        old = hv.store.read(shared_sql.ended_before, before, LOOKED_UP)
        finished = _finished(hv, sorted({task for task, _, _ in old}))
        gone = [(task, attempt) for task, attempt, _ in old if task in finished]
        if not gone or not shared.remove(gone) or len(old) < LOOKED_UP:
            return


def _stale_homes(hv: Context) -> list[str]:
    """Homes of tasks that have ended, and of pull agents whose process is gone."""
    names = list(hv.homes.all())
    finished = _finished(hv, [name for name in names if name.isalnum()])
    return [name for name in names if name in finished or _owner_is_dead(hv, name)]


def _owner_is_dead(hv: Context, name: str) -> bool:
    pid, dash, start = name.partition("-")
    if not (dash and pid.isdecimal() and start.isdecimal()):
        return False
    return hv.probe.process_start(int(pid)) != int(start)


def _to_delete(hv: Context, outputs: list[Output], finished: set[str], now: int) -> list[Output]:
    """All outputs that are too old, then the oldest ones until the rest fits."""
    oldest_kept = now - hv.settings.keep_days * DAY
    too_much = sum(output.size for output in outputs) - hv.settings.keep_size
    to_delete = []
    for output in outputs:
        if output.task in finished and (output.changed_at < oldest_kept or too_much > 0):
            to_delete.append(output)
            too_much -= output.size
    return to_delete


def _finished(hv: Context, tasks: list[str]) -> set[str]:
    """Which of these tasks have ended. The output of a pull agent has its session's id in place of
    a task's. Unknown ids are left alone: another store may share the folder."""
    ended: set[str] = set()
    for start in range(0, len(tasks), LOOKED_UP):
        page = tasks[start : start + LOOKED_UP]
        states = hv.store.read(sql.states, page)
        ended |= {task for task, state in states.items() if state in lifecycle.TERMINAL}
        ended |= hv.store.read(
            agent_sessions.settled, [task for task in page if task not in states]
        )
    return ended
