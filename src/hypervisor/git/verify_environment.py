"""The environment of verification commands: like that of the attempts whose work they check."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypervisor.runs.processes.environment import KEPT_WHEN_CLEAN, environment_for

if TYPE_CHECKING:
    from hypervisor.queue.context import Context
    from hypervisor.runs.spec import RunSpec


def verify_environment(hv: Context, spec: RunSpec, batch: str) -> dict[str, str]:
    """What an agent wrote gets no more of the user's environment than programs need, and what
    [merge] env names: everything else may be a secret."""
    given = hv.launcher.environment(batch)
    env = environment_for(spec, dict(os.environ) if given is None else given, batch)
    if not spec.agent:
        return env
    kept = {*KEPT_WHEN_CLEAN, *hv.settings.merge_env, "HV_BATCH"}
    return {name: value for name, value in env.items() if name in kept or name.startswith("LC_")}
