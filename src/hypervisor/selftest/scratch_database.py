"""Empty databases on a user's PostgreSQL server, dropped at the end."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hypervisor.store.postgres_scratch import create_database, drop_database


@contextmanager
def scratch_databases(url: str) -> Iterator[Callable[[], str]]:
    """What makes an empty database beside that of the URL, which is not touched."""
    made: list[str] = []

    def new() -> str:
        name = f"hv_selftest_{secrets.token_hex(6)}"
        made.append(name)
        return create_database(url, name)

    try:
        yield new
    finally:
        for name in made:
            drop_database(url, name)
