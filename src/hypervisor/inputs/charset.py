"""Text out of bytes that strangers sent, in the charset that they claim. Pure.

It takes time in proportion to the bytes, whatever they claim.
"""

from __future__ import annotations

# They are no charsets of texts: for names of hosts, in quadratic time, and for source code.
REFUSED = frozenset(("punycode", "idna", "unicode-escape", "raw-unicode-escape", "undefined"))


def is_usable(charset: str) -> bool:
    """Whether it is a charset that texts are written in."""
    import codecs

    try:
        return codecs.lookup(charset).name.replace("_", "-") not in REFUSED
    except (LookupError, ValueError):
        return False


def decoded(raw: bytes, charset: str) -> str:
    """What is not in the charset it claims is most likely UTF-8, and else Latin."""
    for each in (charset, "utf-8") if is_usable(charset) else ("utf-8",):
        try:
            return raw.decode(each)
        except (LookupError, ValueError):  # no text at all, or not what is in it
            continue
    return raw.decode("latin-1")
