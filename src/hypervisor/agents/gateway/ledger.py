"""The gateway's side of the store: admits calls, counts answers, starts cooldowns.

All methods run in one thread, in the order of their calls: an answer that was counted before the
next call is seen by it.
"""

from __future__ import annotations

import json
import os
from collections import deque
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from hypervisor.agents.budget import Limit, batch_limits, day_limits, price_of, task_limits
from hypervisor.agents.gateway.admission import (
    InFlight,
    Refusal,
    RefusalKind,
    Wait,
    check_budgets,
    check_claim,
    check_cooldown,
)
from hypervisor.agents.gateway.route import Upstream, route_of
from hypervisor.agents.gateway.token import parse
from hypervisor.agents.rate_limits import CooldownGuard
from hypervisor.agents.session import cost_micros
from hypervisor.agents.sql import cooldowns as cooldowns_sql
from hypervisor.agents.sql import spending
from hypervisor.agents.stream_state import StreamState
from hypervisor.core.errors import StoreError
from hypervisor.core.records import NamedTuple
from hypervisor.queue.agent_session import Tokens
from hypervisor.queue.sql import agent_sessions
from hypervisor.runs.spec import AgentSpec, agent_of, spec_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hypervisor.agents.cooldown import Cooldown
    from hypervisor.agents.profile import Price
    from hypervisor.agents.sql.spending import Spender
    from hypervisor.agents.stream_state import StreamError
    from hypervisor.queue.context import Context

DAY = 86_400_000
ACTOR = "gateway"
MAX_REMEMBERED = 10_000


class Admitted(NamedTuple):
    """A call that may be made; it must be finished with `finish`."""

    session: str
    agent: str
    account: str
    model: str
    upstream: Upstream
    env: Mapping[str, str]  # of the user: proxies and certificates


Admission = Admitted | Refusal | Wait


class SpendingLedger:
    def __init__(self, hv: Context) -> None:
        self._hv = hv
        self._in_flight: dict[str, InFlight] = {}
        self._environments: dict[str, dict[str, str]] = {}
        self._unwritten: deque[tuple[str, Tokens, int | None]] = deque()

    def admit(self, token: str, path: str) -> Admission:
        """Whether the session of this token may make a call now. `path` names its route."""
        self._write()
        store, now = self._hv.store, self._hv.now()
        spend = parse(token)
        spender = store.read(spending.spender, spend.session) if spend else None
        if spend is None or spender is None or not spend.matches(spender.spend_code):
            return Refusal("request", "unknown spending token")
        agent = _agent_spec(spender.spec)
        profile = self._hv.agent_settings.profiles.get(spender.agent)
        env = self._environment(spender.batch)
        route = route_of(profile, env, agent.model) if profile else None
        upstream = route.upstreams.get(path) if route else None
        if upstream is None:
            return Refusal("request", f"{spender.agent} has no key for /{path}")
        answer = self._check(spend.session, spender, agent, now)
        if isinstance(answer, Refusal):
            store.write_unsynced(spending.refuse, spend.session, *answer)
        if answer is not None:
            return answer
        flight = self._flight(spend.session)
        self._in_flight[spend.session] = flight._replace(calls=flight.calls + 1)
        return Admitted(spend.session, spender.agent, spender.account, agent.model, upstream, env)

    def _check(
        self, session: str, spender: Spender, agent: AgentSpec, now: int
    ) -> Refusal | Wait | None:
        lives = self._hv.probe.is_gone(spender.worker) is False
        return (
            check_claim(spender, lives, now)
            or check_budgets(self._limits(spender, agent, now), self._flight(session))
            or check_cooldown(self._cooldown(spender.account), now)
        )

    def _limits(
        self, spender: Spender, spec: AgentSpec, now: int
    ) -> Iterator[tuple[RefusalKind, list[Limit]]]:
        """The budgets that are set, with what has been used of them."""
        read, settings = self._hv.store.read, self._hv.agent_settings
        if spender.task and (spec.task_budget is not None or spec.task_tokens is not None):
            yield "task", task_limits(read(agent_sessions.spent, task=spender.task), spec)
        if spec.budget is not None or spec.tokens is not None:
            yield "batch", batch_limits(read(agent_sessions.spent, spender.batch), spec)
        if settings.day_budget is not None or settings.day_tokens is not None:
            today = read(agent_sessions.spent, since=now - now % DAY)
            yield "day", day_limits(today, settings.day_budget, settings.day_tokens)

    def _cooldown(self, account: str) -> Cooldown | None:
        every = self._hv.store.read(cooldowns_sql.every)
        return next((cooldown for cooldown in every if cooldown.account == account), None)

    def _environment(self, batch: str) -> dict[str, str]:
        """The one that the batch was submitted with; in the end it is removed before its agents
        have ended."""
        env = self._hv.launcher.environment(batch)
        if env is not None:
            self._environments[batch] = env
        return self._environments.get(batch) or dict(os.environ)

    def finish(self, call: Admitted, tokens: Tokens, model: str) -> None:
        """The call has ended, with this usage."""
        flight = self._flight(call.session)
        cost, _ = cost_micros(StreamState(tokens=tokens), self._price(call, model))
        if sum(tokens):
            flight = flight._replace(
                tokens=max(sum(tokens), flight.tokens or 0),
                cost_micros=max(cost or 0, flight.cost_micros),
            )
        if len(self._in_flight) > MAX_REMEMBERED:
            self._in_flight = {id: old for id, old in self._in_flight.items() if old.calls}
        self._in_flight[call.session] = flight._replace(calls=max(flight.calls - 1, 0))
        if sum(tokens):
            self._unwritten.append((call.session, tokens, cost))
            with suppress(StoreError):  # it is tried again before the next call is admitted
                self._write()

    def _write(self) -> None:
        while self._unwritten:
            self._hv.store.write_unsynced(spending.add_call, *self._unwritten[0])
            self._unwritten.popleft()

    def limited(self, call: Admitted, error: StreamError) -> None:
        """The provider has refused the account for a while."""
        CooldownGuard(self._hv.store, call.account, ACTOR).start(error, call.session)

    def _price(self, call: Admitted, model: str) -> Price | None:
        settings = self._hv.agent_settings
        profile = settings.profiles[call.agent]
        return price_of(profile, model if model in settings.prices else call.model, settings.prices)

    def _flight(self, session: str) -> InFlight:
        return self._in_flight.get(session, InFlight())


@lru_cache(256)
def _agent_spec(text: str) -> AgentSpec:
    return agent_of(spec_from(json.loads(text)))
