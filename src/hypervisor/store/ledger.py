"""The store as the rest of the program sees it: intentions, each one transaction.

Implements `ports.Store` over either database. `now` may be passed in; left out,
the clock that all users of the store share is asked. What people review, what
agents need, notices and the hive have a file each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hypervisor.batches.sql import report as reporting
from hypervisor.core import randomness
from hypervisor.core.errors import LeaseLost, StoreUnavailable
from hypervisor.queue.event import Event
from hypervisor.queue.history import AttemptLine, Experience
from hypervisor.queue.lease import (
    AttemptResult,
    ClaimRequest,
    Holder,
    Lease,
    Settled,
    Token,
    Worker,
)
from hypervisor.queue.receipt import ChainReport, Receipt
from hypervisor.queue.sql import (
    agent_claims,
    claims,
    fast_path,
    insert,
    proposals,
    queries,
    readiness,
    receipts,
    settlement,
    steer,
)
from hypervisor.queue.task import (
    Added,
    Batch,
    Changes,
    Json,
    NewTask,
    Stats,
    Task,
    TaskDetail,
    TaskFilter,
)
from hypervisor.runs import sql
from hypervisor.runs.spec import AtWork, Pause, Ready, Running, Stop, TaskReport
from hypervisor.store.database import Conflict, Database, Session, chunks
from hypervisor.store.ledger_agents import AgentLedger
from hypervisor.store.ledger_hive import HiveLedger
from hypervisor.store.ledger_learning import LearningLedger
from hypervisor.store.ledger_notices import NoticeLedger
from hypervisor.store.ledger_reviews import ReviewLedger

PACE_WINDOW = 300_000
MOST_UNANSWERED = 10_000


class Ledger(ReviewLedger, AgentLedger, NoticeLedger, HiveLedger, LearningLedger):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._seen: set[str] = set()
        self._unanswered: list[str] = []
        self._agents: set[str] = set()  # the workers that keep one
        self._identity: str | None = None

    def check_present(self) -> None:
        self._db.check_present()

    def now(self) -> int:
        return self._db.now()

    def close(self) -> None:
        self._db.close()

    def facts(self) -> dict[str, Any]:
        return self._db.facts()

    def identity(self) -> str:
        """Tells this store from all others, copies of it included, whatever it is called. Half of
        it is drawn once and kept in the store, the other half is where its bytes are."""
        if self._identity is None:
            self._identity = f"{self.setting(sql.STORE_ID)} {self._db.location()}"
        return self._identity

    # Adding and changing

    def add(
        self, tasks: Sequence[NewTask], batch: str | None, actor: str, now: int | None = None
    ) -> Added:
        """Add tasks to the batch of that name (None: to none), all or nothing."""
        at = self._at(now)
        for later in range(20):
            try:
                return self._write(
                    partial(
                        insert.add,
                        book=self._book,
                        new=tasks,
                        batch_name=batch,
                        actor=actor,
                        now=at + later,
                    )
                )
            except Conflict:  # another process drew the same ids in the same millisecond
                continue
        raise StoreUnavailable("no free ids could be found; nothing was added. Try again.")

    def check_links(self, tasks: Sequence[NewTask], batch: str) -> None:
        self._db.read(lambda s: insert.check_links(s, tasks, batch))

    def cancel(self, task: str, reason: str, actor: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._steer(lambda s: steer.cancel(s, self._book, task, reason, actor, at))

    def reopen(
        self,
        task: str,
        reason: str,
        actor: str,
        now: int | None = None,
        attempts: int | None = None,
    ) -> str:
        """With `attempts`: only if it has had just these. WrongState says what is instead."""
        at = self._at(now)
        return self._steer(
            lambda s: steer.requeue(s, self._book, task, "reopen", reason, actor, at, attempts)
        )

    def accept(self, task: str, actor: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._steer(lambda s: steer.requeue(s, self._book, task, "accept", "", actor, at))

    def take_back(self, task: str, reason: str, actor: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._steer(lambda s: steer.take_back(s, self._book, task, reason, actor, at))

    def update(self, task: str, changes: Changes, actor: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._steer(lambda s: steer.update(s, self._book, task, changes, actor, at))

    # The claim protocol

    def claim(self, request: ClaimRequest, now: int | None = None) -> list[Lease]:
        return self.settle_and_claim((), request, now)[1]

    def settle(self, verdicts: Sequence[AttemptResult], now: int | None = None) -> list[Settled]:
        return self.settle_and_claim(verdicts, None, now)[0]

    def settle_and_claim(
        self,
        verdicts: Sequence[AttemptResult],
        request: ClaimRequest | None,
        now: int | None = None,
    ) -> tuple[list[Settled], list[Lease]]:
        """End attempts and take the next tasks, in one transaction: one commit an item.
        Only when a turn was plain but found no next task, that is looked for in a second one."""
        at = self._at(now)
        if request is None:
            return self._turn_at_length(verdicts, None, [], [], at)
        self._introduce(request.worker, at)
        nonces = randomness.nonces(request.limit)
        ended: list[Settled] = []
        try:
            if not self._unanswered and request.worker.id not in self._agents:
                ended, leases = self._take_plain_turn(verdicts, request, nonces, at)
                if leases:
                    return ended, leases
            return self._turn_at_length(verdicts, request, nonces, ended, at)
        except BaseException:
            self._unanswered = [*self._unanswered, *nonces][-MOST_UNANSWERED:]
            raise

    def _take_plain_turn(
        self, verdicts: Sequence[AttemptResult], request: ClaimRequest, nonces: list[str], now: int
    ) -> tuple[list[Settled], list[Lease]]:
        """What came of it: nothing at all, an ended attempt, or that and the next task."""
        plain = fast_path.plain(self._book, verdicts, request, nonces, now)
        row = self._db.turn(plain) if plain else None
        return fast_path.outcome(self._book, plain, row) if plain and row else ([], [])

    def _turn_at_length(
        self,
        verdicts: Sequence[AttemptResult],
        request: ClaimRequest | None,
        nonces: list[str],
        ended: list[Settled],
        now: int,
    ) -> tuple[list[Settled], list[Lease]]:
        """The general way, for what has not `ended` yet."""
        unanswered = list(self._unanswered)

        def work(session: Session) -> tuple[list[Settled], list[claims.Claimed]]:
            self._give_back(session, unanswered, now)
            settled = ended or settlement.settle(session, self._book, verdicts, now)
            claimed = claims.claim(session, self._book, request, nonces, now) if request else []
            if request and request.worker.id in self._agents:
                agent_claims.add(session, request.worker.id, [each.token for each in claimed])
            return settled, claimed

        settled, claimed = self._write(work)
        if unanswered:
            self._unanswered = [n for n in self._unanswered if n not in unanswered]
        return settled, [claims.lease(c, request, now) for c in claimed if request]

    def _give_back(self, session: Session, unanswered: list[str], now: int) -> None:
        """A claim may have been made although its answer got lost on the way (a broken
        connection, a disk that did not confirm): nobody knows its token, so give it back."""
        for some in chunks(unanswered):
            for task, attempt in claims.live_with_nonces(session, some, self._seen):
                why = "the answer to the claim got lost"
                settlement.end_without_token(
                    session, self._book, task, attempt, "release", why, now
                )

    def heartbeat(self, tokens: Sequence[Token], lease: int, now: int | None = None) -> set[Token]:
        """Extend leases. Returns the tokens that still hold; the others have ended."""
        until = self._at(now) + lease
        return self._write(lambda s: claims.heartbeat(s, tokens, until), durable=False)

    def propose(
        self, token: Token, proposal: dict[str, Any], lease: int, now: int | None = None
    ) -> int:
        until = self._at(now) + lease
        return self._write(lambda s: proposals.add(s, token, proposal, until))

    def forget_proposals(self, token: Token) -> None:
        if self._db.read(lambda s: proposals.of_claim(s, token)):
            self._write(lambda s: proposals.forget(s, token), durable=False)

    def claims_of(self, worker: str) -> list[Lease]:
        """The live claims of a worker that keeps an agent, each with its token."""
        return self._db.read(lambda s: agent_claims.live(s, self._book, worker))

    def batch_spec(self, token: Token) -> str:
        """How the batch of a live claim is run, as JSON; "" if there is no such batch or claim."""
        return self._db.read(lambda s: claims.batch_spec(s, token))

    def ended_claim(self, token: Token) -> str | None:
        """How the attempt of that token ended, None while it runs."""
        return self._db.read(lambda s: claims.ended_claim(s, token))

    def holders(self, boot: str, now: int | None = None) -> list[Holder]:
        at = self._at(now)
        return self._db.read(lambda s: claims.holders(s, boot, at))

    def reclaim(
        self, holder: Holder, reason: str, now: int | None = None, started: bool = True
    ) -> bool:
        """Put a dead worker's task back. False if the claim has ended or been renewed meanwhile.
        An attempt that had not even `started` costs the task nothing."""
        at = self._at(now)

        def work(session: Session) -> bool:
            if not claims.unchanged(session, holder):
                return False
            return settlement.end_without_token(
                session,
                self._book,
                holder.task,
                holder.attempt,
                "crash" if started else "release",
                reason,
                at,
            )

        return self._write(work)

    def due(self, now: int | None = None) -> bool:
        """Whether `promote_due` has anything to do."""
        at = self._at(now)
        return self._db.read(lambda s: readiness.any_due(s, at))

    def promote_due(self, now: int | None = None) -> int:
        at = self._at(now)
        return self._write(lambda s: readiness.promote_due(s, self._book, at))

    # Running work

    def declare(self, name: str, spec: Json, actor: str, now: int | None = None) -> Batch:
        at = self._at(now)
        return self._write(lambda s: sql.declare(s, name, spec, actor, at))

    def pause(self, which: Pause, now: int | None = None) -> bool:
        at = self._at(now)
        return self._write(lambda s: sql.pause(s, self._book, which, at))

    def resume(self, which: Pause, now: int | None = None) -> bool:
        at = self._at(now)
        return self._write(lambda s: sql.resume(s, self._book, which, at))

    def pauses(self) -> list[Pause]:
        return self._db.read(sql.pauses)

    def ask_stop(
        self, task: str, after: str, reason: str, actor: str, now: int | None = None
    ) -> bool:
        at = self._at(now)
        return self._write(lambda s: sql.ask_stop(s, task, after, reason, actor, at))

    def stops(self, tasks: Sequence[str]) -> list[Stop]:
        return self._db.read(lambda s: sql.stops(s, tasks)) if tasks else []

    def forget_stop(self, task: str) -> None:
        self._write(lambda s: s.run(sql.FORGET_STOP, (task,)), durable=False)

    def register(self, worker: Worker, batch: str, now: int | None = None, agent: str = "") -> None:
        """Write down that a worker process serves a batch, so that supervisors find it."""
        at = self._at(now)
        self._write(lambda s: sql.register(s, worker, batch, agent, at), durable=False)
        self._seen.add(worker.id)
        if agent:
            self._agents.add(worker.id)

    def retire(self, worker: str, now: int | None = None) -> None:
        at = self._at(now)
        self._write(lambda s: sql.retire(s, worker, at), durable=False)

    def at_work(self, boot: str) -> list[AtWork]:
        return self._db.read(lambda s: sql.at_work(s, boot))

    def ready(self, capabilities: tuple[str, ...] | None = ()) -> list[Ready]:
        return self._db.read(lambda s: sql.ready(s, self._book, capabilities))

    def running(self, batch: str | None, limit: int) -> list[Running]:
        return self._db.read(lambda s: sql.running(s, self._book, batch, limit))

    def setting(self, name: str) -> str | None:
        return self._db.read(lambda s: sql.setting(s, name))

    def set(self, name: str, value: str | None) -> None:
        if value is None:
            self._write(lambda s: s.run(sql.UNSET, (name,)))
        else:
            self._write(lambda s: s.run(sql.SET, (name, value)))

    def set_under_claim(self, token: Token, name: str, value: str) -> bool:
        """Set it unless the claim has ended: then another attempt says what it is."""

        def work(session: Session) -> bool:
            try:
                claims.held(session, token)
            except LeaseLost:
                return False
            session.run(sql.SET, (name, value))
            return True

        return self._write(work)

    def unset(self, name: str, value: str) -> bool:
        """Forget a setting, unless somebody has changed it. Says whether it was forgotten."""
        return self._write(lambda s: bool(s.rows(sql.UNSET_SAME, (name, value))))

    def scale(
        self, workers: int | None, batch: str | None, actor: str, now: int | None = None
    ) -> None:
        at = self._at(now)
        self._write(lambda s: sql.scale(s, workers, batch, actor, at))

    def note(
        self,
        kind: str,
        data: Json,
        actor: str,
        task: str = "",
        batch: str = "",
        now: int | None = None,
    ) -> None:
        at = self._at(now)
        self._write(lambda s: sql.note(s, kind, data, task, batch, actor, at), durable=False)

    def note_once(
        self,
        name: str,
        value: str,
        kind: str,
        data: Json,
        actor: str,
        batch: str = "",
        now: int | None = None,
    ) -> None:
        """Note it unless the setting has that value already, and give it that value."""
        at = self._at(now)
        self._write(lambda s: sql.note_once(s, name, value, kind, data, batch, actor, at))

    def report(
        self, batch: str, after: str, limit: int, now: int | None = None
    ) -> list[TaskReport]:
        at = self._at(now)
        return self._db.read(lambda s: sql.report(s, batch, after, limit, at))

    def states(self, tasks: Sequence[str]) -> dict[str, str]:
        """The states of those of these tasks that there are."""
        return self._db.read(lambda s: sql.states(s, tasks)) if tasks else {}

    def stuck(self, batches: Sequence[str]) -> dict[str, int]:
        """How many of each batch wait in vain: what they need has ended and is not done."""
        return self._db.read(lambda s: sql.stuck(s, batches)) if batches else {}

    def changed_since(self, batch: str, since: int) -> dict[str, int]:
        """How many tasks of the batch are in which state, of those that changed since."""
        return self._db.read(lambda s: sql.changed_since(s, batch, since))

    # Receipts

    def append_under_claim(
        self, token: Token, texts: list[str], now: int | None = None
    ) -> list[Receipt]:
        at = self._at(now)
        return self._write(lambda s: receipts.append_under_claim(s, token, texts, at))

    def append(
        self, task: str, actor: str, texts: list[str], now: int | None = None
    ) -> list[Receipt]:
        at = self._at(now)
        return self._write(lambda s: receipts.append(s, task, actor, texts, at))

    def receipts_of_task(self, task: str) -> list[Receipt]:
        return self._db.read(lambda s: receipts.of_task(s, task))

    def receipts_of_tasks(self, tasks: Sequence[str]) -> dict[str, list[Receipt]]:
        return self._db.read(lambda s: receipts.of_tasks(s, tasks))

    def receipts_of_chain(self, chain: str) -> list[Receipt]:
        return self._db.read(lambda s: list(receipts.of_chain(s, chain)))

    def check_receipts(self, chain: str | None) -> list[ChainReport]:
        return self._db.read(lambda s: receipts.check(s, chain))

    # Pre-flight and the report

    def states_of_keys(self, batch: str, digests: Sequence[str]) -> dict[str, str]:
        return self._db.read(lambda s: reporting.states_of_keys(s, batch, digests))

    def attempts_of_batch(
        self, batch: str, after: str, tasks: int
    ) -> tuple[str, list[AttemptLine]]:
        return self._db.read(lambda s: reporting.attempts(s, batch, after, tasks))

    def experience(self, kind: str, batch: str | None) -> Experience:
        return self._db.read(lambda s: reporting.experience(s, kind, batch))

    def last_receipts(self, chain: str, limit: int) -> tuple[int, list[Receipt]]:
        return self._db.read(lambda s: reporting.last_receipts(s, chain, limit))

    def noted(self, kind: str, batch: str, since: int) -> dict[str, Any]:
        return self._db.read(lambda s: reporting.noted(s, kind, batch, since))

    # Looking

    def resolve(self, text: str) -> str:
        return self._db.read(lambda s: queries.resolve(s, text))

    def task(self, task: str) -> Task:
        return self._db.read(lambda s: queries.tasks(s, self._book, [task])[0])

    def detail(self, task: str) -> TaskDetail:
        return self._db.read(lambda s: queries.detail(s, self._book, task))

    def list_tasks(self, wanted: TaskFilter, limit: int, before: str | None = None) -> list[Task]:
        return self._db.read(lambda s: queries.list_tasks(s, self._book, wanted, limit, before))

    def batch(self, text: str) -> Batch:
        return self._db.read(lambda s: queries.batch(s, text))

    def batches(self, limit: int) -> list[Batch]:
        return self._db.read(lambda s: queries.batches(s, limit))

    def stats(self, batch: str | None, now: int | None = None, pace: bool = True) -> Stats:
        at = self._at(now)
        return self._db.read(lambda s: queries.stats(s, batch, at, PACE_WINDOW, pace))

    def events(self, since: int, limit: int) -> list[Event]:
        return [queries.event(row) for row in self._db.events(since, limit)]

    def _steer(self, work: Callable[[Session], str]) -> str:
        def locked(session: Session) -> str:
            session.lock("keys")  # before any row is locked, as in a claim
            return work(session)

        return self._write(locked)

    def _introduce(self, worker: Worker, now: int) -> None:
        """A worker is written down once per process, before its first claim."""
        if worker.id not in self._seen:
            if self._write(lambda s: claims.worker_seen(s, worker, now), durable=False):
                self._agents.add(worker.id)
            self._seen.add(worker.id)
