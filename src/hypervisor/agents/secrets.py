"""Hiding secrets from a process that must not know them: it is told marks, not the secrets.

A mark is the length of a secret and a salted digest of it. What an agent writes over MCP is
cleaned by them before it is kept: a key that it repeats in a receipt does not stay there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b

from hypervisor.queue.hide_tokens import hide_tokens
from hypervisor.queue.task import Json

HIDDEN = "[hidden]"
SHORTEST = 6  # a shorter one is in every second word
WORD = re.compile(r"(?<![0-9A-Za-z])[^\s]")  # where a secret may begin


def cleaned(value: Json, clean: Callable[[str], str]) -> Json:
    """JSON of which every text has been cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(name)): cleaned(each, clean) for name, each in value.items()}
    return [cleaned(each, clean) for each in value] if isinstance(value, list) else value


def marks_of(secrets: Collection[str], salt: bytes) -> str:
    """What tells these secrets when they are seen, and nothing else."""
    worth = sorted({each for each in secrets if len(each) >= SHORTEST})
    return " ".join([salt.hex(), *(f"{len(each)}:{_digest(each, salt)}" for each in worth)])


class Hider:
    """`marks` as `marks_of` made them; "" hides nothing. Claims' tokens are hidden with them."""

    def __init__(self, marks: str = "") -> None:
        salt, *found = marks.split() or [""]
        self._salt = bytes.fromhex(salt)
        self._known: Mapping[int, set[str]] = {}
        for each in found:
            length, _, digest = each.partition(":")
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
        """JSON without secrets in any of its texts."""
        return cleaned(value, self.clean) if self._known else value

    def _end_of_secret(self, text: str, start: int) -> int:
        """0 if none begins there."""
        for length, digests in self._known.items():
            word = text[start : start + length]
            if len(word) == length and _digest(word, self._salt) in digests:
                return start + length
        return 0


def _digest(text: str, salt: bytes) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=16, key=salt).hexdigest()
