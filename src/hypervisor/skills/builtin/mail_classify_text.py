"""Parsing a mail for mail-classify: its sender, headers, types of parts and words. Pure.

Mails come from strangers, some of them hostile. Everything here takes linear time, reads only the
beginning of a large mail, and tolerates broken ones.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from typing import Any

from hypervisor.core.records import NamedTuple
from hypervisor.inputs.charset import decoded, is_usable

MAX_SIZE = 256 << 10  # bytes of a mail that are read
MAX_HTML_SIZE = 200_000  # characters
MAX_HEADERS = 500
MAX_PARTS = 100
MAX_NESTED = 50
BODY = re.compile(rb"\r?\n\r?\n")
MAX_VALUE_LENGTH = 1_000
# The parser reads their parameters in quadratic time, so only the beginning is kept.
PARAMETERS = re.compile(
    rb"(?<![^\r\n])(content-(?:type|disposition):(?:[^\n]|\n[ \t]){0,1000})(?:[^\n]|\n[ \t])*",
    re.IGNORECASE,
)
ADDRESS = re.compile(r"[^\s<>\"',;:]+@[^\s<>\"',;:]+")
TAG = re.compile(r"<[^<>]*>")
HIDDEN = ("<style", "<script", "<title", "<!--")
ENDS = {"<!--": "-->"}


class Mail(NamedTuple):
    """A mail as the rules see it."""

    senders: tuple[str, ...] = ()  # addresses, in lower case
    subject: str = ""
    headers: dict[str, str] = {}  # noqa: RUF012 - by names in lower case; never changed
    parts: tuple[str, ...] = ()  # MIME types and names of attachments
    text: str = ""
    broken: str = ""  # what could not be read, and why


def read(raw: bytes, sender: str, subject: str, longest: int) -> Mail:
    """Parse a mail; its sender and subject have already been decoded."""
    known = Mail(addresses(sender), subject)
    raw = PARAMETERS.sub(rb"\1", raw[:MAX_SIZE])
    broken = ""
    if raw.lower().count(b"boundary") > MAX_NESTED:  # each level slows down all below it
        raw, broken = BODY.split(raw, 1)[0], "too many nested parts; only its header was read"
    try:
        message = message_from_bytes(raw)
        known = known._replace(headers=_headers(message), broken=broken)
        parts = list(_parts(message))
        text = _text_of(parts, longest)
        kinds = dict.fromkeys(name for part in parts for name in _names(part))
    except Exception as error:
        # The parser can raise anything on a malicious mail.
        return known._replace(broken=f"its MIME parts are broken ({type(error).__name__})")
    return known._replace(parts=tuple(kinds), text=text)


def addresses(sender: str) -> tuple[str, ...]:
    """All addresses in a From header; without any, its text."""
    return tuple(dict.fromkeys(ADDRESS.findall(sender.lower()) or [sender.strip().lower()]))


def _headers(message: Message[str, str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in message.raw_items():
        if len(headers) >= MAX_HEADERS:
            break
        text = " ".join(str(value)[:MAX_VALUE_LENGTH].lower().split())
        headers.setdefault(name.lower(), text)
    return headers


def _parts(message: Message[str, str]) -> Iterator[Message[str, str]]:
    for number, part in enumerate(message.walk()):
        if number >= MAX_PARTS:
            return
        yield part


def _names(part: Message[str, str]) -> Iterator[str]:
    yield part.get_content_type()
    name = part.get_filename()
    if name:
        yield str(name).lower()[:MAX_VALUE_LENGTH]


def _text_of(parts: list[Message[str, str]], longest: int) -> str:
    """The first part of plain text that is not empty, else the first of HTML."""
    for kind in ("text/plain", "text/html"):
        for part in parts:
            if part.get_content_type() != kind or part.get_content_disposition() == "attachment":
                continue
            text = _decoded(part)
            text = plain(text) if kind == "text/html" else text
            if text.strip():
                return text[:longest].encode("utf-8", "replace").decode()  # no half characters
    return ""


def _decoded(part: Message[str, str]) -> str:
    charset = part.get_content_charset("utf-8")
    if not is_usable(charset):
        part.del_param("charset")  # else the parser may try it
    raw: Any = part.get_payload(decode=True)
    return decoded(raw, charset) if isinstance(raw, bytes) else ""


def plain(text: str) -> str:
    """What a reader sees of HTML: without tags, styles, scripts and comments."""
    text = text[:MAX_HTML_SIZE]
    for begin in HIDDEN:
        text = _without(text, begin, ENDS.get(begin, f"</{begin[1:]}"))
    return html.unescape(TAG.sub(" ", text))


def _without(text: str, begin: str, end: str) -> str:
    folded = text.lower()
    if len(folded) != len(text):  # some letters are longer in lower case: offsets would differ
        folded = text
    kept, at = [], 0
    while (start := folded.find(begin, at)) >= 0:
        kept.append(text[at:start])
        close = folded.find(end, start)
        if close < 0:
            return " ".join(kept)
        at = close + (len(end) if end == ENDS["<!--"] else 0)
    return " ".join([*kept, text[at:]])
