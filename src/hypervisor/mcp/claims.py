"""What the tools of one client share: the open store, and the claims they answer for.

Over stdio the claims belong to the client's `hv mcp`: the server keeps them alive and gives them
back when that ends. A claim that was handed to us (HV_TOKEN), or is made in the name of a keeper
(HV_KEEPER_PID), belongs to that process; we end it only on request. Over HTTP a claim belongs to no
process: each call that names it renews its lease.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hypervisor.core.errors import HypervisorError, InvalidInput, LeaseLost, WrongState
from hypervisor.core.records import NamedTuple
from hypervisor.queue.claim import (
    CompleteAndClaim,
    Done,
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

if TYPE_CHECKING:
    from hypervisor.queue.task import Message
    from hypervisor.skills.folders import Place

SECOND_LOOK = 1.0
BEAT = 60.0  # seconds between heartbeats: many fit into a lease
DEFAULT_CALLER = "agent"
MAX_REMEMBERED = 10_000


class ClientSetup(NamedTuple):
    """What the process that started us wants: see HV_TOKEN and its like in docs/mcp.md."""

    token: str = ""
    keeper: tuple[str, int] | None = None
    batch: str = ""
    pull: int | None = None
    capabilities: tuple[str, ...] = ()
    hide: str = ""  # marks of secrets that must not be kept


NOTHING_GIVEN = ClientSetup()


class ClaimCall(NamedTuple):
    """Who asked for tasks, and for which."""

    worker: dict[str, Any]
    wanted: dict[str, Any]


def given_by(environment: Mapping[str, str]) -> ClientSetup:
    keeper = environment.get("HV_KEEPER_PID", "")
    pull = environment.get("HV_PULL", "")
    if any(text and not text.isdecimal() for text in (keeper, pull)):
        raise InvalidInput("HV_KEEPER_PID and HV_PULL must be numbers.")
    can = environment.get("HV_CAPABILITIES", "")
    return ClientSetup(
        environment.get("HV_TOKEN", ""),
        (environment.get("HV_KEEPER_NAME") or "keeper", int(keeper)) if keeper else None,
        environment.get("HV_BATCH", ""),
        int(pull) if pull else None,
        tuple(word.strip() for word in can.split(",") if word.strip()),
        environment.get("HV_HIDE", ""),
    )


class ClaimRegistry:
    """One client's claims. All methods may be called from any thread.

    `pid` is the process that claims belong to, 0 for none. `folder` and `environment` are the
    client's. `report` gets every change, in the form that `restore` takes."""

    def __init__(
        self,
        hv: Context,
        given: ClientSetup = NOTHING_GIVEN,
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
        self._asked_for: dict[str, ClaimCall] = {}  # by the token of what it got
        self._claiming = threading.Lock()  # what is claimed is held before we close
        self._closed = threading.Event()

    def path(self, path: str) -> str:
        """A path that the client gave, from where it is."""
        return os.path.join(self._folder, path)

    def skill_places(self) -> tuple[Place, ...]:
        """Where the client's skills are."""
        from hypervisor.skills.folders import places

        return places(self._environment, self._folder)

    def restore(self, claims: dict[str, Any]) -> None:
        """Answer for what another server answered for before it died. Claims of the client that
        it never heard of go back."""
        with self._claiming:
            self.handed_out = claims["handed_out"]
            self._asked_for = {token: ClaimCall(*ask) for token, ask in claims["asked"].items()}
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
                    settlement.reclaim, holder, "its client never received it", now, False
                )

    @property
    def renews(self) -> bool:
        """No other process keeps the claims alive that are made here."""
        return not self.pid

    @property
    def spent(self) -> bool:
        """This run has had all the tasks it may have."""
        return self.given.pull is not None and self.handed_out >= self.given.pull

    def token(self, named: str) -> str:
        """The claim that a call is about: the one it names, else the one we were handed."""
        token = named or self.given.token
        if not token:
            raise InvalidInput("no token given: pass the token that claim_next_task returned.")
        parse_token(token)  # the id of a task gives no right to act for it
        if self.renews:
            heartbeat(self.hv, [token])
        return token

    def unread(self, token: str) -> list[Message]:
        """What people wrote about the task of a claim and its worker has not read."""
        from hypervisor.queue.give_messages import give_unread

        try:
            return give_unread(self.hv.store, token)
        except HypervisorError:  # at the next call
            return []

    def claimed(self, named: str = "") -> str:
        """The claim of a caller that need not name one; "" if none."""
        held = self.held()
        token = named or self.given.token or (held[0] if len(held) == 1 else "")
        return self.token(token) if token else ""

    def branch(self, named: str = "") -> str | None:
        """The branch of that claim's task, which its results inherit."""
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
            ask = ClaimCall(self._identity(caller), self._asked(wanted))
            leases = claim(self.hv, limit=many, lease=lease, **ask.worker, **ask.wanted)
            self._hold(leases, ask)
            return leases

    def remembers(self, token: str) -> bool:
        """Whether we know what was asked for when that claim was made, so that the next one can
        be like it. We do not if another server, or this one before a restart, made it."""
        return bool(self.given.token) or token in self._asked_for

    def complete_and_claim(self, token: str, result: Any) -> CompleteAndClaim:
        """Finish one and take the next like it in one step."""
        with self._claiming:
            ask = self._asked_for.get(token)
            if ask is None or not self._allowed(1):
                return CompleteAndClaim((complete(self.hv, token, result, proposals=True),), ())
            turn = complete_and_claim(
                self.hv, [Done(token, result, proposals=True)], **ask.worker, **ask.wanted
            )
            if (why := turn.settled[0].lost) is None:
                self._hold(turn.leases, ask)
                return turn
        for lease in turn.leases:  # the answer is an error: the caller would not learn of them
            with suppress(LeaseLost):
                release(self.hv, lease.token, "claimed together with a stale token")
        raise LeaseLost(token, why)

    def give_back(self, leases: Sequence[Lease], why: str = "the call was cancelled") -> None:
        """Release claims whose caller will not receive the answer."""
        for lease in leases if not self.given.token else ():
            with suppress(HypervisorError):
                release(self.hv, lease.token, why)
            with self._claiming:
                self.handed_out -= 1
                self._drop(lease.token)

    def drop(self, token: str) -> None:
        """The claim has ended: stop its heartbeats."""
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
        """A client sent many invalid tokens, which may be an attempt to guess one."""
        message = f"refused {total} invalid tokens; a client may be guessing"
        with suppress(HypervisorError):
            self.hv.store.write_unsynced(
                event_log.note,
                "refused",
                {"count": total, "message": message},
                self.hv.actor,
                self.hv.now(),
            )

    def look_after(self) -> None:
        """Make sure that a supervisor runs the new tasks, without keeping the caller waiting. We
        check twice: a supervisor may have been about to exit."""
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
                release(self.hv, token, "its agent has exited")
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
            raise WrongState("the server is shutting down. Nothing was claimed.")
        left = limit if self.given.pull is None else self.given.pull - self.handed_out
        return max(min(limit, left), 0)

    def _drop(self, token: str) -> None:
        self._held.discard(token)
        if self._asked_for.pop(token, None):
            self._changed()

    def _hold(self, leases: Sequence[Lease], ask: ClaimCall) -> None:
        self.handed_out += len(leases)
        self._asked_for.update((lease.token, ask) for lease in leases)
        while len(self._asked_for) > MAX_REMEMBERED:  # of agents that never came back
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
        given = {name: value for name, value in wanted.items() if value}
        if self.given.batch:
            given["batch"] = self.given.batch
        can = (*given.get("capabilities", ()), *self.given.capabilities)
        if self.hv.is_equipped:
            can = (*can, *self.hv.settings.capabilities)
        return {**given, "capabilities": can}
