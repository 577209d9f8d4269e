"""Hides secrets in text, in a process that must not know them: it gets marks instead.

A mark is the length of a secret and a salted digest of it. Text that an agent writes over MCP is
cleaned with them before it is stored, so a key that it repeats in a receipt does not stay there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b

from hypervisor.queue.hide_tokens import hide_tokens
from hypervisor.queue.task import Json

HIDDEN = "[hidden]"
MIN_LENGTH = 6  # shorter ones would match ordinary words
WORD = re.compile(r"(?<![0-9A-Za-z])[^\s]")  # where a secret may begin


def cleaned(value: Json, clean: Callable[[str], str]) -> Json:
    """JSON with every string cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(name)): cleaned(member, clean) for name, member in value.items()}
    return [cleaned(member, clean) for member in value] if isinstance(value, list) else value


def marks_of(secrets: Collection[str], salt: bytes) -> str:
    """Marks that recognize these secrets without revealing them."""
    worth = sorted({secret for secret in secrets if len(secret) >= MIN_LENGTH})
    return " ".join([salt.hex(), *(f"{len(secret)}:{_digest(secret, salt)}" for secret in worth)])


class TokenHider:
    """`marks` are from `marks_of`; "" hides nothing. With marks, claim tokens are hidden, too."""

    def __init__(self, marks: str = "") -> None:
        salt, *digests = marks.split() or [""]
        self._salt = bytes.fromhex(salt)
        self._known: Mapping[int, set[str]] = {}
        for mark in digests:
            length, _, digest = mark.partition(":")
            self._known = {**self._known, int(length): {*self._known.get(int(length), ()), digest}}

    def clean(self, text: str) -> str:
        if not self._known:
            return text
        text = hide_tokens(text)
        parts, done = [], 0
        for start in [match.start() for match in WORD.finditer(text)]:
            end = self._end_of_secret(text, start) if start >= done else 0
            if end:
                parts += [text[done:start], HIDDEN]
                done = end
        return "".join([*parts, text[done:]])

    def clean_value(self, value: Json) -> Json:
        """JSON without secrets in any of its strings."""
        return cleaned(value, self.clean) if self._known else value

    def _end_of_secret(self, text: str, start: int) -> int:
        """The end of the secret that begins at an offset; 0 if there is none."""
        for length, digests in self._known.items():
            word = text[start : start + length]
            if len(word) == length and _digest(word, self._salt) in digests:
                return start + length
        return 0


def _digest(text: str, salt: bytes) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=16, key=salt).hexdigest()
