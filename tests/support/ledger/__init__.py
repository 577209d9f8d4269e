"""A driver for tests: the statements of all rooms as methods of one object, with `now` optional.

It passes for the open database itself, so that a test may give it to a `Context`.
"""

from __future__ import annotations

from tests.support.ledger.agents import AgentsLedger
from tests.support.ledger.batches import BatchesLedger
from tests.support.ledger.claims import ClaimsLedger
from tests.support.ledger.hive import HiveLedger
from tests.support.ledger.notifications import NotificationsLedger
from tests.support.ledger.runs import RunsLedger
from tests.support.ledger.tasks import TasksLedger


class Ledger(
    AgentsLedger,
    NotificationsLedger,
    HiveLedger,
    BatchesLedger,
    RunsLedger,
    TasksLedger,
    ClaimsLedger,
):
    pass
