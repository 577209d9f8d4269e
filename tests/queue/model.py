"""The ledger as a few dictionaries: slow, obvious, written from the documented rules.

A task that wants to run is QUEUED here; whether it is `waiting` or `active` is derived
from its definition every time. Of tasks with exclusive keys the database chooses who goes
first; the model then only knows what must hold for any choice (see `invariants.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hypervisor.core.errors import DependencyCycle, HypervisorError, LeaseLost, NotFound, WrongState
from hypervisor.queue.lane import ClaimFilter
from hypervisor.queue.lease import AttemptResult, Holder, Token, Worker
from hypervisor.queue.task import Changes, NewTask
from hypervisor.runs.spec import Ready
from tests.queue.model_state import (
    CRASH_LIMIT,
    ENDED,
    OUTCOME,
    QUEUED,
    STATE_AFTER,
    UNFINISHED,
    Attempt,
    Expected,
    ModelState,
    Task,
    future,
)


class Model(ModelState):
    # Adding

    def refusal_of_add(self, new: Sequence[NewTask], batch: str) -> type[HypervisorError] | None:
        fresh, _ = self._sort_out(new, batch)
        links: dict[int, set[int]] = {}
        for index in fresh:
            links[index] = set()
            for text in new[index].after:
                here = next((i for i in fresh if new[i].key == text), None)
                if here is not None:
                    links[index].add(here)
                elif self._by_key(batch, text) is None and text not in self.tasks:
                    return NotFound
        return DependencyCycle if _cyclic(links) else None

    def add(
        self, new: Sequence[NewTask], batch: str, actor: str, ids: Sequence[str], now: int
    ) -> list[tuple[str, str]]:
        """Takes over the ids that the ledger gave out. Returns the duplicates: (key, id)."""
        fresh, doubles = self._sort_out(new, batch)
        assert len(ids) == len(fresh)
        assert sorted(set(ids)) == list(ids), "ids rise in the order of the call"
        given = dict(zip(fresh, ids, strict=True))
        for index, task_id in given.items():
            task = new[index]
            needs = set()
            for text in task.after:
                here = next((given[i] for i in fresh if new[i].key == text), None)
                needs.add(here or self._by_key(batch, text) or text)
            self.tasks[task_id] = Task(
                task_id,
                batch,
                task.type,
                task.branch,
                task.priority,
                task.requires,
                task.assignee,
                frozenset(task.exclusive),
                task.key,
                needs,
                future(task.start_at, now),
                task.retries,
                "inbox" if task.inbox else QUEUED,
                chunk=task.chunk,
            )
            self.undecide(self.tasks[task_id])
            self.events.append(Expected("add", task_id, None, actor))
        by_key = {new[i].key: task_id for i, task_id in given.items()}
        return [
            (new[i].key or "", by_key.get(new[i].key) or self._by_key(batch, new[i].key) or "")
            for i in doubles
        ]

    def _sort_out(self, new: Sequence[NewTask], batch: str) -> tuple[list[int], list[int]]:
        fresh: list[int] = []
        doubles: list[int] = []
        for index, task in enumerate(new):
            known = task.key is not None and (
                self._by_key(batch, task.key) or any(new[i].key == task.key for i in fresh)
            )
            (doubles if known else fresh).append(index)
        return fresh, doubles

    def _by_key(self, batch: str, key: str | None) -> str | None:
        for task in self.tasks.values():
            if key is not None and (task.batch, task.key) == (batch, key):
                return task.id
        return None

    # Claiming

    def may_claim(self, task: Task, wanted: ClaimFilter, caller: str) -> bool:
        return not self.paused(task) and self.fits(task, wanted, caller)

    def fits(self, task: Task, wanted: ClaimFilter, caller: str) -> bool:
        if wanted.batch is not None and task.batch != wanted.batch:
            return False
        if wanted.types and task.type not in wanted.types:
            return False
        if wanted.branch is not None and task.branch != wanted.branch:
            return False
        if wanted.priorities and task.priority not in wanted.priorities:
            return False
        if any(ability not in wanted.capabilities for ability in task.requires):
            return False
        if wanted.assignee is not None:
            return task.assignee == wanted.assignee
        return not task.assignee or task.assignee == caller

    def claimable(self, active: Iterable[str], wanted: ClaimFilter, caller: str) -> list[str]:
        fit = [t for t in active if self.may_claim(self.tasks[t], wanted, caller)]
        return sorted(fit, key=lambda t: self.tasks[t].rank)

    def ready(
        self, active: Iterable[str], run_batches: Sequence[str], capabilities: tuple[str, ...]
    ) -> list[Ready]:
        """The batches that are run and have something for such a worker, best first."""
        wanted = ClaimFilter(capabilities=capabilities)
        open_tasks = [self.tasks[t] for t in self.claimable(active, wanted, "")]
        found = []
        for batch in dict.fromkeys(task.batch for task in open_tasks):
            of_batch = [task for task in open_tasks if task.batch == batch]
            types = tuple(dict.fromkeys(task.type for task in of_batch))
            best = of_batch[0]
            if batch in run_batches:
                found.append(Ready(batch, best.rank, best.priority, types, len(of_batch)))
        return found

    def ready_whatever_it_takes(
        self, active: Iterable[str], run_batches: Sequence[str]
    ) -> set[Ready]:
        """The same for workers that can do everything, grouped by requirements."""
        tasks = [self.tasks[t] for t in active]
        needs = {task.requires for task in tasks}
        return {
            ready._replace(requires=each)
            for each in needs
            for ready in self.ready([t.id for t in tasks if t.requires == each], run_batches, each)
        }

    def claims_of(self, worker: str) -> list[Token]:
        live = (token for token in self.tokens if self.holds(token))
        return sorted(t for t in live if self.tasks[t.task].attempts[-1].worker.id == worker)

    def ended_claim(self, token: Token) -> str | None:
        attempt = self._attempt(token)
        assert attempt is not None
        return attempt.outcome

    def claim(self, task_id: str, token: Token, worker: Worker, until: int) -> None:
        task = self.tasks[task_id]
        assert task.state == QUEUED and not self.hindered(task), "only ready tasks are claimed"
        task.state, task.reason, task.unblock = "in_progress", None, None
        task.attempts.append(Attempt(token.nonce, worker, until))
        assert token == (task_id, len(task.attempts), token.nonce)
        self.tokens.append(token)
        self.events.append(Expected("claim", task_id, token.attempt, worker.id))

    def holds(self, token: Token) -> bool:
        attempt = self._attempt(token)
        return attempt is not None and attempt.outcome is None

    def heartbeat(self, tokens: Iterable[Token], until: int) -> set[Token]:
        held = {token for token in tokens if self.holds(token)}
        for token in held:
            self.tasks[token.task].attempts[-1].until = until
        return held

    def _attempt(self, token: Token) -> Attempt | None:
        task = self.tasks.get(token.task)
        if task is None or not 1 <= token.attempt <= len(task.attempts):
            return None
        attempt = task.attempts[token.attempt - 1]
        return attempt if attempt.nonce == token.nonce else None

    # Ending attempts

    def settle(self, verdict: AttemptResult) -> tuple[str, str | None, str | None]:
        """('applied' | 'repeated' | 'lost', outcome, state if it is certain)."""
        attempt = self._attempt(verdict.token)
        if attempt is None:
            return "lost", None, None
        if attempt.outcome is None:
            state = self.end(verdict.token.task, verdict)
            return "applied", attempt.outcome, None if state == QUEUED else state
        if attempt.outcome == OUTCOME[verdict.event]:
            return "repeated", attempt.outcome, attempt.answered
        return "lost", None, None

    def end(self, task_id: str, verdict: AttemptResult, actor: str | None = None) -> str:
        task = self.tasks[task_id]
        attempt = task.attempts[-1]
        event, reason, state = verdict.event, verdict.reason, STATE_AFTER[verdict.event]
        attempt.outcome = OUTCOME[event]
        if event == "complete" and task.batch in self.merging_batches:
            event, state = "submit", "merging"
        if event in ("fail", "back_off"):
            task.failures += 1
        if event == "crash":
            task.crashes += 1
            if task.crashes >= CRASH_LIMIT:
                event, state = "poison", "failed"
        task.state, task.reason, task.unblock = state, reason, verdict.unblock
        task.start_at = verdict.retry_at
        self.events.append(Expected(event, task_id, len(task.attempts), actor or attempt.worker.id))
        return state

    # Merging

    def of_merger(self, task_id: str, attempt: int, event: str, reason: str | None) -> bool:
        """False if the task has moved on: then nothing changes."""
        task = self.tasks[task_id]
        if (task.state, len(task.attempts)) != ("merging", attempt):
            return False
        task.state = {"merge": "done", "rework": QUEUED, "ask": "review"}[event]
        task.reason = reason
        self.events.append(Expected(event, task_id, attempt, "merger"))
        return True

    def decide_review(self, task_id: str, event: str, reason: str) -> None:
        task = self.tasks[task_id]
        if task.state != "review":
            raise WrongState
        task.state = {"approve": "merging", "reject": "failed"}[event]
        task.reason = reason if event == "reject" else None
        self.events.append(Expected(event, task_id, len(task.attempts), "me"))

    def holders(self, boot: str, now: int) -> dict[str, Holder]:
        return {
            task.id: Holder(task.id, len(task.attempts), task.live.until, task.live.worker)
            for task in self.tasks.values()
            if task.live
            and (task.live.until < now or (task.live.worker.boot == boot and task.live.worker.pid))
        }

    # Chunks, decided in order

    def decide(self, batch: str, number: int, actor: str) -> int | None:
        """Returns the chunk that may run now."""
        state = self._chunk(batch, number)
        if state == "held" or any(t.state in UNFINISHED for t in self.of_chunk(batch, number)):
            raise WrongState
        self.chunks[batch, number] = "approved"
        held = sorted(n for (b, n), s in self.chunks.items() if b == batch and s == "held")
        held = held if state == "open" else []  # a changed decision releases nothing
        if held:
            self.chunks[batch, held[0]] = "open"
        self._tell(batch, f"chunk {number} ({number}th) approved", actor)
        return held[0] if held else None

    def retry_chunk(self, batch: str, number: int, tasks: Sequence[str], actor: str) -> int:
        if self._chunk(batch, number) == "held":
            raise WrongState
        own = sorted(task.id for task in self.of_chunk(batch, number))
        chosen = [task for task in own if not tasks or task in tasks]  # none named: all
        again = [task for task in chosen if self.tasks[task].state not in UNFINISHED]
        for task in again:
            self.reopen(task, actor)
        self.chunks[batch, number] = "open"
        self._tell(batch, f"chunk {number} ({number}th) to be retried: why", actor)
        return len(again)

    def undecide(self, task: Task) -> None:
        """Its chunk has unreviewed work."""
        if self.chunks.get((task.batch, task.chunk)) == "approved":
            self.chunks[task.batch, task.chunk] = "open"

    def of_chunk(self, batch: str, number: int) -> list[Task]:
        return [t for t in self.tasks.values() if (t.batch, t.chunk) == (batch, number)]

    def _chunk(self, batch: str, number: int) -> str:
        if (batch, number) not in self.chunks:
            raise NotFound
        return self.chunks[batch, number]

    def _tell(self, batch: str, text: str, actor: str) -> None:
        self.chains.setdefault(batch, []).append(text)
        self.events.append(Expected("receipt", "", None, actor))
        self.events.append(Expected("checkpoint", "", None, actor))

    # Steering

    def cancel(self, task_id: str, reason: str, actor: str) -> None:
        task = self.tasks[task_id]
        if task.state in ENDED:
            raise WrongState
        if task.live:
            self.end(task_id, AttemptResult(Token(task_id, 0, ""), "cancel", reason=reason), actor)
            return
        task.state, task.reason, task.unblock = "cancelled", reason, None
        self.events.append(Expected("cancel", task_id, None, actor))

    def reopen(self, task_id: str, actor: str) -> None:
        task = self.tasks[task_id]
        if task.state not in (*ENDED, "blocked", "review"):
            raise WrongState
        task.start_at = None
        self.undecide(task)
        self._requeue(task, "reopen", actor)

    def accept(self, task_id: str, actor: str, now: int) -> None:
        task = self.tasks[task_id]
        if task.state != "inbox":
            raise WrongState
        task.start_at = future(task.start_at, now)
        self._requeue(task, "accept", actor)

    def _requeue(self, task: Task, event: str, actor: str) -> None:
        task.state = QUEUED
        task.failures = task.crashes = 0
        task.reason = task.unblock = None
        self.events.append(Expected(event, task.id, None, actor))

    def take_back(self, task_id: str, reason: str, actor: str) -> None:
        if not self.tasks[task_id].live:
            raise WrongState
        self.end(task_id, AttemptResult(Token(task_id, 0, ""), "release", reason=reason), actor)

    def update(self, task_id: str, changes: Changes, actor: str, now: int) -> None:
        task = self.tasks[task_id]
        changed = replace(task)
        for name in ("type", "priority", "branch", "assignee", "requires", "retries"):
            value = getattr(changes, name)
            if value is not None:
                setattr(changed, name, value)
        if changes.after is not None:
            if task.state not in ("inbox", QUEUED):
                raise WrongState
            if any(self.reaches(needed, task_id) for needed in changes.after):
                raise DependencyCycle([task_id])
            changed.needs = set(changes.after)
        if changes.start_at is not None:
            changed.start_at = future(changes.start_at, now)
            if changed.start_at is not None and task.state not in ("inbox", QUEUED):
                raise WrongState
        self.tasks[task_id] = changed
        self.events.append(Expected("update", task_id, None, actor))

    def reaches(self, start: str, goal: str) -> bool:
        """Whether `start` is `goal` or waits for it, directly or not."""
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            here = ahead.pop()
            if here == goal:
                return True
            if here not in seen:
                seen.add(here)
                ahead += self.tasks[here].needs
        return False

    def promote_due(self, now: int) -> int:
        due = [
            task
            for task in self.tasks.values()
            if task.state == QUEUED and task.start_at is not None and task.start_at <= now
        ]
        for task in due:
            task.start_at = None
        return len(due)

    # Receipts

    def append(self, task_id: str, texts: list[str], actor: str, attempt: int | None) -> None:
        chain = self.tasks[task_id].batch or task_id
        self.chains.setdefault(chain, []).extend(texts)
        self.events.append(Expected("receipt", task_id, attempt, actor))

    def append_under_claim(self, token: Token, texts: list[str]) -> None:
        if not self.holds(token):
            raise LeaseLost(str(token), "")
        worker = self.tasks[token.task].attempts[-1].worker
        self.append(token.task, texts, worker.id, token.attempt)


def _cyclic(links: dict[int, set[int]]) -> bool:
    left = {node: set(needs) for node, needs in links.items()}
    while left:
        free = {node for node, needs in left.items() if not needs}
        if not free:
            return True
        left = {node: needs - free for node, needs in left.items() if node not in free}
    return False
