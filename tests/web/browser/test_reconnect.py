"""One stream per browser: exact after the server was killed, silent while nobody looks."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from hypervisor import NewTask
from hypervisor.queue.queries import end_of_log
from hypervisor.web.dashboard.feed import MAX_BACKLOG
from tests.web.browser.conftest import LIVE
from tests.web.browser.wiretap import Wiretap

pytestmark = pytest.mark.web

RECONNECTING = "#connection[data-state=reconnecting]"
STREAM = "/events/stream"
HIDE = """hidden => {
    Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
    Object.defineProperty(document, "visibilityState",
        { configurable: true, value: hidden ? "hidden" : "visible" });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
WITHOUT_WORKERS = "delete window.SharedWorker"


@pytest.fixture
def tapped(project, person):
    """A browser whose requests are written down."""
    project.serve()
    tap = Wiretap(project.port)
    someone = person()
    someone.address = tap.address
    yield tap, someone
    tap.close()


def restart(project, between):
    """Kill the server, change something, and serve again on the same port."""
    port = project.port
    project.kill()
    between()
    project.serve(port=port)


def parts(tap):
    """How often each part was fetched."""
    asked: Counter[str] = Counter()
    for request in tap.sent("part="):
        path, _, names = request.path.partition("?part=")
        asked.update(f"{path}?part={name}" for name in names.split(","))
    return asked


def test_a_killed_server_is_found_again_and_the_stream_continues_exactly(project, tapped, problems):
    tap, someone = tapped
    problems.expect("htmx:error", "Failed to fetch")
    with project.open() as hv:
        hv.add([NewTask("own")], batch="watched")
        page = someone("/batches/watched")
        page.wait_for_selector(LIVE)
        page.evaluate("window.unchanged = true")
        seen = end_of_log(hv)
        hv.add([NewTask("shown before")], batch="watched")
        page.wait_for_selector("#part-recent >> text=shown before")
        seen = end_of_log(hv)

        def between():
            page.wait_for_selector(RECONNECTING)
            tap.forget()
            hv.add([NewTask("missed")], batch="watched")

        restart(project, between)
        page.wait_for_selector("#part-recent >> text=missed")
        page.wait_for_selector(LIVE)
    again = [request.headers["last-event-id"] for request in tap.sent(STREAM)]
    assert set(again) == {str(seen)}, "it continues after the event that it has seen"
    assert page.evaluate("window.unchanged"), "the page was not loaded again"


def test_after_a_restart_only_what_changed_is_fetched(project, tapped, problems):
    tap, someone = tapped
    problems.expect("htmx:error", "Failed to fetch")
    with project.open() as hv:
        hv.add([NewTask("x")], batch="quiet")
        hv.add([NewTask("x")], batch="busy")
        quiet, busy = someone("/batches/quiet"), someone("/batches/busy")
        for page in (quiet, busy):
            page.wait_for_selector(LIVE)

        def between():
            quiet.wait_for_selector(RECONNECTING)
            tap.forget()
            hv.add([NewTask("missed")], batch="busy")

        restart(project, between)
        busy.wait_for_selector("#part-recent >> text=missed")
        quiet.wait_for_selector(LIVE)
        hv.add([NewTask("later")], batch="busy")
        busy.wait_for_selector("#part-recent >> text=later")
    fetched = parts(tap)
    assert not [path for path in fetched if "quiet" in path and "part=recent" in path], fetched
    assert [path for path in fetched if "busy" in path and "part=recent" in path], fetched


def test_a_long_backlog_becomes_one_reload(project, tapped, problems):
    tap, someone = tapped
    problems.expect("htmx:error", "Failed to fetch")
    page = someone("/batches")
    page.wait_for_selector(LIVE)
    page.evaluate("""
        window.heard = [];
        document.addEventListener("hv:events", event => window.heard.push(event.detail));
    """)
    with project.open() as hv:

        def between():
            page.wait_for_selector(RECONNECTING)
            tap.forget()
            for n in range(MAX_BACKLOG + 100):
                hv.add([NewTask("x")], batch=f"missed {n % 3}")

        restart(project, between)
        page.wait_for_selector("text=missed 2")
        page.wait_for_selector(LIVE)
        last = end_of_log(hv)
    assert page.evaluate("window.heard") == [{"last": last, "topics": []}]
    assert parts(tap) == {"/batches?part=list": 1}


def test_twelve_tabs_share_one_stream(project, tapped):
    tap, someone = tapped
    first = someone("/batches")
    first.wait_for_selector(LIVE)
    tap.forget()
    pages = [first, *(someone("/batches") for _ in range(11))]
    for page in pages:
        page.wait_for_selector(LIVE)
    with project.open() as hv:
        hv.add([NewTask("x")], batch="for all of you")
    for page in pages:
        page.wait_for_selector("text=for all of you")
    for page in pages[1:]:
        page.close()
    with project.open() as hv:
        hv.add([NewTask("x")], batch="for the last")
    first.wait_for_selector("text=for the last")
    assert tap.sent(STREAM) == [], "the stream of the first tab serves all"


def test_a_hidden_tab_asks_for_nothing_and_catches_up_at_once(project, tapped):
    tap, someone = tapped
    hidden, other = someone("/"), someone("/batches")
    for page in (hidden, other):
        page.wait_for_selector(LIVE)
    hidden.evaluate(HIDE, True)
    tap.forget()
    with project.open() as hv:
        hv.add([NewTask("while hidden")], batch="new")
        other.wait_for_selector("text=new")
        hv.add([NewTask("again")], batch="newer")
        other.wait_for_selector("text=newer")
        time.sleep(4)  # longer than any part of a visible page would wait
        asked = [request.path for request in tap.sent()]
        assert set(asked) == {"/batches?part=list"}, asked
        [lease, *_] = hv.claim("me", limit=3)
        hv.block(lease.token, "needs a person")
        tap.forget()
        hidden.evaluate(HIDE, False)
        hidden.wait_for_selector("#part-needs >> text=needs a person")
    assert parts(tap)["/?part=needs"] == 1
    first = tap.sent("part=")[0].path
    assert first == "/?part=needs,running,waiting,finished", "all by one request"


def test_when_every_tab_is_hidden_the_stream_is_kept_for_a_moment_and_then_closed(
    project, tapped, long
):
    if not long:
        pytest.skip("takes half a minute; runs with --long only")
    tap, someone = tapped
    page = someone("/batches")
    page.wait_for_selector(LIVE)
    page.evaluate(HIDE, True)
    time.sleep(35)
    with project.open() as hv:
        hv.add([NewTask("x")], batch="while away")
        tap.forget()
        page.evaluate(HIDE, False)
        page.wait_for_selector("text=while away")
    assert len(tap.sent(STREAM)) == 1


def test_what_happens_while_a_dialog_is_open_is_shown_when_it_closes(project, tab):
    with project.open() as hv:
        task = hv.add(NewTask("steered"), batch="b")
        page = tab(f"/tasks/{task.id}")
        page.wait_for_selector(LIVE)
        page.click("#part-summary button[popovertarget=do-cancel]")
        page.fill("#do-cancel input[name=reason]", "typed")
        page.evaluate("""
            window.heard = 0;
            document.addEventListener("hv:events", () => { window.heard += 1; });
        """)
        hv.claim("another", limit=5)
        page.wait_for_function("() => window.heard")
        page.wait_for_selector("#part-log >> text=No output")
        page.wait_for_timeout(1500)  # longer than the pause between two fetches of a part
        assert page.input_value("#do-cancel input[name=reason]") == "typed"
        page.click("#do-cancel >> text=Back")
        page.wait_for_selector("#part-summary .state >> text=running")


@pytest.mark.parametrize("missing", ["SharedWorker", "EventSource"])
def test_without_shared_workers_a_tab_asks(project, tapped, missing):
    tap, someone = tapped
    if missing == "SharedWorker":
        someone.context.add_init_script(WITHOUT_WORKERS)
    else:
        someone.context.route(
            "**/static/stream.js",
            lambda route: route.fulfill(
                body="self.EventSource = undefined;" + route.fetch().text(),
                content_type="text/javascript",
            ),
        )
    page = someone("/batches")
    page.wait_for_selector(LIVE)
    with project.open() as hv:
        hv.add([NewTask("x")], batch="asked for")
        page.wait_for_selector("text=asked for")
        assert not tap.sent(STREAM) and tap.sent("/events/after")
        page.evaluate(HIDE, True)
        tap.forget()
        hv.add([NewTask("x")], batch="later")
        time.sleep(3)  # longer than between two questions
        assert not tap.sent()
        page.evaluate(HIDE, False)
        page.wait_for_selector("text=later")
