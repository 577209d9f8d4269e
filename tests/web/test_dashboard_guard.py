"""Who may use the dashboard: refused are wrong tokens, foreign pages and unknown hosts."""

from __future__ import annotations

import re

import pytest

import hypervisor
from hypervisor.web.dashboard.access import Access
from hypervisor.web.dashboard.server import Options
from tests.web.dashboards import HOST, Browser

FAR = 10**14


@pytest.fixture
def hv(tmp_path):
    with hypervisor.open(tmp_path / "x.db", relaxed=True) as opened:
        yield opened


@pytest.fixture
def browser(hv):
    return Browser(hv)


def test_a_signed_in_browser_gets_the_page_and_a_stranger_only_the_question(browser):
    assert browser.get("/").status == 200
    for cookie in (None, f"{browser.access.cookie_name}=wrong", "a=b; =", f"other={'x' * 64}"):
        answer = browser.get("/", cookie=cookie)
        assert answer.status == 401
        assert "hv dashboard" in answer.text and "Needs you" not in answer.text
        assert browser.get("/events/after?after=0", cookie=cookie).status == 401
        assert browser.get("/nowhere", cookie=cookie).status == 401


def test_the_token_of_the_address_becomes_a_cookie_that_no_script_can_read(browser):
    answer = browser.post("/enter", {"token": browser.access.token}, cookie=None)
    assert answer.status == 200
    cookie = answer.headers["set-cookie"]
    assert re.search("HttpOnly", cookie) and re.search("SameSite=strict", cookie)
    assert browser.access.token not in cookie
    assert browser.get("/", cookie=cookie.partition(";")[0]).status == 200
    secure = browser.post(
        "/enter", {"token": browser.access.token}, origin=f"https://{HOST}", cookie=None
    )
    assert "Secure" in secure.headers["set-cookie"]


def test_wrong_tokens_get_nothing(browser):
    for token in ("", "x", browser.access.token[:-1], "share.9.x", f"share.{FAR}.0", "x" * 5000):
        assert browser.post("/enter", {"token": token}, cookie=None).status == 401
        assert browser.get("/", cookie=None, authorization=f"Bearer {token}").status == 401


def test_a_program_may_send_the_token_itself(browser):
    bearer = f"Bearer {browser.access.token}"
    assert browser.get("/", cookie=None, authorization=bearer).status == 200


def test_other_hosts_are_refused(hv, browser):
    for host in ("evil.example", "127.0.0.1.evil.example:8500", "", "localhost.", "10.0.0.9"):
        assert browser.get("/", host=host).status == 421, host
    for host in ("localhost:1", "127.0.0.1", "[::1]:8500"):
        assert browser.get("/", host=host).status == 200, host
    assert Browser(hv, hosts=("My.Tunnel",)).get("/", host="my.tunnel:443").status == 200


FOREIGN = [
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": None},
    {"origin": "http://127.0.0.1:9999"},  # another program of this machine
    {"origin": f"http://{HOST}.evil.example"},
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    {"sec_fetch_site": "none"},
    {"origin": None, "sec_fetch_site": None},  # the cookie alone is not enough
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_change_must_come_from_our_own_page(browser, headers):
    for path in ("/enter", "/batches/x/pause"):
        answer = browser.post(path, {"token": browser.access.token}, **headers)
        assert answer.status == 403
        assert "set-cookie" not in answer.headers


def test_another_page_cannot_load_ours_but_may_link_to_it(browser):
    headers = {"sec_fetch_site": "cross-site"}
    assert browser.get("/", **headers, sec_fetch_mode="no-cors").status == 403
    assert browser.get("/", **headers, sec_fetch_mode="navigate").status == 200


def test_every_answer_has_a_strict_policy(browser):
    answers = [
        browser.get("/"),
        browser.get("/", cookie=None),
        browser.get("/", host="evil.example"),
        browser.get("/nowhere"),
        browser.get("/static/base.css", cookie=None),
        browser.post("/enter", {"token": "x"}),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy and "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy and "require-trusted-types-for" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_a_read_only_dashboard_and_a_share_link_change_nothing(hv, browser):
    shared = browser.access.share(FAR)
    assert browser.post("/enter", {"token": shared}, cookie=None).status == 200
    cookie = f"{browser.access.cookie_name}={shared}"
    for who, own in ((browser, cookie), (Browser(hv, read_only=True), browser.cookie)):
        page = who.get("/", cookie=own)
        assert page.status == 200 and "read-only" in page.text
        assert who.post("/batches/x/pause", cookie=own).status == 403


def test_a_share_link_expires_and_cannot_be_extended():
    access = Access("secret" * 8, "store")
    shared = access.share(2_000)
    assert access.role(shared, 1_999) == "read"
    assert access.role(shared, 2_000) is None
    assert access.role(shared.replace("2000", "9000"), 1_000) is None
    assert Access("other" * 8, "store").role(shared, 0) is None


def test_large_requests_are_refused(browser):
    assert browser.post("/enter", content_length="999999999").status == 413
    assert browser.post("/enter", transfer_encoding="chunked").status == 413


def test_other_addresses_need_tls_or_a_flag():
    for fine in (
        Options(),
        Options("::1"),
        Options("localhost"),
        Options("0.0.0.0", plain_http=True),
    ):
        fine.check()
    Options("0.0.0.0", certificate="c", key="k").check()
    for bad in (
        Options("0.0.0.0"),
        Options("192.168.1.5"),
        Options("::"),
        Options(certificate="c"),
    ):
        with pytest.raises(hypervisor.InvalidInput):
            bad.check()
