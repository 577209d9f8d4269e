"""Puts together a worker that runs commands or a function."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypervisor.resources.cgroup import Group
from hypervisor.runs.outputs.spool import Spool
from hypervisor.runs.processes.environment import environment_for
from hypervisor.runs.processes.journal import Journal
from hypervisor.runs.processes.launcher import group_of, mark_of
from hypervisor.runs.processes.runner import LocalRunner
from hypervisor.runs.spec import template_of
from hypervisor.runs.worker import Worker

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.queue.lease import Worker as Identity
    from hypervisor.runs.spec import RunSpec


def make_worker(hv: Context, me: Identity, batch: str, spec: RunSpec) -> Worker:
    """A worker that runs commands or a function."""
    settings, places = hv.settings, hv.launcher.places
    given, group, journal = belongings_of(hv, me, batch)
    env = environment_for(spec, given, batch, places.locks)
    template = template_of(spec) if spec.command else None
    runner = LocalRunner(spec, template, env, mark_of(me), group, settings.nice)
    outputs = Spool(places.data, me.id) if spec.command else hv.outputs
    return Worker(hv, me, batch, spec, runner, journal, outputs, settings, settings.capabilities)


def belongings_of(
    hv: Context, me: Identity, batch: str
) -> tuple[dict[str, str], Group | None, Journal]:
    """The environment that the batch was given, a cgroup of its own, and a journal."""
    given = hv.launcher.environment(batch)
    group = Group.make(group_of(me))
    journal = Journal(hv.launcher.places.runtime, me, group.path if group else None)
    return (dict(os.environ) if given is None else given), group, journal
