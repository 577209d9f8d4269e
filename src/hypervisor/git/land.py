"""Landing a batch by hand: after a look at it, its finished work goes into the merge queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core.errors import InvalidInput, NotFound, WorkspaceError
from hypervisor.core.records import NamedTuple
from hypervisor.git import sql
from hypervisor.git.preflight import check_clones
from hypervisor.git.saved_work import diff
from hypervisor.git.uncommitted import changes_to_land, why_not_yet
from hypervisor.git.workplace import Workplace, open_workplace
from hypervisor.queue.lifecycle import OPEN
from hypervisor.queue.sql import lanes, merging, queries
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.results import reports
from hypervisor.runs.spec import MERGE_MODES, GitSpec, RunSpec, spec_data, spec_from
from hypervisor.runs.supervise import supervise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypervisor.queue.context import Context
    from hypervisor.queue.task import Batch
    from hypervisor.runs.spec import MergeMode, TaskReport
    from hypervisor.store.database import Session


class TaskToLand(NamedTuple):
    """A finished task, and how many files it changed. `skipped`: why its work is not landed."""

    task: str
    title: str
    files: int
    skipped: str = ""


class Landing(NamedTuple):
    """What `land` does. `verify`: the commands that must succeed first; without any, nothing is
    tested. `unfinished`: how many tasks are still open, or need a person. `uncommitted`: the commit
    of the user's uncommitted changes that lands below the work of the tasks, if there is one."""

    batch: str
    mode: str
    target: str
    verify: tuple[str, ...]
    tasks: tuple[TaskToLand, ...]
    unfinished: int
    dry_run: bool = False
    uncommitted: str = ""

    @property
    def to_land(self) -> list[str]:
        return [each.task for each in self.tasks if not each.skipped]


def land(
    hv: Context,
    batch: str,
    merge: MergeMode = "",
    target: str = "",
    verify: Sequence[str] = (),
    *,
    dry_run: bool = False,
    now: int | None = None,
) -> Landing:
    """Merge the finished work of a batch, whatever its run said about merging."""
    stored = hv.store.read(queries.batch, batch)
    _check_host(hv, stored)
    spec = _checked(_new_spec(hv, stored, merge, target, tuple(verify)))
    place = open_workplace(hv, stored.id)._replace(spec=spec)
    where = place.destination(hv)
    if reason := why_not_yet(place, where):
        raise WorkspaceError(
            f"{reason}, then run hv land again; or use --merge branch, which puts them on a branch "
            "below hv/, as a commit of their own. Nothing has landed."
        )
    every = list(reports(hv, stored.id))
    tasks = tuple(_look(hv, place, report) for report in every if report.state == "done")
    unfinished = sum(report.state in (*OPEN, "review", "blocked") for report in every)
    planned = Landing(
        stored.name,
        where.mode,
        where.target,
        spec.git.verify,
        tasks,
        unfinished,
        dry_run,
        changes_to_land(place, where),
    )
    if not dry_run and planned.to_land:
        _submit(hv, stored, spec, planned.to_land, hv.at(now))
    return planned


def _check_host(hv: Context, batch: Batch) -> None:
    git = spec_from(batch.spec).git
    if git.exchange and git.host != hv.probe.host():
        raise InvalidInput(
            f"the repository of batch {batch.name!r} is on host {git.host}; land it there."
        )


def _new_spec(
    hv: Context, batch: Batch, merge: MergeMode, target: str, verify: tuple[str, ...]
) -> RunSpec:
    spec = spec_from(batch.spec)
    if spec.workspace != "clone":
        raise InvalidInput(
            f"the tasks of batch {batch.name!r} did not work in clones, so there is nothing to "
            "land; run them with --workspace clone."
        )
    if merge not in MERGE_MODES:
        modes = ", ".join(mode for mode in MERGE_MODES if mode)
        raise InvalidInput(f"unknown merge mode {merge[:40]!r} (one of {modes})")
    mode = merge or spec.git.merge or "branch"
    same = mode == (spec.git.merge or "branch")
    git: GitSpec = spec.git._replace(
        merge=mode,
        target=target or (spec.git.target if same else ""),
        verify=verify or spec.git.verify or hv.settings.merge_verify,
    )
    return spec._replace(git=git)


def _checked(spec: RunSpec) -> RunSpec:
    """Its base is in the hub, and may be there only."""
    clean = spec._replace(git=spec.git._replace(base="", include_dirty=False))
    return spec._replace(git=spec.git._replace(target=check_clones(clean).git.target))


def _look(hv: Context, place: Workplace, report: TaskReport) -> TaskToLand:
    """Whether there is anything of this task to land."""
    task, title = report.id, report.title
    entry = hv.store.read(sql.entry, task, report.attempts)
    if entry and entry.landed and entry.lane == place.destination(hv, task).lane:
        return TaskToLand(task, title, 0, f"already landed: {entry.landed[:12]}")
    try:
        files = len(diff(hv, task).files)
    except (NotFound, WorkspaceError) as error:
        return TaskToLand(task, title, 0, str(error))
    return TaskToLand(task, title, files, "" if files else "it changed nothing")


def _submit(hv: Context, batch: Batch, spec: RunSpec, tasks: list[str], now: int) -> None:
    """In one transaction; then the merger does the rest, as for a batch that merges by itself."""

    def submit(session: Session) -> None:
        lanes.start_merging(session, batch.id)
        runs_sql.declare(session, batch.name, spec_data(spec), hv.actor, now)
        for task in tasks:
            merging.land(session, task, hv.actor, now=now)

    with hv.launcher.submitting():
        hv.launcher.keep_environment(batch.id)
        hv.store.write(submit)
    hv.tasks_changed(tasks)
    supervise(hv, wait=False)
