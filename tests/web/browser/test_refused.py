"""Who does not get in, and what another page on this machine or elsewhere cannot do."""

from __future__ import annotations

import socket
import time

import pytest

from hypervisor.queue.queries import end_of_log
from hypervisor.web.dashboard.guard import MAX_BODY
from hypervisor.web.dashboard.server import access_to
from hypervisor.web.dashboard.site import ACTIONS, MENU
from tests.web.browser.attacker import CHANGE, HOSTS, Attacker
from tests.web.browser.conftest import DEADLINE, LIVE
from tests.web.browser.wiretap import Wiretap

pytestmark = pytest.mark.web

POST = """async path => {
    const body = new URLSearchParams({ reason: "x", command: "true", items: "a", shown: "x" });
    return (await fetch(path, { method: "POST", body })).status;
}"""


@pytest.fixture
def victim(project):
    """A task that nobody may cancel."""
    with project.open() as hv:
        return hv.add("precious", batch="victim").id


@pytest.fixture
def attacker(project, tab):
    """It knows where the dashboard is; what reaches that is written down."""
    tap = Wiretap(project.port)
    made = Attacker(tap)
    yield made
    made.close()
    tap.close()


def unchanged(project, victim):
    with project.open() as hv:
        return hv.show(victim).detail.task.state == "active"


@pytest.mark.parametrize("host", HOSTS)
def test_another_page_can_change_read_and_frame_nothing(project, tab, victim, attacker, host):
    tab()
    page = tab.context.new_page()
    answers = []
    page.on("response", lambda answer: answers.append((answer.url, answer.status)))
    page.goto(attacker.address(host))
    page.wait_for_function("window.got")
    got = page.evaluate("window.got")
    assert set(got.values()) == {"refused"}, got
    changes = [status for url, status in answers if url.endswith(CHANGE)]
    assert changes and set(changes) == {403}
    assert len([sent for sent in attacker.tap.sent(CHANGE) if sent.method == "POST"]) >= 6
    assert not [frame for frame in page.frames if frame.query_selector("header.top")]
    assert page.title() == "attack" and unchanged(project, victim)


def test_a_form_of_another_page_that_leaves_it_is_refused(project, tab, victim, attacker):
    tab()
    page = tab.context.new_page()
    page.goto(attacker.address("127.0.0.1"))
    page.wait_for_function("window.got")
    with page.expect_navigation() as left:
        page.evaluate("""() => {
            const form = document.querySelector("form");
            form.target = "_top";
            form.submit();
        }""")
    assert left.value.status == 403 and "not allowed" in page.content()
    assert unchanged(project, victim)


def test_a_page_that_opens_ours_cannot_reach_into_it(project, tab, attacker):
    tab()
    page = tab.context.new_page()
    page.goto(attacker.address("127.0.0.1"))
    with page.expect_popup() as opened:
        page.evaluate("target => { window.ours = window.open(target); }", attacker.tap.address)
    opened.value.wait_for_selector("header.top")
    assert page.evaluate("""() => {
        try { return ours.document.title; } catch { return ours.closed ? "closed" : "refused"; }
    }""") in ("closed", "refused")
    assert opened.value.evaluate("window.opener") is None


def test_a_rebound_name_gets_nothing(project, tab, victim):
    tab()
    page = tab.context.new_page()
    answer = page.goto(f"http://evil.example:{project.port}/")
    assert answer.status == 421 and "unknown host name" in page.content()
    token = project.url.partition("#t=")[2]
    for path in ("/enter", CHANGE):
        asked = page.evaluate(
            """async ([path, token]) => (await fetch(path, { method: "POST",
                headers: { authorization: `Bearer ${token}` },
                body: new URLSearchParams({ token }) })).status""",
            [path, token],
        )
        assert asked == 421
    assert page.evaluate("async () => (await fetch('/events/after?after=0')).status") == 421
    assert unchanged(project, victim)


def test_a_browser_without_the_token_sees_nothing(project, chromium, person):
    project.serve()
    stranger = person()
    page = stranger.context.new_page()
    for path in ("/", "/tasks", "/nowhere", "/metrics.json"):
        assert page.goto(project.address + path).status == 401
        assert "first" not in page.content()
    page.goto(project.address)
    page.wait_for_selector("text=hv dashboard")
    with project.open() as hv:
        access = access_to(hv)
        expired = access.share(hv.now() - 1)
        forged = expired.replace("share.1", "share.9", 1)
    for number, token in enumerate(("wrong", access.token[:-1], expired, forged)):
        page.goto(f"{project.address}/?{number}#t={token}")
        page.wait_for_selector("text=wrong or has expired")
        assert "#" not in page.url and stranger.context.cookies() == []
    page.goto(f"{page.url}#t={access.token}")  # pasted into the same tab
    page.wait_for_selector("header.top")
    assert "#" not in page.url


def test_the_token_leaves_the_address_and_a_better_one_counts(project, person):
    project.serve()
    someone = person()
    page = someone.context.new_page()
    with project.open() as hv:
        link = access_to(hv).share(hv.now() + 600_000)
    page.goto(f"{project.address}/tasks#t={link}")
    page.wait_for_selector("header.top >> text=read-only")
    page.goto(f"{project.address}/batches#t={project.url.partition('#t=')[2]}")
    page.wait_for_selector("body[data-role=all]")
    assert page.url == f"{project.address}/batches"
    page.goto(f"{project.address}/tasks#t={project.url.partition('#t=')[2]}")
    page.wait_for_url(f"{project.address}/tasks")
    page.goto(f"{project.address}/tasks#t={link}")
    page.wait_for_url(f"{project.address}/tasks")
    page.reload()
    assert page.query_selector("body[data-role=all]"), "a link that can do less is not needed"


def test_a_link_that_expires_ends_what_it_shows(project, person):
    project.serve()
    guest = person()
    with project.open() as hv:
        link = access_to(hv).share(hv.now() + 8_000)
    page = guest.context.new_page()
    page.goto(f"{project.address}/#t={link}")
    page.wait_for_selector("header.top >> text=read-only")
    page.wait_for_selector(LIVE)
    page.wait_for_selector("text=it signs this browser in")
    assert not page.query_selector("header.top")


@pytest.mark.parametrize("how", ["--read-only", "a share link"])
def test_a_reader_changes_nothing(project, victim, person, how):
    project.serve(*(["--read-only"] if how == "--read-only" else []))
    reader = person()
    with project.open() as hv:
        if how == "a share link":
            project.url = f"{project.address}/#t={access_to(hv).share(hv.now() + 600_000)}"
        page = reader()
        page.wait_for_selector("header.top >> text=read-only")
        before = end_of_log(hv)
        for action in ACTIONS:
            path = action.path.format(batch="victim", task=victim, chunk=1, name="x", finding="x")
            assert page.evaluate(POST, path) == 403, path
        for path in (*(entry.path for entry in MENU), "/batches/victim", f"/tasks/{victim}"):
            page.goto(project.address + path)
            assert not page.query_selector("form[method=post] [type=submit]"), path
        assert end_of_log(hv) == before


class Raw:
    """Sends bytes that no browser would."""

    def __init__(self, project, tab):
        tab()
        (cookie,) = tab.context.cookies()
        self.port = project.port
        self.bearer = "Authorization: Bearer " + project.url.partition("#t=")[2]
        self.cookie = f"Cookie: {cookie['name']}={cookie['value']}"
        self.origin = f"Origin: {project.address}"

    def status(self, method, path, *headers, body=b""):
        """0 if the connection was closed without an answer."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *headers]
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE) as connection:
            try:
                connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
                answer = connection.recv(64).split()
            except ConnectionError:
                return 0
        return int(answer[1]) if answer else 0


def test_a_stolen_cookie_alone_changes_nothing(project, tab, victim):
    raw = Raw(project, tab)
    length = "Content-Length: 0"
    assert raw.status("POST", CHANGE, raw.cookie, length) == 403
    for origin in ("http://evil.example", "null", f"{project.address}.evil.example", ""):
        assert raw.status("POST", CHANGE, raw.cookie, length, f"Origin: {origin}") == 403
    twice = (raw.origin, "Origin: http://evil.example")
    assert raw.status("POST", CHANGE, raw.cookie, length, *twice) == 403
    foreign = (raw.origin, "Sec-Fetch-Site: cross-site")
    assert raw.status("POST", CHANGE, raw.cookie, length, *foreign) == 403
    assert unchanged(project, victim)
    assert raw.status("POST", CHANGE, raw.cookie, length, raw.origin) == 200  # our own page
    assert not unchanged(project, victim)


def test_odd_methods_and_sockets_are_refused(project, tab, victim):
    raw = Raw(project, tab)
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW", "post"):
        for path in (CHANGE, "/", "/static/base.css", "/events/stream"):
            assert 400 <= raw.status(method, path, raw.bearer, raw.cookie, raw.origin) < 500, method
    upgrade = (
        "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )  # fmt: skip
    assert raw.status("GET", "/", raw.bearer, *upgrade) != 101
    assert raw.status("GET", CHANGE, raw.bearer) == 405
    assert raw.status("HEAD", "/", raw.bearer) == 200
    assert unchanged(project, victim)


def test_large_requests_are_refused_before_they_are_read(project, tab, victim):
    raw = Raw(project, tab)
    own = (raw.cookie, raw.origin)
    assert raw.status("POST", CHANGE, *own, f"Content-Length: {MAX_BODY + 1}") == 413
    assert raw.status("POST", "/enter", raw.origin, "Content-Length: 99999999999") == 413
    assert raw.status("POST", CHANGE, *own, "Transfer-Encoding: chunked") == 413
    lengths = ("Content-Length: 5", "Content-Length: 99999999999")
    assert raw.status("POST", CHANGE, *own, *lengths) in (400, 413)
    assert raw.status("POST", CHANGE, *own, "Content-Length: x") in (400, 413)
    assert raw.status("GET", "/", raw.cookie, f"X: {'x' * 2_000_000}") in (0, 400, 431)
    assert raw.status("GET", f"/?{'x' * 2_000_000}", raw.cookie) in (0, 400, 414)
    assert raw.status("GET", "/", f"{raw.cookie}; a={'x' * 20_000}") == 200
    assert unchanged(project, victim)
    page = tab("/batches/victim")
    size = page.evaluate(
        """async ([path, size]) => {
            const body = new URLSearchParams({ reason: "x".repeat(size) });
            try { return (await fetch(path, { method: "POST", body })).status; } catch { return 0; }
        }""",
        [CHANGE, MAX_BODY],
    )
    assert size in (0, 413) and unchanged(project, victim)


def test_guessing_a_token_gets_slow(project, tab):
    raw = Raw(project, tab)
    wrong = [raw.status("GET", "/", f"Authorization: Bearer guess{n}") for n in range(21)]
    begun = time.monotonic()
    assert raw.status("GET", "/", "Authorization: Bearer guess") == 401
    assert set(wrong) == {401} and time.monotonic() - begun > 0.8
    begun = time.monotonic()
    assert raw.status("HEAD", "/", raw.bearer) == 200, "who has the token never waits"
