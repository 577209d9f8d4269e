"""A driver for tests: the statements of all rooms as methods of one object, with `now` optional.

It passes for the open database itself, so that a test may give it to a `Context`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypervisor.agents.cooldown import Cooldown
from hypervisor.agents.session import AgentSession, Figures, NewSession, Spent
from hypervisor.agents.sql import cooldowns
from hypervisor.agents.sql import sessions as agent_sessions
from hypervisor.agents.stream_state import Tokens
from hypervisor.batches.chunk import Chunk, ChunkState
from hypervisor.batches.plans.action import Action, ActionState, Proposals
from hypervisor.batches.sql import actions, pipelines, summary
from hypervisor.batches.sql import chunks as chunking
from hypervisor.batches.sql import report as reporting
from hypervisor.hive.branch import Branch
from hypervisor.hive.branch_report import BranchReport
from hypervisor.hive.finding import Known, NewFinding, Query, Remembered
from hypervisor.learning import sql as learning_sql
from hypervisor.notifications.notice import Ending, Notice, NoticeState, Rule
from hypervisor.notifications.sql import cursors, notices
from hypervisor.queue import settle
from hypervisor.queue.add import with_fresh_ids
from hypervisor.queue.event import Cursor, Event
from hypervisor.queue.history import AttemptLine, EndedAttempt, Experience, Totals
from hypervisor.queue.lease import (
    AttemptResult,
    ClaimRequest,
    Holder,
    Lease,
    Settled,
    Token,
    Usage,
    Worker,
)
from hypervisor.queue.receipt import ChainReport, Receipt
from hypervisor.queue.sql import (
    agent_claims,
    claims,
    event_log,
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
from hypervisor.store import settings
from hypervisor.store.database import Answer, Database, Session


class Ledger:
    def open_session(self, new: NewSession, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: agent_sessions.open_session(s, new, at), durable=False)

    def hear_session(
        self,
        id: str,
        session: str,
        tokens: Tokens,
        cost_micros: int | None,
        estimated: bool,
        turns: int,
        now: int | None = None,
    ) -> None:
        self._write(
            lambda s: agent_sessions.update(
                s, id, session, Figures(tokens, cost_micros, estimated, turns)
            ),
            durable=False,
        )

    def close_session(
        self,
        id: str,
        outcome: str,
        tokens: Tokens,
        cost_micros: int | None,
        estimated: bool,
        turns: int,
        now: int | None = None,
        denied: Sequence[str] = (),
    ) -> None:
        at = self._at(now)
        self._write(
            lambda s: agent_sessions.close(
                s, id, outcome, Figures(tokens, cost_micros, estimated, turns), denied, now=at
            )
        )

    def record_usage(self, token: Token, usage: Usage) -> None:
        self._write(lambda s: settlement.set_usage(s, token, usage), durable=False)

    def sessions(
        self,
        batch: str | None = None,
        task: str | None = None,
        worker: str | None = None,
        limit: int = 100,
    ) -> list[AgentSession]:
        return self._db.read(lambda s: agent_sessions.sessions(s, batch, task, worker, limit))

    def settled_sessions(self, ids: Sequence[str]) -> frozenset[str]:
        return self._db.read(lambda s: agent_sessions.settled(s, ids)) if ids else frozenset()

    def spent(self, batch: str | None = None, task: str | None = None, since: int = 0) -> Spent:
        return self._db.read(lambda s: agent_sessions.spent(s, batch, task, since))

    def set_brake(self, brake: Cooldown, actor: str, now: int | None = None) -> None:
        at = self._at(now)
        self._write(lambda s: cooldowns.set_brake(s, brake, actor, at))

    def lift_brake(
        self, account: str, actor: str, now: int | None = None, ended: bool = False
    ) -> bool:
        at = self._at(now)
        return self._write(lambda s: cooldowns.lift_brake(s, account, actor, at, ended))

    def brakes(self) -> list[Cooldown]:
        return self._db.read(cooldowns.brakes)

    def cursor(self, name: str) -> int:
        return self._db.read(lambda s: cursors.cursor(s, name))

    def cursors(self) -> list[Cursor]:
        return self._db.read(cursors.cursors)

    def move_cursor(self, name: str, number: int, now: int | None = None) -> None:
        at = self._at(now)
        self._write(lambda s: cursors.move(s, name, number, at), durable=False)

    def remember(
        self,
        new: NewFinding,
        actor: str,
        token: Token | None = None,
        task: str = "",
        now: int | None = None,
    ) -> Remembered:
        from hypervisor.hive.sql import findings

        at = self._at(now)
        ready = findings.prepare(new)
        source = token or (findings.OfTask(task, actor) if task else actor)
        return self._write(lambda s: findings.remember(s, ready, source, at))

    def forget(self, finding: str, actor: str, now: int | None = None) -> str:
        from hypervisor.hive.sql import findings

        at = self._at(now)
        return self._write(lambda s: findings.forget(s, finding, actor, at))

    def recall(self, wanted: Query, limit: int) -> list[Known]:
        from hypervisor.hive.sql import search

        return self._db.read(lambda s: search.recall(s, wanted, limit))

    def joined(self, finding: str) -> list[Known]:
        from hypervisor.hive.sql import search

        return self._db.read(lambda s: search.joined(s, finding))

    def reports(self, branches: Sequence[Branch], limit: int) -> list[BranchReport]:
        from hypervisor.hive.sql import search

        return self._db.read(lambda s: search.reports(s, branches, limit))

    def branches(self) -> list[Branch]:
        from hypervisor.hive.sql import branches as branching

        return self._db.read(branching.branches)

    def set_branch(
        self, name: str, parent: str | None, git: str | None, actor: str, now: int | None = None
    ) -> Branch:
        from hypervisor.hive.sql import branches as branching

        at = self._at(now)
        return self._write(
            lambda s: branching.set_branch(s, name, parent, git, actor=actor, now=at)
        )

    def ended_attempts(self, which: Sequence[tuple[str, int]]) -> list[EndedAttempt]:
        return self._db.read(learning_sql.ended, which)

    def settings_like(self, prefix: str) -> dict[str, str]:
        return self._db.read(settings.settings_like, prefix)

    def keep_settings(self, values: Mapping[str, str]) -> None:
        self._db.write_unsynced(settings.set_settings, values)

    def add_rule(self, rule: Rule, actor: str, now: int | None = None) -> None:
        at = self._at(now)
        self._write(lambda s: notices.add_rule(s, rule, actor, at))

    def remove_rule(self, name: str, actor: str, now: int | None = None) -> bool:
        at = self._at(now)
        return self._write(lambda s: notices.remove_rule(s, name, actor, at))

    def rules(self) -> list[Rule]:
        return self._db.read(notices.rules)

    def file_notices(self, new: Sequence[Notice], of: Sequence[Rule], seen: int) -> int:
        return self._write(lambda s: notices.file(s, new, of, seen), durable=bool(new))

    def take_notice(self, rule: str, who: str, lease: int, now: int | None = None) -> Notice | None:
        at = self._at(now)
        return self._write(lambda s: notices.take(s, rule, who, at + lease, at), durable=False)

    def notice_sent(self, notice: Notice) -> None:
        self._write(lambda s: notices.sent(s, notice), durable=False)

    def notice_missed(self, notice: Notice, why: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: notices.missed(s, notice, why, at))

    def notices(self, state: str, rule: str = "", limit: int = 100) -> list[Notice]:
        return self._db.read(lambda s: notices.listed(s, NoticeState(state), rule, limit))

    def retry_notices(self, rule: str = "") -> int:
        return self._write(lambda s: notices.again(s, rule))

    def drop_notices(self, rule: str = "") -> int:
        return self._write(lambda s: notices.drop(s, rule))

    def notices_waiting(self) -> dict[str, tuple[int, int]]:
        return self._db.read(notices.waiting)

    def ending(self, batch: str, chunk: int = 0) -> Ending | None:
        return self._db.read(lambda s: notices.ending(s, batch, chunk))

    def tasks(self, ids: Sequence[str]) -> list[Task]:
        return self._db.read(lambda s: queries.tasks(s, ids)) if ids else []

    def declare_chunks(self, batch: str, names: Sequence[str], gate: str) -> list[Chunk]:
        return self._write(lambda s: chunking.declare(s, batch, names, gate))

    def chunks(self, batch: str) -> list[Chunk]:
        return self._db.read(lambda s: chunking.every(s, batch))

    def chunk_tasks(self, batch: str, number: int) -> list[Task]:
        return self._db.read(chunking.chunk_tasks, batch, number)

    def chunk_report(self, batch: str, number: int, now: int | None = None) -> list[TaskReport]:
        at = self._at(now)
        return self._db.read(lambda s: sql.report_chunk(s, batch, number, at))

    def batches_with_open_chunks(self) -> list[str]:
        return self._db.read(chunking.batches_with_open)

    def amend(self, task: str, changes: dict[str, Any], actor: str, now: int | None = None) -> Json:
        at = self._at(now)
        return self._write(lambda s: chunking.amend(s, task, changes, actor, at))

    def decide_chunk(
        self,
        batch: str,
        number: int,
        decision: str,
        note: str,
        actor: str,
        now: int | None = None,
        in_advance: bool = False,
        may_change: bool = True,
    ) -> list[int]:
        at = self._at(now)
        return self._db.write(
            chunking.decide,
            batch,
            number,
            ChunkState(decision),
            note=note,
            in_advance=in_advance,
            may_change=may_change,
            actor=actor,
            now=at,
        )

    def retry_chunk(
        self,
        batch: str,
        number: int,
        tasks: Sequence[str],
        note: str,
        actor: str,
        now: int | None = None,
    ) -> int:
        at = self._at(now)
        return self._db.write(chunking.retry, batch, number, tasks, note, actor=actor, now=at)

    def totals(self, batch: str, now: int | None = None) -> Totals:
        at = self._at(now)
        return self._db.read(lambda s: summary.totals(s, batch, at))

    def any_running(self, batch: str) -> bool:
        return self._db.read(lambda s: sql.any_running(s, batch))

    def changed_among(self, tasks: Sequence[str], since: int) -> int:
        return self._db.read(lambda s: sql.changed_among(s, tasks, since)) if tasks else 0

    def results(self, batch: str, after: str, limit: int) -> list[tuple[str, Json]]:
        return self._db.read(lambda s: summary.results(s, batch, after, limit))

    def proposing(self, batch: str, after: str, limit: int) -> list[Proposals]:
        return self._db.read(lambda s: actions.proposing(s, batch, after, limit))

    def held_back(self, batch: str) -> dict[str, int]:
        return self._db.read(lambda s: actions.held_back(s, batch))

    def actions(self, batch: str) -> list[Action]:
        return self._db.read(lambda s: actions.every(s, batch))

    def approve_actions(
        self,
        batch: str,
        new: Sequence[tuple[str, str, dict[str, Any]]],
        text: str,
        actor: str,
        now: int | None = None,
        after: int | None = None,
    ) -> list[Action]:
        at = self._at(now)
        options: Any = {"actor": actor, "now": at, "after": after}
        return self._db.write(actions.approve, batch, new, text, **options)

    def move_action(
        self,
        action: Action,
        state: str,
        reason: str | None,
        receipt: str,
        actor: str,
        now: int | None = None,
    ) -> Action:
        at = self._at(now)
        more: Any = {"reason": reason, "receipt": receipt, "actor": actor, "now": at}
        return self._db.write(actions.move, action, ActionState(state), **more)

    def apply_task(
        self, action: Action, new: NewTask, receipt: str, actor: str, now: int | None = None
    ) -> Action:
        return with_fresh_ids(
            lambda at: self._db.write(actions.add_task, action, new, receipt, actor=actor, now=at),
            self._at(now),
        )

    def undo_task(self, action: Action, receipt: str, actor: str, now: int | None = None) -> Action:
        at = self._at(now)
        return self._write(lambda s: actions.cancel_task(s, action, receipt, actor, at))

    def __init__(self, database: Database) -> None:
        self._db = database
        database.memories.clear()  # as a new process would know it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def _at(self, now: int | None) -> int:
        return self._db.now() if now is None else now

    def _write(self, work: Callable[[Session], Answer], durable: bool = True) -> Answer:
        return (self._db.write if durable else self._db.write_unsynced)(work)

    def identity(self) -> str:
        return settings.identity(self._db)

    def add(
        self, tasks: Sequence[NewTask], batch: str | None, actor: str, now: int | None = None
    ) -> Added:
        return with_fresh_ids(
            lambda at: self._db.write(insert.add, tasks, batch, actor, at), self._at(now)
        )

    def check_links(self, tasks: Sequence[NewTask], batch: str) -> None:
        self._db.read(lambda s: insert.check_links(s, tasks, batch))

    def cancel(self, task: str, reason: str, actor: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: steer.cancel(s, task, reason, actor, at))

    def reopen(
        self,
        task: str,
        reason: str,
        actor: str,
        now: int | None = None,
        attempts: int | None = None,
    ) -> str:
        at = self._at(now)
        return self._write(
            lambda s: steer.requeue(s, task, "reopen", reason, actor, now=at, attempts=attempts)
        )

    def accept(self, task: str, actor: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: steer.requeue(s, task, "accept", "", actor, now=at))

    def take_back(self, task: str, reason: str, actor: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: steer.revoke_claim(s, task, reason, actor, at))

    def update(self, task: str, changes: Changes, actor: str, now: int | None = None) -> str:
        at = self._at(now)
        return self._write(lambda s: steer.update(s, task, changes, actor, at))

    def claim(self, request: ClaimRequest, now: int | None = None) -> list[Lease]:
        return self.settle_and_claim((), request, now)[1]

    def settle(self, verdicts: Sequence[AttemptResult], now: int | None = None) -> list[Settled]:
        return settle.settle(self._db, verdicts, self._at(now))

    def settle_and_claim(
        self,
        verdicts: Sequence[AttemptResult],
        request: ClaimRequest | None,
        now: int | None = None,
    ) -> tuple[list[Settled], list[Lease]]:
        return settle.settle_and_claim(self._db, verdicts, request, self._at(now))

    def heartbeat(self, tokens: Sequence[Token], lease: int, now: int | None = None) -> set[Token]:
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
        return self._db.read(lambda s: agent_claims.live(s, worker))

    def batch_spec(self, token: Token) -> str:
        return self._db.read(lambda s: claims.batch_spec(s, token))

    def ended_claim(self, token: Token) -> str | None:
        return self._db.read(lambda s: claims.ended_claim(s, token))

    def holders(self, boot: str, now: int | None = None) -> list[Holder]:
        at = self._at(now)
        return self._db.read(lambda s: claims.holders(s, boot, at))

    def reclaim(
        self, holder: Holder, reason: str, now: int | None = None, started: bool = True
    ) -> bool:
        return self._db.write(settlement.reclaim, holder, reason, self._at(now), started)

    def due(self, now: int | None = None) -> bool:
        at = self._at(now)
        return self._db.read(lambda s: readiness.any_due(s, at))

    def promote_due(self, now: int | None = None) -> int:
        at = self._at(now)
        return self._write(lambda s: readiness.promote_due(s, at))

    def declare(self, name: str, spec: Json, actor: str, now: int | None = None) -> Batch:
        at = self._at(now)
        return self._write(lambda s: sql.declare(s, name, spec, actor, at))

    def pause(self, which: Pause, now: int | None = None) -> bool:
        at = self._at(now)
        return self._write(lambda s: sql.pause(s, which, at))

    def resume(self, which: Pause, now: int | None = None) -> bool:
        at = self._at(now)
        return self._write(lambda s: sql.resume(s, which, at))

    def pauses(self) -> list[Pause]:
        return self._db.read(sql.pauses)

    def ask_stop(
        self, task: str, after: str, reason: str, actor: str, now: int | None = None
    ) -> bool:
        at = self._at(now)
        return self._write(lambda s: sql.ask_stop(s, task, after, reason, actor, now=at))

    def stops(self, tasks: Sequence[str]) -> list[Stop]:
        return self._db.read(lambda s: sql.stops(s, tasks)) if tasks else []

    def forget_stop(self, task: str) -> None:
        self._db.write_unsynced(sql.forget_stop, task)

    def register(self, worker: Worker, batch: str, now: int | None = None, agent: str = "") -> None:
        self._db.write_unsynced(sql.register, worker, batch, agent, self._at(now))
        settle.remember_worker(self._db, worker.id, bool(agent))

    def retire(self, worker: str, now: int | None = None) -> None:
        at = self._at(now)
        self._write(lambda s: sql.retire(s, worker, at), durable=False)

    def at_work(self, boot: str) -> list[AtWork]:
        return self._db.read(lambda s: sql.at_work(s, boot))

    def ready(self, capabilities: tuple[str, ...] | None = ()) -> list[Ready]:
        return self._db.read(lambda s: sql.ready(s, capabilities))

    def running(self, batch: str | None, limit: int) -> list[Running]:
        return self._db.read(lambda s: sql.running(s, batch, limit))

    def setting(self, name: str) -> str | None:
        return self._db.read(settings.setting, name)

    def set(self, name: str, value: str | None) -> None:
        self._db.write(settings.set_setting, name, value)

    def reduce_input(self, task: str) -> str | None:
        return self._db.read(pipelines.reduce_input, task)

    def set_reduce_input(self, token: Token, digest: str) -> bool:
        return self._db.write(pipelines.set_reduce_input_under_claim, token, digest)

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
        self._db.write_unsynced(
            event_log.note, kind, data, actor, self._at(now), task=task, batch=batch
        )

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
        at = self._at(now)
        self._db.write(sql.note_once, (name, value), kind, data, actor, batch=batch, now=at)

    def report(
        self, batch: str, after: str, limit: int, now: int | None = None
    ) -> list[TaskReport]:
        at = self._at(now)
        return self._db.read(lambda s: sql.report(s, batch, after, limit, at))

    def states(self, tasks: Sequence[str]) -> dict[str, str]:
        return self._db.read(lambda s: sql.states(s, tasks)) if tasks else {}

    def stuck(self, batches: Sequence[str]) -> dict[str, int]:
        return self._db.read(lambda s: sql.stuck(s, batches)) if batches else {}

    def changed_since(self, batch: str, since: int) -> dict[str, int]:
        return self._db.read(lambda s: sql.changed_since(s, batch, since))

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
        return self._db.read(lambda s: receipts.chain_receipts(s, chain))

    def check_receipts(self, chain: str | None) -> list[ChainReport]:
        return self._db.read(lambda s: receipts.check(s, chain))

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

    def resolve(self, text: str) -> str:
        return self._db.read(lambda s: queries.resolve(s, text))

    def task(self, task: str) -> Task:
        return self._db.read(queries.task, task)

    def detail(self, task: str) -> TaskDetail:
        return self._db.read(lambda s: queries.detail(s, task))

    def list_tasks(self, wanted: TaskFilter, limit: int, before: str | None = None) -> list[Task]:
        return self._db.read(lambda s: queries.list_tasks(s, wanted, limit, before))

    def batch(self, text: str) -> Batch:
        return self._db.read(lambda s: queries.batch(s, text))

    def batches(self, limit: int) -> list[Batch]:
        return self._db.read(lambda s: queries.batches(s, limit))

    def stats(self, batch: str | None, now: int | None = None, pace: bool = True) -> Stats:
        return self._db.read(queries.stats, batch, self._at(now), pace)

    def events(self, since: int, limit: int) -> list[Event]:
        return queries.events(self._db, since, limit)
