"""Numbers for programs: Prometheus, and the plots of the dashboard."""

from __future__ import annotations

import json

from hypervisor.monitoring.metrics import MINUTE, metrics
from hypervisor.monitoring.prometheus import MEDIA_TYPE, prometheus_text
from hypervisor.queue.context import Context
from hypervisor.web.dashboard.page import Page, Raw, Request

LONGEST = 30 * 24 * 60  # minutes


def for_prometheus(hv: Context, request: Request) -> tuple[str, str]:
    return MEDIA_TYPE, prometheus_text(hv, request.now)


def for_plots(hv: Context, request: Request) -> tuple[str, str]:
    """Columns, as uPlot takes them."""
    span = min(request.number("minutes", 10), LONGEST) * MINUTE
    samples = metrics(hv, span, request.now)
    columns = {
        "at": [sample.at / 1000 for sample in samples],
        "cpu": [round(sample.cpu * 100, 1) for sample in samples],
        "own": [round(sample.own * 100, 1) for sample in samples],
        "ram": [round(sample.ram * 100, 1) for sample in samples],
        "zone": [sample.zone for sample in samples],
        "running": [sample.running for sample in samples],
        "done": [sample.done for sample in samples],
        "failed": [sample.failed for sample in samples],
        "cost": [sample.cost_micros / 1e6 for sample in samples],
    }
    return "application/json", json.dumps(columns, separators=(",", ":"))


PAGES: tuple[Page, ...] = ()
RAW = (Raw("/metrics", for_prometheus), Raw("/metrics.json", for_plots))
