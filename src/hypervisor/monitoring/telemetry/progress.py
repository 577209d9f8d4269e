"""How far traces have been sent from this host: kept in the store, so that a restart continues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypervisor.core.records import NamedTuple
from hypervisor.queue.sql import queries
from hypervisor.store.settings import set_setting, setting

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

MAX_OPEN = 1_000  # batches; of more, some get no span of their own


class Sent(NamedTuple):
    """Everything up to the event `after`; the batches in `open` have no span yet."""

    after: int
    open: tuple[str, ...] = ()


def sent(hv: Context) -> Sent:
    """For a host that sends its first traces: only what ends from now on."""
    text = hv.store.read(setting, _name(hv))
    if text is None:
        first = Sent(queries.end_of_log(hv.store))
        save(hv, first)
        return first
    values = json.loads(text)
    return Sent(int(values["after"]), tuple(values["open"]))


def save(hv: Context, now_sent: Sent) -> None:
    text = json.dumps(now_sent._replace(open=now_sent.open[-MAX_OPEN:])._asdict())
    hv.store.write_unsynced(set_setting, _name(hv), text)


def _name(hv: Context) -> str:
    return f"telemetry {hv.probe.host()}"
