"""File names that are not UTF-8, which Linux allows.

In memory such a name is text with Python's surrogate escapes, as `os.listdir` returns it; commands
get the bytes. Databases and JSON accept valid text only: there the name is printable, with `\\xe9`
for a byte that cannot be decoded, and the bytes are stored with it in base64.
"""

from __future__ import annotations

import os
from typing import Any

TEXT, BYTES = "item", "item_bytes"  # in the data of a task


def is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_name(text: str) -> bool:
    """Whether it can be a file name; a lone surrogate that stands for no byte cannot."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def printable_path(path: str) -> str:
    """A path as text that can be shown and stored, whatever bytes are in it."""
    if is_utf8(path):
        return path
    if not is_name(path):
        return path.encode("utf-8", "backslashreplace").decode()
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def text_as_data(text: str) -> dict[str, str]:
    """The text of an item, for the data of its task."""
    if is_utf8(text):
        return {TEXT: text}
    from base64 import b64encode

    return {TEXT: printable_path(text), BYTES: b64encode(os.fsencode(text)).decode()}


def text_in_data(data: Any) -> str | None:
    """The text of the item in the data of a task, or None."""
    if not isinstance(data, dict):
        return None
    text, encoded = data.get(TEXT), data.get(BYTES)
    if isinstance(text, str) and isinstance(encoded, str):
        from base64 import b64decode

        try:
            return os.fsdecode(b64decode(encoded, validate=True))
        except ValueError:  # not from us
            return text
    return text if isinstance(text, str) else None
