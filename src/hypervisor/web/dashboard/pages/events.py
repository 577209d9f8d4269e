"""Events: the log as it grows, filtered."""

from __future__ import annotations

from hypervisor.queue.context import Context
from hypervisor.queue.event import Event
from hypervisor.queue.lifecycle import EVENTS
from hypervisor.queue.queries import batch_names, batches, last_events
from hypervisor.web.dashboard.page import Page, Request, Values

SHOWN = 200
SEARCHED = 20_000  # events back; the command line searches all
MAX_BATCHES = 200
OTHERS = (
    "batch",
    "pause",
    "resume",
    "scale",
    "governor",
    "trouble",
    "learner",
    "session",
    "budget",
)


def form(hv: Context, request: Request) -> Values:
    kinds = sorted({*EVENTS, *OTHERS})
    return {"kinds": kinds, "batches": batches(hv, MAX_BATCHES), "query": request.query}


def latest(hv: Context, request: Request) -> Values:
    ask = request.query.get
    kind, batch, text = ask("kind", ""), ask("batch", ""), ask("text", "").lower()

    def is_wanted(event: Event) -> bool:
        if (kind and event.kind != kind) or (batch and event.batch != batch):
            return False
        return not text or text in f"{event.task} {event.actor} {event.data or ''}".lower()

    events, last = last_events(hv, SHOWN, is_wanted, SEARCHED)
    names = batch_names(hv, (event.batch for event in events))
    searched = min(last, SEARCHED) if (kind or batch or text) else None
    return {"events": events[::-1], "names": names, "last": last, "searched": searched}


PAGES = (Page("/events", "events", form, {"list": latest}),)
