"""Ids that sort by time and can be typed: twelve base-32 characters.

The first eight are milliseconds since 2025, the last four start at random and
count up within one call, so that tasks added together keep their order. Any
unique part stands for the whole id. Letters that look like digits (i, l, o)
are read as those digits; upper case is read as lower case.
"""

from __future__ import annotations

from hypervisor.core.errors import InvalidInput

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
EPOCH = 1_735_689_600_000  # 2025-01-01T00:00:00Z in milliseconds
ENTROPY_BITS = 20
LENGTH = 12
EXAMPLE = "1q13f94q6bkk"
MIN_PREFIX_LENGTH = 4
MIN_PART_LENGTH = 5  # not at the beginning: a short word must not match a task by accident
CODE_LENGTH = 16  # of the secret part of a token: 80 bits
OLD_CODE_LENGTH = 4  # of tokens that earlier versions have handed out

_PAIRS = [a + b for a in ALPHABET for b in ALPHABET]
_READ_AS = str.maketrans("ilo", "110", "-")
_VALID = frozenset(ALPHABET)


def new_numbers(count: int, now: int, entropy: int) -> range:
    """The numbers behind `count` fresh ids; `entropy` is any integer of 20 random bits."""
    first = (max(now - EPOCH, 0) << ENTROPY_BITS) + entropy % (1 << ENTROPY_BITS)
    return range(first, first + count)


def encode(number: int) -> str:
    """The id for a number below 2**60."""
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in (50, 40, 30, 20, 10, 0)])


def decode(text: str) -> int:
    """The number behind a whole id."""
    number = 0
    for letter in text:
        number = number << 5 | ALPHABET.index(letter)
    return number


def clean(text: str, max_length: int = LENGTH) -> str:
    """The id or prefix in its usual spelling, or InvalidInput."""
    if _VALID.issuperset(text) and 0 < len(text) <= max_length:
        return text
    plain = text.strip().lower().translate(_READ_AS)
    if not plain or len(plain) > max_length or not _VALID.issuperset(plain):
        raise InvalidInput(f"invalid id {text[:60]!r} (ids look like {EXAMPLE}).")
    return plain


def key_digest(key: str) -> bytes:
    """A short digest of a task's key, which may be a long path."""
    from hashlib import blake2b

    return blake2b(key.encode(), digest_size=16).digest()
