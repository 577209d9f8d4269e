"""A tab that is open all day does not grow: eight hours of events, with the clock compressed."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from hypervisor import NewTask
from hypervisor.queue.queries import end_of_log
from tests.web.browser.conftest import LIVE

pytestmark = pytest.mark.web

HOURS = 8
MAX_GROWTH = 20_000_000  # bytes
MAX_MORE_NODES = 5_000
HEARD = """() => {
    window.heard = Number(document.body.dataset.last);
    document.addEventListener("hv:events", event => { window.heard = event.detail.last; });
    window.swaps = 0;
    document.addEventListener("htmx:after:swap", () => { window.swaps += 1; });
}"""


class Size(NamedTuple):
    heap: int  # bytes
    nodes: int
    listeners: int


class Scales:
    """Weighs a tab after its garbage was collected."""

    def __init__(self, page):
        self._page = page
        self._devtools = page.context.new_cdp_session(page)
        self._devtools.send("Performance.enable")

    def weigh(self) -> Size:
        for _ in range(2):
            self._devtools.send("HeapProfiler.collectGarbage")
        found = {
            metric["name"]: int(metric["value"])
            for metric in self._devtools.send("Performance.getMetrics")["metrics"]
        }
        return Size(found["JSHeapUsedSize"], found["Nodes"], found["JSEventListeners"])


def work(hv, rounds):
    """Tasks are added, claimed and settled: five events each."""
    for _ in range(rounds):
        hv.add([NewTask(f"task {n}", type="memory") for n in range(10)], batch="day")
        for n, lease in enumerate(hv.claim("w", types=["memory"], limit=10)):
            hv.receipt(lease.token, "looked at it")
            if n % 5:
                hv.complete(lease.token, {"ok": True})
            else:
                hv.fail(lease.token, f"reason {n}")


PAGES = ["/", "/events", "/batches/day", "/tasks/first"]


@pytest.mark.parametrize("path", PAGES)
def test_a_tab_stays_small_over_a_day(project, tab, long, path):
    if path != PAGES[0] and not long:
        pytest.skip("takes minutes; runs with --long only")
    steps, rounds = (480, 2) if long else (16, 10)
    with project.open() as hv:
        work(hv, 10)
        first = hv.list_tasks(limit=1)[0].id
        tab()  # signs in
        page = tab.context.new_page()
        tab.problems.watch(page, tab.address)
        page.clock.install()
        page.goto(tab.address + path.replace("first", first))
        page.wait_for_selector(LIVE)
        page.evaluate(HEARD)
        scales, sizes, begun = Scales(page), [], end_of_log(hv)
        for step in range(steps):
            swaps = page.evaluate("window.swaps")
            work(hv, rounds)
            page.wait_for_function("last => window.heard >= last", arg=end_of_log(hv))
            page.clock.run_for(5_000)  # parts are fetched when it is their time
            if path != "/tasks/first":  # other tasks do not change it
                page.wait_for_function("before => window.swaps > before", arg=swaps)
            page.clock.fast_forward(HOURS * 3_600_000 // steps - 5_000)
            if step % max(steps // 8, 1) == 0:
                sizes.append(scales.weigh())
        sizes.append(scales.weigh())
        driven = end_of_log(hv) - begun
    print(f"{path}: {driven} events, {sizes}")
    assert driven >= (30_000 if long else 6_000)
    settled = sizes[1]  # the first shows a page that is still filling
    assert max(size.heap for size in sizes[1:]) - settled.heap < MAX_GROWTH, sizes
    assert sizes[-1].nodes - settled.nodes < MAX_MORE_NODES, sizes
    assert sizes[-1].listeners - settled.listeners < 500, sizes
