"""Random bits from the system's source, for ids and tokens."""

import os

from hypervisor.domain.ids import short_hash


def entropy() -> int:
    """Twenty random bits."""
    return int.from_bytes(os.urandom(3), "big") >> 4


def nonces(count: int) -> list[str]:
    """Four random characters each, for tokens."""
    raw = os.urandom(3 * count)
    return [short_hash(raw[i] << 16 | raw[i + 1] << 8 | raw[i + 2]) for i in range(0, 3 * count, 3)]
