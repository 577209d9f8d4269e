"""Spending tokens: `hvg-SESSION-CODE`. The store knows a digest of the code only."""

from __future__ import annotations

import os
import re
from _operator import _compare_digest  # hmac would load OpenSSL
from hashlib import blake2b

from hypervisor.core.records import NamedTuple

PREFIX = "hvg"
CODE_BYTES = 20
FORM = re.compile(rf"{PREFIX}-([0-9a-z]{{12}})-([0-9a-f]{{{2 * CODE_BYTES}}})")


class SpendToken(NamedTuple):
    session: str
    code: str

    def __str__(self) -> str:
        return f"{PREFIX}-{self.session}-{self.code}"

    def matches(self, digest: str) -> bool:
        """Whether the store has this digest for the session, in constant time."""
        return bool(digest) and _compare_digest(digest_of(self.code), digest)


def new_code() -> str:
    return os.urandom(CODE_BYTES).hex()


def digest_of(code: str) -> str:
    return blake2b(code.encode(), digest_size=16).hexdigest()


def parse(text: str) -> SpendToken | None:
    match = FORM.fullmatch(text.strip())
    return SpendToken(match[1], match[2]) if match else None
