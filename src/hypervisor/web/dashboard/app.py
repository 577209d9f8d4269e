"""The web application: routes for pages, their parts, actions, the stream and static files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from anyio import CapacityLimiter, sleep, to_thread
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from hypervisor.core.errors import HypervisorError, InvalidInput
from hypervisor.core.text import one_line
from hypervisor.queue.context import Context
from hypervisor.serving.refusals import Refusals
from hypervisor.web.dashboard import assets
from hypervisor.web.dashboard.access import COOKIE_AGE, Access, Role
from hypervisor.web.dashboard.errors import status_of
from hypervisor.web.dashboard.feed import Feed, missed
from hypervisor.web.dashboard.filters import FILTERS
from hypervisor.web.dashboard.guard import ENTER
from hypervisor.web.dashboard.page import Action, Answer, Page, Raw, Request
from hypervisor.web.dashboard.shared import Shared
from hypervisor.web.dashboard.site import ACTIONS, MENU, PAGES, RAW
from hypervisor.web.rendering import environment

THREADS = 8  # operations at a time
MAX_TEXT = 4_000  # characters of one text: a page is fetched again and again
NO_STORE = {"cache-control": "no-store"}
Endpoint = Callable[[HttpRequest], Awaitable[Response]]


class Dashboard:
    """Serves one store. It holds no state that a browser depends on."""

    def __init__(self, hv: Context, access: Access, refusals: Refusals, folder: str = "") -> None:
        """`folder`: where it was started."""
        self.hv, self.access, self.refusals, self.folder = hv, access, refusals, folder
        self.shared = Shared()
        self.feed = Feed(hv, before=self.shared.forget)
        self.threads = CapacityLimiter(THREADS)
        self.env = environment(MAX_TEXT)
        self.env.filters.update(FILTERS)
        self.env.globals.update(menu=MENU, store=hv.store.where)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Mount("/static", StaticFiles(directory=assets.STATIC)),
                Route(ENTER, self.enter, methods=["POST"]),
                Route("/events/stream", self.stream),
                Route("/events/after", self.events_after),
                *(Route(page.path, self._page(page)) for page in PAGES),
                *(Route(raw.path, self._raw(raw)) for raw in RAW),
                *(Route(a.path, self._action(a), methods=["POST"]) for a in ACTIONS),
            ],
            exception_handlers={404: self._missing},
        )

    # Who comes in

    async def enter(self, request: HttpRequest) -> Response:
        """Exchange the token of the address for a cookie."""
        token = (await _form(request)).get("token", "")
        role = self.access.role(token, _now())
        if role is None:
            await sleep(self.refusals.add(1))
            return JSONResponse({"error": "this link is wrong or has expired"}, 401)
        answer = JSONResponse({"role": role})
        answer.set_cookie(
            self.access.cookie_name,
            self.access.cookie_for(token),
            max_age=COOKIE_AGE,
            httponly=True,
            samesite="strict",
            secure=request.headers.get("origin", "").startswith("https:"),
        )
        return answer

    def _ask_for_token(self) -> Response:
        text = self.env.get_template("dashboard/enter.html").render()
        return HTMLResponse(text, 401, headers=NO_STORE)

    # Events

    async def stream(self, request: HttpRequest) -> Response:
        if request.scope["role"] is None:
            return JSONResponse({"error": "not signed in"}, 401)
        after = request.headers.get("last-event-id") or request.query_params.get("after") or ""
        number = int(after) if after.isascii() and after.isdigit() and len(after) < 19 else None
        stream = self.feed.follow(number, lambda: request.scope["role_now"]() is not None)
        return StreamingResponse(stream, media_type="text/event-stream", headers=NO_STORE)

    async def events_after(self, request: HttpRequest) -> Response:
        """The same for a browser that cannot share a stream: it asks every few seconds."""
        if request.scope["role"] is None:
            return JSONResponse({"error": "not signed in"}, 401)
        after = Request({}, request.query_params, "read", _now()).number("after")
        found = await self._in_thread(missed, self.hv, after)
        if found:
            self.shared.forget()
        text = found.json() if found else "null"
        return Response(text, media_type="application/json", headers=NO_STORE)

    # Pages and actions

    def _page(self, page: Page) -> Endpoint:
        async def endpoint(request: HttpRequest) -> Response:
            if request.scope["role"] is None:
                return self._ask_for_token()
            asked = self._asked(request)
            part = asked.query.get("part", "") if _is_part(request) else ""
            last = 0 if part else await self.feed.last()
            render = partial(self._in_thread, self._render, page, part, asked, last)
            # Without a reader of the log, nothing says when a rendering is out of date.
            is_shared = part and self.feed.is_reading
            key = (request.url.path, request.url.query, asked.role)
            try:
                text = await (self.shared.get(key, render) if is_shared else render())
                return HTMLResponse(text, headers=NO_STORE)
            except HypervisorError as error:
                return await self._failure(request, error)

        return endpoint

    def _render(self, page: Page, part: str, asked: Request, last: int) -> str:
        values = {**page.values(self.hv, asked), "asked": asked, "page": page}
        if "," in part:
            names = dict.fromkeys(part.split(","))
            inner = {name: Markup(self._part(page, name, asked, values)) for name in names}
            return self.env.get_template("dashboard/parts.html").render(inner=inner)
        if part:
            return self._part(page, part, asked, values)

        def include(name: str, live: str = "", every: int = 0, tag: str = "section") -> Markup:
            inner = Markup(self._part(page, name, asked, values))  # rendered by a template
            url = "?" + urlencode({**asked.query, "part": name})
            return Markup(
                self.env.get_template("dashboard/part.html").render(
                    name=name, url=url, live=live, every=every, tag=tag, inner=inner
                )
            )

        template = self.env.get_template(f"dashboard/{page.name}/page.html")
        return template.render(**values, part=include, last=last)

    def _part(self, page: Page, name: str, asked: Request, values: dict[str, Any]) -> str:
        if name not in page.parts:
            raise InvalidInput(f"this page has no part {name[:40]!r}")
        own = page.parts[name](self.hv, asked)
        template = self.env.get_template(f"dashboard/{page.name}/{name}.html")
        return template.render(**{**values, **own})

    def _action(self, action: Action) -> Endpoint:
        async def endpoint(request: HttpRequest) -> Response:
            asked = self._asked(request, await _form(request))
            try:
                answer = await self._in_thread(action.run, self.hv, asked)
            except HypervisorError as error:
                return await self._failure(request, error)
            finally:
                self.shared.forget()
            if isinstance(answer, Answer):
                return self._show(request, answer)
            return self._message(request, answer, 200)

        return endpoint

    def _show(self, request: HttpRequest, answer: Answer) -> Response:
        if answer.go and _is_part(request):
            return Response(status_code=204, headers={**NO_STORE, "hx-redirect": answer.go})
        if answer.go:
            return RedirectResponse(answer.go, 303, headers=NO_STORE)
        inner = self.env.get_template(f"dashboard/{answer.template}.html").render(answer.values)
        if not _is_part(request):
            frame = self.env.get_template("dashboard/answer_page.html")
            inner = frame.render(inner=Markup(inner), **self._frame(request))
        return HTMLResponse(inner, headers=NO_STORE)

    def _raw(self, raw: Raw) -> Endpoint:
        async def endpoint(request: HttpRequest) -> Response:
            if request.scope["role"] is None:
                return JSONResponse({"error": "not signed in"}, 401)
            try:
                kind, content = await self._in_thread(raw.read, self.hv, self._asked(request))
            except HypervisorError as error:
                return JSONResponse({"error": str(error)}, status_of(error), NO_STORE)
            if isinstance(content, str | bytes):
                return Response(content, media_type=kind, headers=NO_STORE)
            return StreamingResponse(content, media_type=kind, headers=NO_STORE)

        return endpoint

    async def _missing(self, request: HttpRequest, error: Exception) -> Response:
        if request.scope.get("role") is None:
            return self._ask_for_token()
        return self._message(request, "there is no such page", 404)

    async def _failure(self, request: HttpRequest, error: HypervisorError) -> Response:
        return self._message(request, str(error), status_of(error))

    def _message(self, request: HttpRequest, text: str, status: int) -> Response:
        """A sentence: alone for a page that is open, as a page for a browser without scripts."""
        name = "message" if _is_part(request) else "message_page"
        template = self.env.get_template(f"dashboard/{name}.html")
        back = request.url.path.rsplit("/", 1)[0] or "/"
        content = template.render(
            text=one_line(text), bad=status >= 400, back=back, **self._frame(request)
        )
        return HTMLResponse(content, status, headers=NO_STORE)

    def _frame(self, request: HttpRequest) -> dict[str, Any]:
        """What the frame of a page needs that is none of the pages."""
        return {"last": 0, "page": Page("", "message"), "asked": self._asked(request)}

    def _asked(self, request: HttpRequest, form: dict[str, str] | None = None) -> Request:
        query = {k: v for k, v in request.query_params.items() if "\0" not in v}
        role: Role = request.scope.get("role") or "read"
        return Request(request.path_params, query, role, _now(), form or {}, self.folder)

    async def _in_thread(self, call: Callable[..., Any], *values: Any) -> Any:
        return await to_thread.run_sync(partial(call, *values), limiter=self.threads)


def _is_part(request: HttpRequest) -> bool:
    return "hx-request" in request.headers


async def _form(request: HttpRequest) -> dict[str, str]:
    text = (await request.body()).decode("utf-8", "replace")
    return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=1_000))


def _now() -> int:
    from time import time

    return int(time() * 1000)
