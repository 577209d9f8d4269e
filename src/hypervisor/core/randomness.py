"""Random bits from the system's source, for ids and tokens."""

import os

from hypervisor.core.ids import ALPHABET, CODE_LENGTH

_LETTERS = (ALPHABET * (256 // len(ALPHABET))).encode()  # a letter for each byte, all as likely


def entropy() -> int:
    """Twenty random bits."""
    return int.from_bytes(os.urandom(3), "big") >> 4


def nonces(count: int) -> list[str]:
    """Codes for tokens that cannot be guessed."""
    text = os.urandom(CODE_LENGTH * count).translate(_LETTERS).decode()
    return [text[i : i + CODE_LENGTH] for i in range(0, len(text), CODE_LENGTH)]
