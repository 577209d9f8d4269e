"""What the tools of one client share: the open store, and the claims they answer for.

Over stdio the claims belong to the client's `hv mcp`: the server keeps them alive and
gives them back when that ends. A claim that was handed to us (HV_TOKEN), or
is made in the name of a keeper (HV_KEEPER_PID), belongs to that process; we end
it only when told to. Over HTTP a claim belongs to no process: each call that
names it renews its lease.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from hypervisor.core.errors import HypervisorError, InvalidInput, LeaseLost, WrongState
from hypervisor.queue.claim import (
    Done,
    Turn,
    claim,
    complete,
    complete_and_claim,
    heartbeat,
    release,
)
from hypervisor.queue.context import Context
from hypervisor.queue.lease import Lease, parse_token
from hypervisor.queue.sql import claims as claims_sql
from hypervisor.queue.sql import event_log, queries, settlement
from hypervisor.runs.supervise import supervise
from hypervisor.skills.folders import Place, places

SECOND_LOOK = 1.0
BEAT = 60.0  # seconds between heartbeats: many fit into a lease
DEFAULT_CALLER = "agent"
MOST_REMEMBERED = 10_000


class Given(NamedTuple):
    """What the process that started us wants: see HV_TOKEN and its like in docs/mcp.md."""

    token: str = ""
    keeper: tuple[str, int] | None = None
    batch: str = ""
    pull: int | None = None
    capabilities: tuple[str, ...] = ()
    hide: str = ""  # marks of secrets that must not be kept


NOTHING_GIVEN = Given()


class Ask(NamedTuple):
    """Who asked for tasks, and for which."""

    worker: dict[str, Any]
    wanted: dict[str, Any]


def given_by(environment: Mapping[str, str]) -> Given:
    keeper = environment.get("HV_KEEPER_PID", "")
    pull = environment.get("HV_PULL", "")
    if any(text and not text.isdecimal() for text in (keeper, pull)):
        raise InvalidInput("HV_KEEPER_PID and HV_PULL must be numbers.")
    can = environment.get("HV_CAPABILITIES", "")
    return Given(
        environment.get("HV_TOKEN", ""),
        (environment.get("HV_KEEPER_NAME") or "keeper", int(keeper)) if keeper else None,
        environment.get("HV_BATCH", ""),
        int(pull) if pull else None,
        tuple(each.strip() for each in can.split(",") if each.strip()),
        environment.get("HV_HIDE", ""),
    )


class ClaimRegistry:
    """One client's claims. All methods may be called from any thread.

    `pid` is the process that claims belong to, 0 for none. `folder` and `environment` are the
    client's. `report` is told of every change, as what `restore` takes."""

    def __init__(
        self,
        hv: Context,
        given: Given = NOTHING_GIVEN,
        pid: int | None = None,
        *,
        folder: str = "",
        environment: Mapping[str, str] = os.environ,
        report: Callable[[dict[str, Any]], None] = lambda claims: None,
    ) -> None:
        self.hv, self.given = hv, given
        self._folder, self._environment = folder, environment
        self.pid = os.getpid() if pid is None else pid
        self.handed_out = 0
        self._report = report
        self._second_look: threading.Timer | None = None
        self._held: set[str] = set()
        self._asked_for: dict[str, Ask] = {}  # by the token of what it got
        self._claiming = threading.Lock()  # what is claimed is held before we close
        self._closed = threading.Event()

    def path(self, path: str) -> str:
        """A path that the client gave, from where it is."""
        return os.path.join(self._folder, path)

    def skill_places(self) -> tuple[Place, ...]:
        """Where the client's skills are."""
        return places(self._environment, self._folder)

    def restore(self, claims: dict[str, Any]) -> None:
        """Answer for what another server answered for before it died. Claims of the client that
        it never heard of go back."""
        with self._claiming:
            self.handed_out = claims["handed_out"]
            self._asked_for = {token: Ask(*ask) for token, ask in claims["asked"].items()}
            self._held = set(self._asked_for)
        if self.given.keeper or self.renews:
            return
        known = {(token.task, token.attempt) for token in map(parse_token, self._held)}
        now = self.hv.now()
        for holder in self.hv.store.read(claims_sql.holders, self.hv.probe.boot(), now):
            worker = holder.worker
            ours = worker.pid == self.pid and self.hv.probe.is_gone(worker) is False
            if ours and (holder.task, holder.attempt) not in known:
                self.hv.store.write(
                    settlement.reclaim, holder, "its client never heard of it", now, False
                )

    @property
    def renews(self) -> bool:
        """Nobody else keeps the claims alive that are made here."""
        return not self.pid

    @property
    def spent(self) -> bool:
        """This run has had all the tasks it may have."""
        return self.given.pull is not None and self.handed_out >= self.given.pull

    def token(self, named: str) -> str:
        """The claim that a call is about: the one it names, else the one we were handed."""
        token = named or self.given.token
        if not token:
            raise InvalidInput("which claim? Give the token that claim_next_task returned.")
        parse_token(token)  # the id of a task is no right to act for it
        if self.renews:
            heartbeat(self.hv, [token])
        return token

    def claimed(self, named: str = "") -> str:
        """The claim that somebody works under who need not name any; "" if there is none."""
        held = self.held()
        token = named or self.given.token or (held[0] if len(held) == 1 else "")
        return self.token(token) if token else ""

    def branch(self, named: str = "") -> str | None:
        """The branch of that claim's task, which all that comes of it inherits."""
        token = self.claimed(named)
        return self.hv.store.read(queries.task, parse_token(token).task).branch if token else None

    def task(self, named: str) -> str:
        """The task that a call is about."""
        if named and "." not in named:
            return named
        return parse_token(self.token(named)).task

    def claim(self, caller: str, limit: int, lease: int, **wanted: Any) -> Sequence[Lease]:
        if self.given.token:
            return self._the_one()
        with self._claiming:
            many = self._allowed(limit)
            if not many:
                return ()
            ask = Ask(self._identity(caller), self._asked(wanted))
            leases = claim(self.hv, limit=many, lease=lease, **ask.worker, **ask.wanted)
            self._hold(leases, ask)
            return leases

    def remembers(self, token: str) -> bool:
        """Whether we know what was asked for when that claim was made, so that the next one can
        be like it. We do not if another server, or this one before a restart, made it."""
        return bool(self.given.token) or token in self._asked_for

    def complete_and_claim(self, token: str, result: Any) -> Turn:
        """Finish one and take the next like it in one step."""
        with self._claiming:
            ask = self._asked_for.get(token)
            if ask is None or not self._allowed(1):
                return Turn((complete(self.hv, token, result, proposals=True),), ())
            turn = complete_and_claim(
                self.hv, [Done(token, result, proposals=True)], **ask.worker, **ask.wanted
            )
            if (why := turn.settled[0].lost) is None:
                self._hold(turn.leases, ask)
                return turn
        for lease in turn.leases:  # the answer is an error: the caller would not learn of them
            with suppress(LeaseLost):
                release(self.hv, lease.token, "claimed beside a stale token")
        raise LeaseLost(token, why)

    def give_back(self, leases: Sequence[Lease], why: str = "the call was cancelled") -> None:
        """What was claimed for somebody who will not hear of it."""
        for lease in leases if not self.given.token else ():
            with suppress(HypervisorError):
                release(self.hv, lease.token, why)
            with self._claiming:
                self.handed_out -= 1
                self._drop(lease.token)

    def drop(self, token: str) -> None:
        """The claim has ended: nothing is to be kept alive any more."""
        with self._claiming:
            self._drop(token)

    def held(self) -> list[str]:
        with self._claiming:
            return sorted(self._held)

    def beat(self) -> None:
        """Keep what we hold alive."""
        if tokens := self.held():
            with suppress(HypervisorError):  # the store may be back at the next beat
                for lost in heartbeat(self.hv, tokens).lost:
                    self.drop(lost)

    def report_refusals(self, total: int) -> None:
        """Somebody shows many tokens that do not hold: it may be an attempt to guess one."""
        said = f"refused {total} tokens that do not hold; a client may be guessing"
        with suppress(HypervisorError):
            self.hv.store.write_unsynced(
                event_log.note,
                "refused",
                {"count": total, "said": said},
                self.hv.actor,
                self.hv.now(),
            )

    def look_after(self) -> None:
        """Make sure that somebody runs what was just stored, without keeping the caller waiting.
        We look twice: a supervisor may have been about to end."""
        self._ensure_supervisor()
        self._second_look = threading.Timer(SECOND_LOOK, self._ensure_supervisor)
        self._second_look.start()

    def _ensure_supervisor(self) -> None:
        with suppress(HypervisorError):
            supervise(self.hv, wait=False)

    def close(self) -> None:
        """Give back what is our own; nothing is claimed afterwards."""
        self._closed.set()
        with self._claiming:
            own = () if self.given.keeper or self.renews else tuple(self._held)
            self._held.clear()
        for token in own:
            with suppress(HypervisorError):
                release(self.hv, token, "its agent is gone")
        if self._second_look is not None:
            self._second_look.join()

    def _the_one(self) -> Sequence[Lease]:
        """The task we were handed, as long as its claim lasts."""
        beat = heartbeat(self.hv, [self.given.token])
        if not beat.alive:
            return ()
        task = self.hv.store.read(queries.task, parse_token(self.given.token).task)
        return (Lease(self.given.token, beat.until, task),)

    def _allowed(self, limit: int) -> int:
        if self._closed.is_set():
            raise WrongState("this server is ending. Nothing was claimed.")
        left = limit if self.given.pull is None else self.given.pull - self.handed_out
        return max(min(limit, left), 0)

    def _drop(self, token: str) -> None:
        self._held.discard(token)
        if self._asked_for.pop(token, None):
            self._changed()

    def _hold(self, leases: Sequence[Lease], ask: Ask) -> None:
        self.handed_out += len(leases)
        self._asked_for.update((lease.token, ask) for lease in leases)
        while len(self._asked_for) > MOST_REMEMBERED:  # of agents that never came back
            del self._asked_for[next(iter(self._asked_for))]
        if not self.renews:
            self._held.update(lease.token for lease in leases)
        if leases:
            self._changed()

    def _changed(self) -> None:
        self._report({"handed_out": self.handed_out, "asked": self._asked_for})

    def _identity(self, caller: str) -> dict[str, Any]:
        if self.given.keeper:
            return {"worker": self.given.keeper[0], "pid": self.given.keeper[1]}
        return {"worker": caller or DEFAULT_CALLER, "pid": self.pid}

    def _asked(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """What may be claimed; a server that was started for a batch claims from it alone."""
        found = {name: value for name, value in wanted.items() if value}
        if self.given.batch:
            found["batch"] = self.given.batch
        can = (*found.get("capabilities", ()), *self.given.capabilities)
        if self.hv.is_equipped:
            can = (*can, *self.hv.settings.capabilities)
        return {**found, "capabilities": can}
