"""The words by which findings are indexed: plain words, and marks that no text can contain."""

from __future__ import annotations

from hashlib import blake2b


def indexed(word: str) -> str:
    """A word in a form that both indexes accept."""
    return word if word.isascii() else f"u:{_digest(word)}"


def branch_mark(name: str) -> str:
    return f"b:{_digest(name)}"


TRUSTED = "r:"  # a finding that says this was reviewed, or is a person's


def kind_mark(kind: str) -> str:
    return f"k:{_digest(kind)}"


def topic_mark(topic: str) -> str:
    return f"t:{_digest(topic.casefold())}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()
