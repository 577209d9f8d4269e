"""Decodes text from untrusted sources by its declared charset, in linear time. Pure."""

from __future__ import annotations

# For host names (in quadratic time) and source code, not for text.
REFUSED = frozenset(("punycode", "idna", "unicode-escape", "raw-unicode-escape", "undefined"))


def is_usable(charset: str) -> bool:
    """Whether it is a charset for text."""
    import codecs

    try:
        return codecs.lookup(charset).name.replace("_", "-") not in REFUSED
    except (LookupError, ValueError):
        return False


def decoded(raw: bytes, charset: str) -> str:
    """The text; if it is not in its charset, it is most likely UTF-8, else Latin-1."""
    for name in (charset, "utf-8") if is_usable(charset) else ("utf-8",):
        try:
            return raw.decode(name)
        except (LookupError, ValueError):  # not a charset for text, or not the right one
            continue
    return raw.decode("latin-1")
