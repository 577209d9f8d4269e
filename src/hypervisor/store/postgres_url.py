"""What a PostgreSQL URL says about passwords and encryption, with libpq's own defaults."""

from __future__ import annotations

import ipaddress
import os

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple


class Transport(NamedTuple):
    """How a connection travels. `sslmode` is "" if nothing names one."""

    host: str
    is_local: bool  # a socket, or the loopback interface: it does not leave the host
    sslmode: str
    has_password: bool  # in the URL itself


def transport(url: str) -> Transport:
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        raise InvalidInput("the store's URL is not a valid PostgreSQL URL") from None
    service = bool(given.get("service") or os.environ.get("PGSERVICE"))
    parts = {**_defaults(), **{key: str(value) for key, value in given.items()}}
    hosts = (parts.get("hostaddr") or parts.get("host") or "").split(",")
    is_local = not service and all(_is_local(host) for host in hosts)
    named = "sslmode" in given or "PGSSLMODE" in os.environ or service
    sslmode = parts.get("sslmode", "") if named else ""
    return Transport(hosts[0], is_local, sslmode, bool(given.get("password")))


def _defaults() -> dict[str, str]:
    """Those of the environment and of libpq."""
    options = pq.Conninfo.get_defaults()
    return {o.keyword.decode(): o.val.decode() for o in options if o.val is not None}


def _is_local(host: str) -> bool:
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
