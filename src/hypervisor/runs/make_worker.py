"""Puts together a worker that runs commands or a function."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from hypervisor.resources.cgroup import Group
from hypervisor.runs.command_worker import command_worker
from hypervisor.runs.outputs.spool import Spool
from hypervisor.runs.processes.environment import environment_for
from hypervisor.runs.processes.journal import Journal
from hypervisor.runs.processes.launcher import group_of, mark_of
from hypervisor.runs.processes.runner import LocalRunner
from hypervisor.runs.retrying_store import patient
from hypervisor.runs.worker import Worker, WorkerContext

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Worker as Identity
    from hypervisor.runs.command_worker import ItemFor
    from hypervisor.runs.outputs.files import Outputs
    from hypervisor.runs.runner import Runner
    from hypervisor.runs.settlement import PartsOf
    from hypervisor.runs.spec import RunSpec


class WorkerStart(NamedTuple):
    """What a worker is made from."""

    hv: Context
    me: Identity
    batch: str
    spec: RunSpec
    user_env: dict[str, str]  # the environment in which the batch was submitted
    group: Group | None
    journal: Journal

    def context(self, runner: Runner, outputs: Outputs, agent: str = "") -> WorkerContext:
        return WorkerContext(
            patient(self.hv, runner),
            self.me,
            self.batch,
            self.spec,
            runner=runner,
            journal=self.journal,
            outputs=outputs,
            settings=self.hv.settings,
            agent=agent,
        )


def start_of(hv: Context, me: Identity, batch: str, spec: RunSpec) -> WorkerStart:
    """With the batch's environment, a new cgroup and a journal."""
    user_env = hv.launcher.environment(batch)
    group = Group.make(group_of(me))
    journal = Journal(hv.launcher.places.runtime, me, group.path if group else None)
    return WorkerStart(
        hv, me, batch, spec, dict(os.environ) if user_env is None else user_env, group, journal
    )


def make_worker(start: WorkerStart, item_for: ItemFor, parts_of: PartsOf) -> Worker[Any]:
    """A worker that runs commands or a function."""
    hv, spec, settings = start.hv, start.spec, start.hv.settings
    places = hv.launcher.places
    env = environment_for(spec, start.user_env, start.batch, places.locks)
    runner = LocalRunner(
        spec.cwd,
        spec.work,
        env,
        mark=mark_of(start.me),
        group=start.group,
        niceness=settings.nice,
    )
    outputs = Spool(places.data, start.me.id) if spec.command else hv.outputs
    return command_worker(start.context(runner, outputs), item_for, parts_of, settings.capabilities)
