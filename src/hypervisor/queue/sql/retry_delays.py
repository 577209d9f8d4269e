"""The delay before the first retry of a batch's failed tasks."""

from __future__ import annotations

from hypervisor.core.errors import InvalidInput
from hypervisor.queue.lifecycle import FIRST_DELAY
from hypervisor.queue.sql import event_log
from hypervisor.store.database import Session

GET = "SELECT spec, retry_delay FROM batches WHERE id = ?"
SET = "UPDATE batches SET retry_delay = ? WHERE id = ?"


def get(session: Session, batch_id: str) -> int:
    """The delay in milliseconds; the run spec of a batch decides if there is one."""
    for text, delay in session.rows(GET, (batch_id,)):
        spec = event_log.load(text)
        if isinstance(spec, dict):
            return int(spec.get("retry_delay", FIRST_DELAY))
        return FIRST_DELAY if delay is None else int(delay)
    return FIRST_DELAY


def keep(session: Session, batch_id: str, delay: int) -> None:
    if any(text is not None for text, _ in session.rows(GET, (batch_id,))):
        raise InvalidInput(
            "this batch is run by `hv run`, which sets its delay: `hv run --retry-delay`. "
            "Nothing was added."
        )
    session.run(SET, (delay, batch_id))
