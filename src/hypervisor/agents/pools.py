"""The pools of agents: which agents may work on a batch now, and how many.

After a rate limit, an account cools down. When that is over, one agent goes first; once the
provider has answered it, the cooldown is removed and the others follow.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from hypervisor.agents.sql import cooldowns as cooldowns_sql
from hypervisor.queue.pause import BATCH, Pause
from hypervisor.queue.sql import agent_sessions, event_log
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.resources.allocation import Demand, Pool, cap_demands
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import AUTO

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from hypervisor.agents.cooldown import Cooldown
    from hypervisor.agents.profile import AgentProfile
    from hypervisor.queue.agent_session import AgentSession
    from hypervisor.queue.context import Context
    from hypervisor.runs.spec import RunSpec

STAGGER_MS = 300
ANSWERED_MS = 45_000  # a session that has run for this long was answered
MAX_FRUITLESS = 3
FEW = 20
ACTOR = "supervisor"


class AgentPools:
    def __init__(self, hv: Context, spec_of: Callable[[str], RunSpec]) -> None:
        self.hv, self.spec_of = hv, spec_of
        self.now = 0
        self.next_start = 0
        self.fruitless: Counter[Pool] = Counter()
        self.known: dict[Pool, set[str]] = {}
        self._noted: set[tuple[str, int]] = set()
        self._cooldowns: dict[str, Cooldown] | None = None
        self._accounts: dict[Pool, str] = {}
        # Of the workers that an agent may have on all hosts, those of this host.
        self.share_of_agent: Callable[[str, int], int] = lambda agent, workers: workers

    def begin(self, now: int) -> None:
        """Start a new tick: drop what was cached in the previous one."""
        self.now, self._cooldowns = now, None
        self._accounts.clear()

    # Which agents may work on a batch

    def agents_of(self, batch: str) -> tuple[str, ...]:
        """All agents that may work on a batch; "" stands for commands and functions."""
        agent = self.spec_of(batch).agent
        if agent is None:
            return ("",)
        named = () if agent.name == AUTO else (agent.name,)
        names = dict.fromkeys((*named, *agent.agents, agent.fallback))
        return tuple(name for name in names if name)

    def serves(self, pool: Pool) -> bool:
        """Whether the pool may work on its batch now."""
        agent = self.spec_of(pool.batch).agent
        if pool.agent not in self.agents_of(pool.batch):
            return False
        if agent is None or agent.name in (AUTO, pool.agent):
            return True
        first = Pool(pool.batch, agent.name)
        return pool.agent == agent.fallback and bool(
            self.cooldown_of(first) or self.is_probed(first)
        )

    def capabilities(self, pool: Pool) -> set[str]:
        """The capabilities of the pool's workers; a fallback has those of agents in a cooldown."""
        offered = set(self.hv.settings.capabilities)
        if pool.agent:
            profile = self._profile(pool)
            offered |= {*(profile.capabilities if profile else ()), f"agent:{pool.agent}"}
        agent = self.spec_of(pool.batch).agent
        if agent is not None and pool.agent and pool.agent == agent.fallback:
            others = self.agents_of(pool.batch)
            offered |= {
                f"agent:{other}" for other in others if self.cooldown_of(Pool(pool.batch, other))
            }
        return offered

    def expected(self, pool: Pool) -> int | None:
        """The memory that an agent may need: the learned peak, else the profile's value."""
        learned = self.hv.store.read(runs_sql.memory_peak, agent=pool.agent)
        profile = self._profile(pool)
        return learned if learned is not None else profile.memory if profile else None

    # How many

    def limited(self, demands: list[Demand], limit_of: Mapping[str, int]) -> list[Demand]:
        """Apply the limits of the batch, the agent and its account."""
        pools = [demand.pool for demand in demands if demand.pool.agent]
        if not pools:
            return demands
        demands = [d if self.may_work(d.pool) else d._replace(workers=0) for d in demands]
        for account in sorted({self.account(pool) for pool in pools if self.is_probed(pool)}):
            demands = cap_demands(demands, {p for p in pools if self.account(p) == account}, 1)
        for batch in sorted({pool.batch for pool in pools}):
            demands = cap_demands(demands, {p for p in pools if p.batch == batch}, limit_of[batch])
        for name in sorted({pool.agent for pool in pools}):
            profile = self.hv.agent_settings.profiles.get(name)
            if profile is not None and profile.workers is not None:
                most = self.share_of_agent(name, profile.workers)
                demands = cap_demands(demands, {p for p in pools if p.agent == name}, most)
        return demands

    def may_work(self, pool: Pool) -> bool:
        return self.serves(pool) and self.cooldown_of(pool) is None

    def may_start(self) -> bool:
        """Agents are started one at a time; returning True takes the turn."""
        late = self.now - self.next_start
        if -STAGGER_MS <= late < 0:  # negative if the clock was set back
            return False
        self.next_start = (self.next_start if 0 <= late < STAGGER_MS else self.now) + STAGGER_MS
        return True

    def _profile(self, pool: Pool) -> AgentProfile | None:
        return self.hv.agent_settings.profiles.get(pool.agent)

    # Cooldowns

    def account(self, pool: Pool) -> str:
        if pool not in self._accounts:
            from hypervisor.agents.profile import account_of

            profile = self._profile(pool)
            user_env = self.hv.launcher.environment(pool.batch)
            env = os.environ if user_env is None else user_env
            self._accounts[pool] = account_of(profile, env) if profile else ""
        return self._accounts[pool]

    def cooldown_of(self, pool: Pool) -> Cooldown | None:
        """The active cooldown of a pool's account."""
        cooldown = self._cooldown(pool)
        return cooldown if cooldown is not None and cooldown.until > self.now else None

    def is_probed(self, pool: Pool) -> bool:
        """Whether the cooldown is over but the provider has not answered yet."""
        cooldown = self._cooldown(pool)
        if cooldown is None or cooldown.until > self.now:
            return False
        sessions = self.hv.store.read(agent_sessions.sessions, pool.batch, limit=FEW)
        if any(self._was_answered(session, cooldown) for session in sessions):
            self.hv.store.write(
                cooldowns_sql.end_cooldown, cooldown.account, ACTOR, self.now, False
            )
            self._cooldowns = None
            return False
        return True

    def _cooldown(self, pool: Pool) -> Cooldown | None:
        if self._cooldowns is None:
            self._cooldowns = {
                cooldown.account: cooldown for cooldown in self.hv.store.read(cooldowns_sql.every)
            }
        return self._cooldowns.get(self.account(pool)) if self._cooldowns and pool.agent else None

    def _was_answered(self, session: AgentSession, cooldown: Cooldown) -> bool:
        if session.account != cooldown.account or session.started_at < cooldown.until:
            return False
        if session.outcome is None and self.now - session.started_at >= ANSWERED_MS:
            return True
        from hypervisor.agents.session import OUTAGE, was_answered

        return session.outcome not in ("quota", *OUTAGE) and was_answered(session)

    def cooldowns_of(self, waiting: Collection[Pool]) -> list[Cooldown]:
        """The active cooldowns of these pools."""
        return list(
            {b.account: b for b in map(self.cooldown_of, waiting) if b is not None}.values()
        )

    def note_cooldowns(self, cooldowns: list[Cooldown]) -> None:
        """Log each cooldown that stops work, once."""
        for cooldown in cooldowns:
            if (cooldown.account, cooldown.until) not in self._noted:
                from hypervisor.agents.cooldown import cooldown_text

                self._noted.add((cooldown.account, cooldown.until))
                text = cooldown_text(cooldown, self.now)
                data = {"account": cooldown.account, "until": cooldown.until, "message": text}
                self.hv.store.write_unsynced(event_log.note, "cooldown_wait", data, ACTOR, self.now)

    # Agents that start but do nothing

    def watch(
        self, workers_of: Mapping[Pool, set[str]], leaving: set[str], waiting: Collection[Pool]
    ) -> None:
        """Pause a batch whose workers keep starting and exiting without a session."""
        for pool, before in self.known.items():
            here = workers_of.get(pool, set())
            exited = before - here
            if any(
                self.hv.store.read(agent_sessions.sessions, worker=worker, limit=1)
                for worker in exited
            ):
                self.fruitless[pool] = 0
            elif exited and not here and pool in waiting and self.may_work(pool):
                self.fruitless[pool] += 1
                if self.fruitless[pool] >= MAX_FRUITLESS:
                    self._give_up(pool)
        self.known = {pool: workers - leaving for pool, workers in workers_of.items() if pool.agent}

    def _give_up(self, pool: Pool) -> None:
        self.fruitless[pool] = 0
        reason = (
            f"{MAX_FRUITLESS} agents ({pool.agent}) in a row claimed no task; see supervisor.log "
            f"next to the store, then run: hv resume"
        )
        self.hv.store.write(pauses_sql.pause, Pause(BATCH, pool.batch, reason, ACTOR, 0), self.now)
