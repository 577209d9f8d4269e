"""Refuses requests that do not come from the person who started the dashboard.

Checked before anything of the request is read: the Host (DNS rebinding), the Origin and
Sec-Fetch-Site (other web pages), the size, the cookie or token, and whether the holder may change
anything. Every answer carries the headers that keep a page from loading, running or being framed
by anything that is not ours.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from anyio import sleep

from hypervisor.serving.http import (
    LOOPBACK,
    App,
    Headers,
    Receive,
    Refusal,
    Scope,
    Send,
    host_name,
    refuse,
)
from hypervisor.serving.refusals import Refusals
from hypervisor.web.dashboard.access import Access, Role

SAFE = ("GET", "HEAD")
STATIC = "/static/"
ENTER = "/enter"  # where a browser shows the token of its address
MAX_BODY = 256 << 10  # bytes of a form
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "worker-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types htmx worker"
)
SECURITY = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class Guard:
    def __init__(
        self, app: App, access: Access, refusals: Refusals, hosts: Collection[str] = ()
    ) -> None:
        self._app, self._access, self._refusals = app, access, refusals
        self._hosts = {*LOOPBACK, *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await refuse(send, Refusal(404, "only HTTP is supported"))
            return
        refusal = await self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, _with_security(send))
        else:
            await refuse(send, refusal, *SECURITY)

    async def _refusal(self, scope: Scope) -> Refusal | None:
        """None if the request may pass; `scope["role"]` is then what it may do, and
        `scope["role_now"]()` what it may do later."""
        headers, is_safe = Headers(scope), scope["method"] in SAFE
        refusal = self._wrong_host(scope, headers) or _foreign(headers, is_safe) or _large(headers)
        if refusal or (is_safe and scope["path"].startswith(STATIC)) or scope["path"] == ENTER:
            return refusal
        scope["role_now"] = partial(self._role, headers)
        role = scope["role"] = self._role(headers)
        if role is None:
            if headers.bearer():
                await sleep(self._refusals.add(1))
            if is_safe and headers.one(b"sec-fetch-dest") in ("", "document"):
                return None  # the app answers with the page that asks for the token
            return Refusal(401, "not signed in: open the address that `hv dashboard` prints")
        if role == "read" and not is_safe:
            return Refusal(403, "this dashboard is read-only: nothing was changed")
        return None

    def _role(self, headers: Headers) -> Role | None:
        now = int(time.time() * 1000)
        if token := headers.bearer() or cookie_in(headers, self._access.cookie_name):
            return self._access.role(token, now)
        return None

    def _wrong_host(self, scope: Scope, headers: Headers) -> Refusal | None:
        """An address is fine if the connection came to it: no name had to be resolved for that."""
        name = host_name(headers.one(b"host")).lower()
        here = (scope.get("server") or ("",))[0]
        if name and (name in self._hosts or (name.strip("[]") == here and _is_address(here))):
            return None
        return Refusal(
            421, "unknown host name: start `hv dashboard` with --allow-host NAME to use it"
        )


def cookie_in(headers: Headers, name: str) -> str:
    try:
        cookie = SimpleCookie(headers.one(b"cookie")).get(name)
    except CookieError:
        return ""
    return cookie.value if cookie else ""


def _foreign(headers: Headers, is_safe: bool) -> Refusal | None:
    """Refuses what another page makes the browser send. Programs send none of these headers, but
    then they have to show the token, which no page can make a browser do."""
    site = headers.one(b"sec-fetch-site")
    if is_safe:
        if site in ("cross-site", "same-site") and headers.one(b"sec-fetch-mode") != "navigate":
            return Refusal(403, "requests from other pages are not allowed")
        return None
    if b"origin" not in headers and b"sec-fetch-site" not in headers and headers.bearer():
        return None
    origin = urlsplit(headers.one(b"origin"))
    same = origin.scheme in ("http", "https") and origin.netloc == headers.one(b"host")
    if not same or (b"sec-fetch-site" in headers and site != "same-origin"):
        return Refusal(403, "requests from other pages are not allowed: nothing was changed")
    return None


def _large(headers: Headers) -> Refusal | None:
    length = headers.one(b"content-length")
    if b"transfer-encoding" in headers or (length.isdecimal() and int(length) > MAX_BODY):
        return Refusal(413, f"requests are limited to {MAX_BODY >> 10} KiB")
    return None


def _is_address(host: str) -> bool:
    return bool(host) and (":" in host or host.replace(".", "").isdigit())


def _with_security(send: Send) -> Send:
    async def secured(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *SECURITY]
        await send(message)

    return secured
