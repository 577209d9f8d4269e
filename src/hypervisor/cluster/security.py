"""What makes a cluster safe: verified connections to the store, and a Ray that asks for a token.

Anyone who can talk to a Ray cluster without token authentication can run commands on every node.
"""

from __future__ import annotations

import ipaddress

from hypervisor.core.errors import ClusterError, InvalidInput

NEEDS_POSTGRES = (
    "a cluster needs a PostgreSQL store, as SQLite is for one host; set HYPERVISOR_STORE to its URL"
)
NO_TOKEN = (
    "the Ray cluster at {address} does not ask for a token: anyone who can reach it can run "
    "commands on its nodes. Nothing was started. Start it again with RAY_AUTH_MODE=token "
    "(ray get-auth-token --generate makes a token; every node needs the same one)"
)
HAS_PASSWORD = (
    "the store's URL contains a password, which Ray would keep and show. Put it into ~/.pgpass "
    "(mode 0600) on each host and leave it out of the URL"
)
NOT_VERIFIED = (
    "the connection to PostgreSQL at {host} is not verified. Add sslmode=verify-full to the URL "
    "(and sslrootcert=FILE or sslrootcert=system). On a network that you trust, say so with "
    "sslmode=disable or another sslmode"
)


def check_store(url: str, is_kept_by_ray: bool = True) -> str:
    """The store's URL, if other hosts may use it."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise InvalidInput(NEEDS_POSTGRES)
    from hypervisor.store.postgres_url import transport

    way = transport(url)
    if way.has_password and is_kept_by_ray:
        raise InvalidInput(HAS_PASSWORD)
    if not way.is_local and not way.sslmode:
        raise InvalidInput(NOT_VERIFIED.format(host=way.host))
    return url


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT can only be reached from this host."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_open_cluster(address: str, asks_for_token: bool) -> None:
    if not asks_for_token and not is_loopback(address):
        raise ClusterError(NO_TOKEN.format(address=address))
