"""Serving the dashboard until asked to stop."""

from __future__ import annotations

import json
import socket

from hypervisor.core.errors import InvalidInput
from hypervisor.core.places import digest
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context
from hypervisor.runs.processes.log_file import log_level
from hypervisor.serving.connections import Server
from hypervisor.serving.http import HOST, App, is_loopback, open_port
from hypervisor.serving.refusals import Refusals
from hypervisor.web.dashboard.access import TOKEN_FILE, Access
from hypervisor.web.dashboard.app import Dashboard
from hypervisor.web.dashboard.guard import Guard

GRACE = 2  # seconds for pending answers at shutdown
FIRST_PORT, PORTS, TRIES = 8_500, 400, 20
EVERYWHERE = ("0.0.0.0", "::")


class Options(NamedTuple):
    bind: str = HOST
    hosts: tuple[str, ...] = ()  # other names that it is reached under
    certificate: str | None = None
    key: str | None = None
    plain_http: bool = False
    read_only: bool = False
    folder: str = ""  # where it was started

    def check(self) -> None:
        """Away from this machine, everybody on the way could read the token."""
        if (self.certificate is None) != (self.key is None):
            raise InvalidInput("--cert and --key belong together: give both.")
        if is_loopback(self.host) or self.certificate or self.plain_http:
            return
        raise InvalidInput(
            f"{self.bind} can be reached from other machines: give a certificate with --cert "
            "and --key, or use --plain-http if a proxy or tunnel encrypts the connection."
        )

    def address(self, port: int) -> str:
        """What a person opens, without the token."""
        host = self.hosts[0] if self.bind in EVERYWHERE and self.hosts else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{port}/"

    @property
    def host(self) -> str:
        return f"[{self.bind}]" if ":" in self.bind else self.bind

    def text(self) -> str:
        """For a process in the background; `options_from` reads it."""
        return json.dumps(self._asdict())


def options_from(text: str) -> Options:
    values = json.loads(text)
    return Options(**{**values, "hosts": tuple(values["hosts"])})


def open_stable_port(where: str, bind: str) -> socket.socket:
    """The same port for a store each time, so that bookmarks stay valid; the next one if taken."""
    first = FIRST_PORT + int(digest(where), 16) % PORTS
    for port in range(first, first + TRIES):
        try:
            return open_port(port, bind)
        except InvalidInput:
            continue
    return open_port(0, bind)


def access_to(hv: Context, *, read_only: bool = False) -> Access:
    """Who may use the dashboard of this store."""
    _, secret = hv.secret(TOKEN_FILE)
    return Access(secret, hv.store.where, read_only=read_only)


class Served(Server):
    """Ends the streams first: they would keep it waiting."""

    def __init__(self, dashboard: Dashboard, app: App, options: Options) -> None:
        self._dashboard = dashboard
        super().__init__(
            app,
            log_level=log_level("warning"),
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            ssl_certfile=options.certificate,
            ssl_keyfile=options.key,
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._dashboard.feed.close()
        await super().shutdown(sockets)


def make(hv: Context, options: Options) -> tuple[Dashboard, Guard]:
    """The application behind its guard."""
    refusals = Refusals()
    access = access_to(hv, read_only=options.read_only)
    dashboard = Dashboard(hv, access, refusals, options.folder)
    return dashboard, Guard(dashboard.app(), access, refusals, options.hosts)


def serve(hv: Context, options: Options, listening: socket.socket) -> None:
    dashboard, guard = make(hv, options)
    Served(dashboard, guard, options).run(sockets=[listening])
