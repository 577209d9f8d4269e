"""Random bits from the system's source, for ids and tokens."""

import os

from hypervisor.core.ids import CODE_BITS, code


def entropy() -> int:
    """Twenty random bits."""
    return int.from_bytes(os.urandom(3), "big") >> 4


def nonces(count: int) -> list[str]:
    """Codes for tokens that nobody can guess."""
    size = CODE_BITS // 8
    raw = os.urandom(size * count)
    return [code(int.from_bytes(raw[i : i + size], "big")) for i in range(0, len(raw), size)]
