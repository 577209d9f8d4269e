"""Creating and dropping databases on a PostgreSQL server, for the self-test."""

from __future__ import annotations

from urllib.parse import urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from hypervisor.core.errors import StoreUnavailable

END_CONNECTIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def create_database(url: str, name: str) -> str:
    """Returns the URL of the new, empty database."""
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    except psycopg.Error as error:
        raise StoreUnavailable(
            f"cannot create a scratch database: {str(error).strip()}. Nothing was changed; use a "
            "role that may create databases (ALTER ROLE … CREATEDB)."
        ) from error
    return _url_of(url, name)


def drop_database(url: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        connection.execute(drop.format(sql.Identifier(name)))


def end_connections(url: str) -> None:
    """End all other connections to this database, as a restart of the server does."""
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        connection.execute(END_CONNECTIONS)


def address_of(url: str) -> str | tuple[str, int]:
    """Where the server listens: the path of a socket, or host and port."""
    given = conninfo_to_dict(url)
    host = str(given.get("host") or "/var/run/postgresql").partition(",")[0]
    port = int(str(given.get("port") or 5432).partition(",")[0])
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)


def through(url: str, port: int) -> str:
    """The same database through a proxy on loopback."""
    given = {key: str(value) for key, value in conninfo_to_dict(url).items() if value is not None}
    given.pop("hostaddr", None)
    given |= {"host": "127.0.0.1", "port": str(port), "sslmode": "disable"}
    return f"postgresql:///?{urlencode(given)}"


def _url_of(url: str, name: str) -> str:
    """The same server and options with another database, as a URL."""
    given = {key: str(value) for key, value in conninfo_to_dict(url).items() if value is not None}
    given["dbname"] = name
    return f"postgresql:///?{urlencode(given)}"
