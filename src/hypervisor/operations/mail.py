"""Mails as items: of an mbox file or a Maildir folder, by their headers.

Of a mail only the five header fields that become columns are kept, and of those the beginning.
Bodies are searched block by block for the next mail and never held, so a mailbox of any size
takes the same memory. Headers are written by strangers: what is broken in them is left as it
stands, never an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

from hypervisor.domain.charset import decoded
from hypervisor.domain.errors import InvalidInput
from hypervisor.operations.items import Bad, MailItem, checked, place_of
from hypervisor.operations.sources import open_file

FIELDS = ("date", "from", "to", "subject", "message-id")
WANTED = re.compile(rb"(%s)[ \t]*:" % "|".join(FIELDS).encode(), re.IGNORECASE)
# A line that begins a mail names a sender and a time. Bodies have such lines, too: where they
# were not quoted (`>From`) an empty line before them is what tells; without it, a weekday.
BEGIN = b"From "
BEGINS = re.compile(rb"From [^\n]{0,400}?[0-9]:[0-9][0-9]")
SURELY_BEGINS = re.compile(
    rb"From [^\n]{0,300}?\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b[^\n]{0,40}? [0-9]{1,2}:[0-9][0-9]"
)
QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)
ENOUGH = 512  # bytes of a line in which to find that it begins a mail
LONGEST_PIECE = 1 << 16
LONGEST_FIELD = 1 << 15
LONGEST_VALUE = 2_000  # characters of a column
LONGEST_MESSAGE = 256 << 20
SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 13, 1 << 20
ENCODED = r"=\?[^?\s]{1,80}\?[bBqQ]\?[^?]*\?="
ENCODED_WORDS = re.compile(rf"{ENCODED}(?:\s+{ENCODED})*")
UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
FLAGS = ":2,"  # what follows in the name of a Maildir's file changes when the mail is read


class Head(NamedTuple):
    """A mail in an mbox: where its `From ` line begins, that line, and the fields we want."""

    offset: int
    envelope: bytes
    fields: bytes


def mbox_items(file: IO[bytes], name: str = "") -> Iterator[MailItem]:
    """The mails of an mbox file, which must be seekable; `name` is where to read it again."""
    for number, head in enumerate(_heads(file, name), 1):
        columns = _columns(head.fields)
        columns["date"] = columns["date"] or _iso(head.envelope[len(BEGIN) :].partition(b" ")[2])
        place = f"{place_of(name) or 'standard input'}:{head.offset}"
        found: dict[str, str | int] = {**columns}
        if name:
            found |= {"mailbox": name, "offset": head.offset}
        yield MailItem(columns["message_id"] or place, number, found)


def mailbox_items(paths: Iterable[str], bad: Bad) -> Iterator[MailItem]:
    """The mails of many mbox files."""
    number = 0
    for path in paths:
        try:
            with open_file(path) as file:
                for item in mbox_items(file, path):
                    number += 1
                    yield item._replace(number=number)
        except OSError as error:
            bad(place_of(path), f"it cannot be read: {error.strerror}.")
        except InvalidInput as error:
            bad(place_of(path), str(error))


def maildir_items(folder: str, bad: Bad) -> Iterator[MailItem]:
    """The mails in the `new` and `cur` of a Maildir, by the names of their files: by age."""
    for item in checked(_maildir(folder, bad), bad):
        assert isinstance(item, MailItem)
        yield item


def is_maildir(folder: str) -> bool:
    return all(os.path.isdir(os.path.join(folder, each)) for each in ("cur", "new", "tmp"))


def read_message(mailbox: str, where: int | str, message_id: str = "") -> bytes:
    """One mail as it was sent: of an mbox by its offset, of a Maildir by its path.

    Given its message id it is found also when the mailbox has changed since: mails before it
    were deleted, or it was marked as read and its file has another name now.
    """
    try:
        if isinstance(where, str):
            with open_file(_maildir_file(mailbox, where)) as file:
                return _limited(file)
        with open_file(mailbox) as file:
            return _message(file, _found(file, where, message_id, mailbox))
    except OSError as error:
        raise InvalidInput(
            f"the mail in {place_of(mailbox)} cannot be read: {error.strerror}."
        ) from None


def _heads(file: IO[bytes], name: str) -> Iterator[Head]:
    offset = _first(file, name)
    while offset is not None:
        file.seek(offset)
        envelope = _line(file)
        fields = _wanted(file)
        # An empty line before the next mail may be the one that ended our header.
        after = _next(file, max(file.tell() - 3, offset + len(BEGIN)))
        yield Head(offset, envelope, fields)
        offset = after


def _first(file: IO[bytes], name: str) -> int | None:
    """Where the first mail begins; None in an empty file."""
    while line := file.readline(LONGEST_PIECE):
        if line.strip(b"\r\n"):
            if line.startswith(BEGIN):
                return file.tell() - len(line)
            raise InvalidInput(
                f"{place_of(name) or 'standard input'} is no mbox: its first line does not begin "
                "with `From `. Nothing was started; name the right --format."
            )
    return None


def _next(file: IO[bytes], at: int) -> int | None:
    """Where the next mail begins, from `at` on."""
    file.seek(at)
    data, size = b"", SMALLEST_BLOCK
    while True:
        block = file.read(size)
        data += block
        sure = len(data) - ENOUGH if block else len(data)
        found = data.find(b"\n" + BEGIN)
        while 0 <= found < sure:
            if _begins(data, found + 1):
                return at + found + 1
            found = data.find(b"\n" + BEGIN, found + 1)
        if not block:
            return None
        gone = max(0, sure - 3)
        at, data = at + gone, data[gone:]
        size = min(2 * size, LARGEST_BLOCK)


def _begins(data: bytes, at: int) -> bool:
    after_empty = data[max(0, at - 3) : at].endswith((b"\n\n", b"\n\r\n"))
    return bool((BEGINS if after_empty else SURELY_BEGINS).match(data, at))


def _line(file: IO[bytes]) -> bytes:
    """A line, or its beginning if it is very long."""
    line = piece = file.readline(LONGEST_PIECE)
    while piece and not piece.endswith(b"\n"):
        piece = file.readline(LONGEST_PIECE)
    return line


def _wanted(file: IO[bytes]) -> bytes:
    """The header fields that become columns, each the first of its name; ends behind the header.

    A header without end, or one very long line, is passed over piece by piece.
    """
    kept: dict[bytes, bytearray] = {}
    current: bytearray | None = None
    while (line := _line(file)).strip(b"\r\n"):
        if line.startswith(BEGIN) and line.endswith(b"\n") and SURELY_BEGINS.match(line):
            file.seek(-len(line), os.SEEK_CUR)  # the next mail: this one has no body
            break
        if not line.startswith((b" ", b"\t")):
            field = WANTED.match(line)
            name = field[1].lower() if field else b""
            current = kept.setdefault(name, bytearray()) if field and name not in kept else None
            line = name + b":" + line[field.end() :] if field else line
        if current is not None and len(current) < LONGEST_FIELD:
            current += line.rstrip(b"\r\n").replace(b"\r", b" ")[:LONGEST_FIELD] + b"\n"
    return b"".join(kept.values())


def _columns(fields: bytes) -> dict[str, str]:
    from email.parser import BytesHeaderParser
    from email.policy import compat32

    found = dict.fromkeys(FIELDS, "")
    for name, value in BytesHeaderParser(policy=compat32).parsebytes(fields).raw_items():
        found[name.lower()] = str(value)
    texts = {name: _plain(value) for name, value in found.items()}
    return {
        "date": _iso(texts["date"].encode()),
        "from": texts["from"],
        "to": texts["to"],
        "subject": texts["subject"],
        "message_id": texts["message-id"],
    }


def _plain(value: str) -> str:
    """A header's value as readable text on one line."""
    raw = value.encode("utf-8", "surrogateescape")
    text = " ".join(decoded(raw, "utf-8").split())  # unfolded
    text = ENCODED_WORDS.sub(lambda found: _decoded_words(found[0]), text)
    text = " ".join(UNFIT.sub(" ", text).split())
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _decoded_words(words: str) -> str:
    from email.errors import HeaderParseError
    from email.header import decode_header

    try:
        parts = decode_header(words)
    except (HeaderParseError, ValueError):
        return words
    return "".join(
        part if isinstance(part, str) else decoded(part, charset or "utf-8")
        for part, charset in parts
    )


def _iso(date: bytes) -> str:
    """A mail's date as ISO text, "" if it makes no sense."""
    from datetime import UTC
    from email.utils import parsedate_to_datetime

    try:
        found = parsedate_to_datetime(date.decode("ascii", "replace").strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).isoformat()
    except (ValueError, TypeError, OverflowError, IndexError):
        return ""


def _maildir(folder: str, bad: Bad) -> Iterator[MailItem]:
    for path in _maildir_paths(folder):
        try:
            with open_file(path) as file:
                if not file.readline(LONGEST_PIECE).startswith(BEGIN):
                    file.seek(0)
                columns = _columns(_wanted(file))
        except OSError as error:
            bad(place_of(path), f"it cannot be read: {error.strerror}.")
        except InvalidInput as error:
            bad(place_of(path), str(error))
        else:
            found = {**columns, "mailbox": folder, "path": path}
            yield MailItem(columns["message_id"] or path, 1, found)


def _maildir_paths(folder: str) -> list[str]:
    found: list[tuple[str, str]] = []
    for part in ("new", "cur"):
        try:
            names = os.listdir(os.path.join(folder, part))
        except OSError as error:
            raise InvalidInput(
                f"{place_of(os.path.join(folder, part))} cannot be read: {error.strerror}."
            ) from None
        found += ((name, part) for name in names if not name.startswith("."))
    return [os.path.join(folder, part, name) for name, part in sorted(found)]


def _maildir_file(mailbox: str, path: str) -> str:
    """Where the mail is now. Only what lies in the mailbox counts, whatever the path says."""
    name = os.path.basename(path)
    part = os.path.basename(os.path.dirname(path))
    there = os.path.join(mailbox, part, name)
    if part in ("cur", "new") and os.path.isfile(there):
        return there
    same = name.partition(FLAGS)[0]
    for found in _maildir_paths(mailbox):
        if os.path.basename(found).partition(FLAGS)[0] == same:
            return found
    raise InvalidInput(f"the mail {name[:200]!r} is no longer in {place_of(mailbox)}.")


def _found(file: IO[bytes], offset: int, message_id: str, name: str) -> int:
    """The offset, if the mail is there; else where it has moved to."""
    if offset >= 0:
        file.seek(offset)
        begins = _line(file).startswith(BEGIN)
        if begins and message_id in ("", _columns(_wanted(file))["message_id"]):
            return offset
    if message_id:
        file.seek(0)
        for head in _heads(file, name):
            if _columns(head.fields)["message_id"] == message_id:
                return head.offset
    raise InvalidInput(f"{place_of(name)} has changed: the mail at {offset} is no longer there.")


def _message(file: IO[bytes], offset: int) -> bytes:
    file.seek(offset)
    _line(file)
    start = file.tell()
    _wanted(file)
    end = _next(file, max(file.tell() - 3, start - 1))
    file.seek(start)
    raw = _limited(file) if end is None else _limited(file, end - start)
    if raw.endswith((b"\n\n", b"\n\r\n")):  # the empty line behind every mail is not its own
        raw = raw[:-1].removesuffix(b"\r")
    return QUOTED.sub(rb"\1", raw)


def _limited(file: IO[bytes], size: int = LONGEST_MESSAGE + 1) -> bytes:
    raw = file.read(min(size, LONGEST_MESSAGE + 1))
    if len(raw) > LONGEST_MESSAGE:
        raise InvalidInput(f"the mail is larger than {LONGEST_MESSAGE >> 20} MB.")
    return raw
