"""Refuses stores of a newer version, also those upgraded while this process uses them.

A process looks at the version again in every transaction that writes. The migration of a newer
version waits for such transactions, and the ones after it see its version: no process changes a
store whose tables mean something it does not know. See docs/decisions/0167.
"""

from __future__ import annotations

from hypervisor.core.errors import StoreNewer
from hypervisor.store import schema


def refuse_newer(where: str, version: int) -> None:
    """When a store is opened."""
    if version > schema.VERSION:
        raise StoreNewer(
            f"{where} was written by a newer Hypervisor (schema {version}, this one "
            f"knows {schema.VERSION}). Nothing was changed; upgrade Hypervisor."
        )


def upgraded(where: str, version: int) -> StoreNewer:
    """While a store is in use."""
    return StoreNewer(
        f"{where} was upgraded by a newer Hypervisor while it was in use (schema {version}, this "
        f"process knows {schema.VERSION}). This change was not saved, and nothing more will "
        f"start; everything saved before is kept. Start this process again with the newer "
        f"Hypervisor."
    )
