"""The pools of agents: which agent may work on a batch now, and how many of it.

An account that met a limit cools down. Once that time is over one agent goes first; when the
provider answers it, the cooldown is removed and the others follow.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from hypervisor.agents.account import account_of
from hypervisor.agents.cooldown import cooldown_text
from hypervisor.agents.routing import AUTO
from hypervisor.agents.session import OUTAGE, got_through
from hypervisor.agents.sql import cooldowns as cooldowns_sql
from hypervisor.agents.sql import sessions
from hypervisor.queue.pool import Pool
from hypervisor.queue.sql import event_log
from hypervisor.resources.allocation import Demand, cap_demands
from hypervisor.runs import sql as runs_sql
from hypervisor.runs.spec import BATCH, Pause
from hypervisor.store import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from hypervisor.agents.cooldown import Cooldown
    from hypervisor.agents.profile import AgentProfile
    from hypervisor.agents.session import AgentSession
    from hypervisor.queue.context import Context
    from hypervisor.runs.spec import RunSpec

STAGGER_MS = 300
ANSWERED_MS = 45_000  # one that has gone on for so long has been let through
MOST_IN_VAIN = 3
FEW = 20
ACTOR = "supervisor"


class AgentPools:
    def __init__(self, hv: Context, spec_of: Callable[[str], RunSpec]) -> None:
        self.hv, self.spec_of = hv, spec_of
        self.now = 0
        self.next_start = 0
        self.in_vain: Counter[Pool] = Counter()
        self.known: dict[Pool, set[str]] = {}
        self._noted: set[tuple[str, int]] = set()
        self._cooldowns: dict[str, Cooldown] | None = None
        self._accounts: dict[Pool, str] = {}

    def begin(self, now: int) -> None:
        """A new tick: what was known of cooldowns and accounts may have changed."""
        self.now, self._cooldowns = now, None
        self._accounts.clear()

    # Who may work on what

    def agents_of(self, batch: str) -> tuple[str, ...]:
        """All that may ever work on a batch; "" stands for commands and functions."""
        spec = self.spec_of(batch)
        named = () if spec.agent in ("", AUTO) else (spec.agent,)
        found = dict.fromkeys((*named, *spec.agents, spec.fallback))
        return tuple(name for name in found if name) if spec.agent else ("",)

    def serves(self, pool: Pool) -> bool:
        """Whether the pool may work on its batch at this time."""
        spec = self.spec_of(pool.batch)
        if pool.agent not in self.agents_of(pool.batch):
            return False
        if spec.agent in ("", AUTO, pool.agent):
            return True
        first = Pool(pool.batch, spec.agent)
        return pool.agent == spec.fallback and bool(
            self.cooldown_of(first) or self.is_probed(first)
        )

    def capabilities(self, pool: Pool) -> set[str]:
        """What workers of the pool can do. A fallback takes what agents that cool down would."""
        able = set(self.hv.settings.capabilities)
        if pool.agent:
            profile = self._profile(pool)
            able |= {*(profile.capabilities if profile else ()), f"agent:{pool.agent}"}
        if pool.agent and pool.agent == self.spec_of(pool.batch).fallback:
            others = self.agents_of(pool.batch)
            able |= {f"agent:{each}" for each in others if self.cooldown_of(Pool(pool.batch, each))}
        return able

    def expected(self, pool: Pool) -> int | None:
        """The memory that one agent may need: what was learned, else what its profile says."""
        learned = self.hv.store.read(settings.setting, f"peak agent {pool.agent}")
        profile = self._profile(pool)
        return int(learned) if learned is not None else profile.memory if profile else None

    # How many

    def limited(self, demands: list[Demand], limit_of: Mapping[str, int]) -> list[Demand]:
        """No more than the batch, the agent and its account may have."""
        pools = [demand.pool for demand in demands if demand.pool.agent]
        if not pools:
            return demands
        demands = [d if self.may_work(d.pool) else d._replace(workers=0) for d in demands]
        for account in sorted({self.account(pool) for pool in pools if self.is_probed(pool)}):
            demands = cap_demands(demands, {p for p in pools if self.account(p) == account}, 1)
        for batch in sorted({pool.batch for pool in pools}):
            demands = cap_demands(demands, {p for p in pools if p.batch == batch}, limit_of[batch])
        for name in sorted({pool.agent for pool in pools}):
            profile = self.hv.settings.agents.get(name)
            if profile is not None and profile.workers is not None:
                demands = cap_demands(
                    demands, {p for p in pools if p.agent == name}, profile.workers
                )
        return demands

    def may_work(self, pool: Pool) -> bool:
        return self.serves(pool) and self.cooldown_of(pool) is None

    def may_start(self) -> bool:
        """Agents are started one after the other; asking takes the turn."""
        late = self.now - self.next_start
        if -STAGGER_MS <= late < 0:  # earlier than that, and the clock was put back
            return False
        self.next_start = (self.next_start if 0 <= late < STAGGER_MS else self.now) + STAGGER_MS
        return True

    def _profile(self, pool: Pool) -> AgentProfile | None:
        return self.hv.settings.agents.get(pool.agent)

    # Cooldowns

    def account(self, pool: Pool) -> str:
        if pool not in self._accounts:
            profile = self._profile(pool)
            given = self.hv.launcher.environment(pool.batch)
            env = os.environ if given is None else given
            self._accounts[pool] = account_of(profile, env) if profile else ""
        return self._accounts[pool]

    def cooldown_of(self, pool: Pool) -> Cooldown | None:
        """The cooldown that keeps a pool from working."""
        cooldown = self._cooldown(pool)
        return cooldown if cooldown is not None and cooldown.until > self.now else None

    def is_probed(self, pool: Pool) -> bool:
        """Whether the cooldown is over but nobody has been let through yet."""
        cooldown = self._cooldown(pool)
        if cooldown is None or cooldown.until > self.now:
            return False
        found = self.hv.store.read(sessions.sessions, pool.batch, limit=FEW)
        if any(self._was_let_through(each, cooldown) for each in found):
            self.hv.store.write(cooldowns_sql.lift_brake, cooldown.account, ACTOR, self.now, False)
            self._cooldowns = None
            return False
        return True

    def _cooldown(self, pool: Pool) -> Cooldown | None:
        if self._cooldowns is None:
            self._cooldowns = {
                each.account: each for each in self.hv.store.read(cooldowns_sql.brakes)
            }
        return self._cooldowns.get(self.account(pool)) if self._cooldowns and pool.agent else None

    def _was_let_through(self, each: AgentSession, cooldown: Cooldown) -> bool:
        if each.account != cooldown.account or each.started_at < cooldown.until:
            return False
        if each.outcome is None and self.now - each.started_at >= ANSWERED_MS:
            return True
        return each.outcome not in ("quota", *OUTAGE) and got_through(each)

    def cooldowns_of(self, waiting: Collection[Pool]) -> list[Cooldown]:
        """The cooldowns that keep work waiting."""
        return list(
            {b.account: b for b in map(self.cooldown_of, waiting) if b is not None}.values()
        )

    def note_cooldowns(self, cooldowns: list[Cooldown]) -> None:
        """Nobody works because of these: said once of each."""
        for cooldown in cooldowns:
            if (cooldown.account, cooldown.until) not in self._noted:
                self._noted.add((cooldown.account, cooldown.until))
                text = cooldown_text(cooldown, self.now)
                data = {"account": cooldown.account, "until": cooldown.until, "said": text}
                self.hv.store.write_unsynced(event_log.note, "rest", data, ACTOR, self.now)

    # Agents that come in vain

    def watch(
        self, crew: Mapping[Pool, set[str]], leaving: set[str], waiting: Collection[Pool]
    ) -> None:
        """Workers that come, find nothing they can do and go would come again for ever."""
        for pool, before in self.known.items():
            here = crew.get(pool, set())
            gone = before - here
            if any(self.hv.store.read(sessions.sessions, worker=each, limit=1) for each in gone):
                self.in_vain[pool] = 0
            elif gone and not here and pool in waiting and self.may_work(pool):
                self.in_vain[pool] += 1
                if self.in_vain[pool] >= MOST_IN_VAIN:
                    self._give_up(pool)
        self.known = {pool: those - leaving for pool, those in crew.items() if pool.agent}

    def _give_up(self, pool: Pool) -> None:
        self.in_vain[pool] = 0
        why = (
            f"{MOST_IN_VAIN} times agents ({pool.agent}) came and began nothing; "
            "supervisor.log beside the store may say why. Then: hv resume"
        )
        self.hv.store.write(runs_sql.pause, Pause(BATCH, pool.batch, why, ACTOR, 0), self.now)
