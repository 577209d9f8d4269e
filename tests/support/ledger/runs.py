"""Batches that are run: pauses, stops, workers, settings, notes and reports."""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.learning import sql as learning_sql
from hypervisor.queue import settle
from hypervisor.queue.history import EndedAttempt
from hypervisor.queue.lease import Worker
from hypervisor.queue.pause import Pause
from hypervisor.queue.sql import event_log
from hypervisor.queue.sql import pauses as pauses_sql
from hypervisor.queue.sql import stops as stops_sql
from hypervisor.queue.stop import Stop
from hypervisor.queue.task import Batch, Json
from hypervisor.runs import sql
from hypervisor.runs.spec import ActiveWorker, Ready, Running, TaskReport
from hypervisor.store import settings
from tests.support.ledger.base import LedgerBase


class RunsLedger(LedgerBase):
    def ended_attempts(self, which: Sequence[tuple[str, int]]) -> list[EndedAttempt]:
        return self._db.read(learning_sql.ended, which)

    def any_running(self, batch: str) -> bool:
        return self._db.read(lambda s: sql.any_running(s, batch))

    def changed_among(self, tasks: Sequence[str], since: int) -> int:
        return self._db.read(lambda s: sql.changed_among(s, tasks, since)) if tasks else 0

    def declare(self, name: str, spec: Json, actor: str, now: int | None = None) -> Batch:
        at = self._at(now)
        return self._write(lambda s: sql.declare(s, name, spec, actor, at))

    def pause(self, which: Pause, now: int | None = None) -> bool:
        at = self._at(now)
        return self._write(lambda s: pauses_sql.pause(s, which, at))

    def resume(self, which: Pause, now: int | None = None) -> bool:
        at = self._at(now)
        return self._write(lambda s: pauses_sql.resume(s, which, at))

    def pauses(self) -> list[Pause]:
        return self._db.read(pauses_sql.pauses)

    def ask_stop(
        self, task: str, after: str, reason: str, actor: str, now: int | None = None
    ) -> bool:
        at = self._at(now)
        return self._write(lambda s: stops_sql.ask_stop(s, task, after, reason, actor, now=at))

    def stops(self, tasks: Sequence[str]) -> list[Stop]:
        return self._db.read(lambda s: stops_sql.stops(s, tasks)) if tasks else []

    def forget_stop(self, task: str) -> None:
        self._db.write_unsynced(stops_sql.forget_stop, task)

    def register(self, worker: Worker, batch: str, now: int | None = None, agent: str = "") -> None:
        self._db.write_unsynced(sql.register, worker, batch, agent, self._at(now))
        settle.remember_worker(self._db, worker.id, bool(agent))

    def retire(self, worker: str, now: int | None = None) -> None:
        at = self._at(now)
        self._write(lambda s: sql.retire(s, worker, at), durable=False)

    def at_work(self, boot: str) -> list[ActiveWorker]:
        return self._db.read(lambda s: sql.at_work(s, boot))

    def ready(self, capabilities: tuple[str, ...] | None = ()) -> list[Ready]:
        return self._db.read(lambda s: sql.ready(s, capabilities))

    def running(self, batch: str | None, limit: int) -> list[Running]:
        return self._db.read(lambda s: sql.running(s, batch, limit))

    def setting(self, name: str) -> str | None:
        return self._db.read(settings.setting, name)

    def set(self, name: str, value: str | None) -> None:
        self._db.write(settings.set_setting, name, value)

    def memory_peak(self, task_type: str = "", agent: str = "") -> int | None:
        return self._db.read(sql.memory_peak, task_type, agent)

    def set_memory_peak(self, size: int, task_type: str = "", agent: str = "") -> None:
        self._db.write(sql.set_memory_peak, task_type, agent, size)

    def scaled_workers(self, batch: str | None = None) -> int | None:
        return self._db.read(sql.scaled_workers, batch)

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
