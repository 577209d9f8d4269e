"""The supervisor's part in the gateway: it runs while an agent on this host uses it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypervisor.runs import sql as runs_sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypervisor.queue.context import Context
    from hypervisor.runs.spec import ActiveWorker, RunSpec

LOOK_MS = 200
START_MS = 1_000  # before a gateway is started again


class GatewayKeeper:
    def __init__(self, hv: Context, spec_of: Callable[[str], RunSpec]) -> None:
        self._hv, self._spec_of = hv, spec_of
        self._looked_at = self._started_at = 0

    def tick(self, now: int) -> None:
        if 0 <= now - self._looked_at < LOOK_MS:
            return
        self._looked_at = now
        if 0 <= now - self._started_at < START_MS:
            return
        workers = self._hv.store.read(runs_sql.at_work, self._hv.probe.boot())
        if any(worker.agent and self._is_served(worker) for worker in workers):
            self._started_at = now
            self._hv.launcher.start_gateway()

    def _is_served(self, worker: ActiveWorker) -> bool:
        agent = self._spec_of(worker.batch).agent
        profile = self._hv.agent_settings.profiles.get(worker.agent)
        if agent is None or profile is None:
            return False
        from hypervisor.agents.gateway.access import uses_gateway  # most runs have no agents

        user_env = self._hv.launcher.environment(worker.batch)
        env = os.environ if user_env is None else user_env
        return uses_gateway(agent, profile, self._hv.agent_settings, env)

    def last_look(self) -> None:
        """The gateway exits by itself."""
