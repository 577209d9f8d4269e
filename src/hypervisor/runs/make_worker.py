"""Puts together a worker that runs commands or a function."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hypervisor.core.records import NamedTuple
from hypervisor.resources.cgroup import Group
from hypervisor.runs.command_worker import command_worker
from hypervisor.runs.outputs.spool import Spool
from hypervisor.runs.processes.environment import environment_for
from hypervisor.runs.processes.journal import Journal
from hypervisor.runs.processes.launcher import group_of, mark_of
from hypervisor.runs.processes.runner import LocalRunner
from hypervisor.runs.retrying_store import patient
from hypervisor.runs.sandbox.level import NO_FUNCTIONS, chosen_level
from hypervisor.runs.unfenced import Unfenced
from hypervisor.runs.worker import Worker, WorkerContext

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Worker as Identity
    from hypervisor.runs.command_worker import ItemFor
    from hypervisor.runs.outputs.files import Outputs
    from hypervisor.runs.runner import Runner
    from hypervisor.runs.sandbox.prepare import Sandbox
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

    @property
    def folder(self) -> str:
        """Where the worker starts: the folder of the batch, unless only its clones are here."""
        cwd = self.spec.cwd
        return "/" if self.spec.git.exchange and not os.path.isdir(cwd) else cwd

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
            fence=_fence(self.hv, self.spec, self.me.name),
        )


def _fence(hv: Context, spec: RunSpec, name: str) -> Unfenced:
    if not hv.store.is_shared:
        return Unfenced()
    from hypervisor.runs.fence import fence_for  # only hosts that share a store need it

    return fence_for(hv, spec.on_cut or hv.settings.on_cut, name)


def start_of(hv: Context, me: Identity, batch: str, spec: RunSpec) -> WorkerStart:
    """With the batch's environment, a new cgroup and a journal."""
    user_env = hv.launcher.environment(batch)
    group = Group.make(group_of(me))
    journal = Journal(hv.launcher.places.runtime, me, group.path if group else None)
    return WorkerStart(
        hv, me, batch, spec, dict(os.environ) if user_env is None else user_env, group, journal
    )


def sandbox_of(start: WorkerStart, profile: str = "") -> Sandbox | None:
    """The sandbox of a worker's attempts, if they are to have one. `profile`: the level of the
    agent's profile."""
    settings = start.hv.settings.sandbox
    level = chosen_level(start.spec.sandbox, profile, settings)
    if level == "none":
        return None
    from hypervisor.runs.sandbox.prepare import Sandbox, worker_folder

    worker = worker_folder(start.me.pid, start.me.pid_start)
    places = start.hv.launcher.places
    sandbox = Sandbox(level, settings, places, worker=worker, user_env=start.user_env)
    if start.spec.function:
        sandbox.problem = NO_FUNCTIONS
    return sandbox


def make_worker(start: WorkerStart, item_for: ItemFor, parts_of: PartsOf) -> Worker[Any]:
    """A worker that runs commands or a function."""
    hv, spec, settings = start.hv, start.spec, start.hv.settings
    places = hv.launcher.places
    env = environment_for(spec, start.user_env, start.batch, places.locks)
    runner = LocalRunner(
        start.folder,
        spec.work,
        env,
        mark=mark_of(start.me),
        group=start.group,
        niceness=settings.nice,
        sandbox=sandbox_of(start),
    )
    outputs = Spool(places.data, start.me.id, hv.outputs.shared) if spec.command else hv.outputs
    return command_worker(start.context(runner, outputs), item_for, parts_of, settings.capabilities)
