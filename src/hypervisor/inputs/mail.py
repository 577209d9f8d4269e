"""Mails as items: from an mbox file or a Maildir folder, by their headers.

Only the five header fields that become columns are kept, and only the beginning of each. Bodies
are searched block by block for the next mail and never held, so memory does not grow with the
mailbox. Headers come from strangers: malformed ones are kept as they are, never an error.

The standard library decodes words and dates. Its `mailbox` is not used: it splits an mbox at every
line that begins with `From `, holds whole lines and the offsets of all mails, and opens every file
in a Maildir, even a pipe. Its header parser stops at the first line that is not a field.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import IO

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.charset import decoded
from hypervisor.inputs.item_names import printable_path
from hypervisor.inputs.items import MailItem, OnBadItem, checked, reporting
from hypervisor.inputs.sources import open_file

FIELDS = ("date", "from", "to", "subject", "message-id")
FIELD = re.compile(rb"(%s)[ \t]*:" % "|".join(FIELDS).encode(), re.IGNORECASE)
# A line that begins a mail names a sender and a time. Bodies have lines that begin with `From `,
# too, so a new mail needs an empty line before it, or a weekday in the line.
BEGIN = b"From "
BEGINS = re.compile(rb"From [^\n]{0,400}?[0-9]:[0-9][0-9]")
CLEARLY_BEGINS = re.compile(
    rb"From [^\n]{0,300}?\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b[^\n]{0,40}? [0-9]{1,2}:[0-9][0-9]"
)
QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)
MAX_BEGIN_LENGTH = 512  # this many bytes of a line show whether it begins a mail
MAX_PIECE_LENGTH = 1 << 16
MAX_FIELD_LENGTH = 1 << 15
MAX_VALUE_LENGTH = 2_000  # characters of a column
MAX_MESSAGE_LENGTH = 256 << 20
MIN_BLOCK, MAX_BLOCK_SIZE = 1 << 13, 1 << 20
ENCODED = r"=\?[^?\s]{1,80}\?[bBqQ]\?[^?]*\?="
ENCODED_WORDS = re.compile(rf"{ENCODED}(?:\s+{ENCODED})*")
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
FLAGS = ":2,"  # the rest of a Maildir file's name changes when the mail is read


Fields = dict[str, bytes]  # the raw values of FIELDS that a header has


class Header(NamedTuple):
    """The header of a mail in an mbox: where its `From ` line begins, that line, its fields."""

    offset: int
    envelope: bytes
    fields: Fields


def mbox_items(file: IO[bytes], name: str = "") -> Iterator[MailItem]:
    """The mails of an mbox file, which must be seekable; `name` is where to read it again."""
    for number, header in enumerate(_headers(file, name), 1):
        columns = _columns(header.fields)
        columns["date"] = columns["date"] or _iso_date(_sent(header.envelope))
        place = f"{printable_path(name) or 'standard input'}:{header.offset}"
        where = {"mailbox": name, "offset": header.offset} if name else {}
        yield MailItem(columns["message_id"] or place, number, {**columns, **where})


def mailbox_items(paths: Iterable[str], bad: OnBadItem) -> Iterator[MailItem]:
    """The mails of many mbox files."""
    number = 0
    for path in paths:
        with reporting(path, bad), open_file(path) as file:
            for item in mbox_items(file, path):
                number += 1
                yield item._replace(number=number)


def maildir_items(folder: str, bad: OnBadItem) -> Iterator[MailItem]:
    """The mails in `new` and `cur` of a Maildir, by file name, which means by age."""
    for item in checked(_maildir(folder, bad), bad):
        assert isinstance(item, MailItem)
        yield item


def is_maildir(folder: str) -> bool:
    return all(os.path.isdir(os.path.join(folder, part)) for part in ("cur", "new", "tmp"))


def read_message(mailbox: str, where: int | str, message_id: str = "") -> bytes:
    """One mail as it was sent: in an mbox by its offset, in a Maildir by its path.

    With its message id it is found even if the mailbox has changed since: earlier mails were
    deleted, or it was marked as read, which renames its file.
    """
    try:
        if isinstance(where, str):
            with open_file(_maildir_file(mailbox, where)) as file:
                return _read_limited(file)
        with open_file(mailbox) as file:
            return _message(file, _locate(file, where, message_id, mailbox))
    except OSError as error:
        raise InvalidInput(
            f"the mail in {printable_path(mailbox)} cannot be read: {error.strerror}."
        ) from None


def _headers(file: IO[bytes], name: str) -> Iterator[Header]:
    offset = _first_offset(file, name)
    while offset is not None:
        file.seek(offset)
        header = Header(offset, _line(file), _read_fields(file))
        # The empty line before the next mail may be the one that ended this header.
        offset = _next_offset(file, max(file.tell() - 3, offset + len(BEGIN)))
        yield header


def _first_offset(file: IO[bytes], name: str) -> int | None:
    """Where the first mail begins; None in an empty file."""
    while line := file.readline(MAX_PIECE_LENGTH):
        if line.strip(b"\r\n"):
            if line.startswith(BEGIN):
                return file.tell() - len(line)
            raise InvalidInput(
                f"{printable_path(name) or 'standard input'} is not an mbox: its first line "
                f"does not begin with `From `. Nothing was started; choose another --format."
            )
    return None


def _next_offset(file: IO[bytes], at: int) -> int | None:
    """Where the next mail begins, from `at` on."""
    file.seek(at)
    data, size = b"", MIN_BLOCK
    while True:
        block = file.read(size)
        data += block
        sure = len(data) - MAX_BEGIN_LENGTH if block else len(data)
        line_end = data.find(b"\n" + BEGIN)
        while 0 <= line_end < sure:
            if _begins(data, line_end + 1):
                return at + line_end + 1
            line_end = data.find(b"\n" + BEGIN, line_end + 1)
        if not block:
            return None
        searched = max(0, sure - 3)
        at, data = at + searched, data[searched:]
        size = min(2 * size, MAX_BLOCK_SIZE)


def _begins(data: bytes, at: int) -> bool:
    after_empty = data[max(0, at - 3) : at].endswith((b"\n\n", b"\n\r\n"))
    return bool((BEGINS if after_empty else CLEARLY_BEGINS).match(data, at))


def _line(file: IO[bytes]) -> bytes:
    """A line, or its beginning if it is very long."""
    line = piece = file.readline(MAX_PIECE_LENGTH)
    while piece and not piece.endswith(b"\n"):
        piece = file.readline(MAX_PIECE_LENGTH)
    return line


def _read_fields(file: IO[bytes]) -> Fields:
    """The first value of each of FIELDS; leaves the file positioned after the header.

    A header without end, or a very long line, is skipped piece by piece.
    """
    fields: dict[str, bytearray] = {}
    value = None  # of the field that a folded line belongs to
    while (line := _line(file)).strip(b"\r\n"):
        if line.startswith(BEGIN) and line.endswith(b"\n") and CLEARLY_BEGINS.match(line):
            file.seek(-len(line), os.SEEK_CUR)  # the next mail: this one has no body
            break
        if not line.startswith((b" ", b"\t")):
            field = FIELD.match(line)
            name = field[1].decode().lower() if field else ""
            value = fields.setdefault(name, bytearray()) if field and name not in fields else None
            line = line[field.end() :] if field else line
        if value is not None and len(value) < MAX_FIELD_LENGTH:
            value += line[:MAX_FIELD_LENGTH]
    return {name: bytes(value) for name, value in fields.items()}


def _columns(fields: Fields) -> dict[str, str]:
    columns = {name.replace("-", "_"): _plain(fields.get(name, b"")) for name in FIELDS}
    return {**columns, "date": _iso_date(columns["date"])}


def _plain(value: bytes) -> str:
    """A header's value as readable text on one line."""
    text = " ".join(decoded(value, "utf-8").split())  # unfolded
    text = ENCODED_WORDS.sub(lambda words: _decoded_words(words[0]), text)
    text = " ".join(UNPRINTABLE.sub(" ", text).split())
    return text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 1] + "…"


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


def _sent(envelope: bytes) -> str:
    """The time in a `From ` line."""
    return envelope[len(BEGIN) :].partition(b" ")[2].decode("ascii", "replace")


def _iso_date(text: str) -> str:
    """A mail's date as ISO text, "" if it is not a date."""
    from datetime import UTC
    from email.utils import parsedate_to_datetime

    try:
        date = parsedate_to_datetime(text.strip())
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).isoformat()
    except (ValueError, TypeError, OverflowError, IndexError):
        return ""


def _maildir(folder: str, bad: OnBadItem) -> Iterator[MailItem]:
    for path in _maildir_paths(folder):
        with reporting(path, bad):
            with open_file(path) as file:
                if not file.readline(MAX_PIECE_LENGTH).startswith(BEGIN):
                    file.seek(0)
                columns = _columns(_read_fields(file))
            where = {"mailbox": folder, "path": path}
            yield MailItem(columns["message_id"] or path, 1, {**columns, **where})


def _maildir_paths(folder: str) -> list[str]:
    files: list[tuple[str, str]] = []
    for part in ("new", "cur"):
        try:
            names = os.listdir(os.path.join(folder, part))
        except OSError as error:
            raise InvalidInput(
                f"{printable_path(os.path.join(folder, part))} cannot be read: {error.strerror}."
            ) from None
        files += ((name, part) for name in names if not name.startswith("."))
    return [os.path.join(folder, part, name) for name, part in sorted(files)]


def _maildir_file(mailbox: str, path: str) -> str:
    """Where the mail is now; always inside the mailbox, whatever the path says."""
    name = os.path.basename(path)
    part = os.path.basename(os.path.dirname(path))
    known = os.path.join(mailbox, part, name)
    if part in ("cur", "new") and os.path.isfile(known):
        return known
    unique = name.partition(FLAGS)[0]
    for renamed in _maildir_paths(mailbox):
        if os.path.basename(renamed).partition(FLAGS)[0] == unique:
            return renamed
    raise InvalidInput(f"the mail {name[:200]!r} is no longer in {printable_path(mailbox)}.")


def _locate(file: IO[bytes], offset: int, message_id: str, name: str) -> int:
    """The offset if the mail is still there; otherwise its new offset."""
    if offset >= 0:
        file.seek(offset)
        begins = _line(file).startswith(BEGIN)
        if begins and message_id in ("", _columns(_read_fields(file))["message_id"]):
            return offset
    if message_id:
        file.seek(0)
        for header in _headers(file, name):
            if _columns(header.fields)["message_id"] == message_id:
                return header.offset
    raise InvalidInput(
        f"{printable_path(name)} has changed: the mail at {offset} is no longer there."
    )


def _message(file: IO[bytes], offset: int) -> bytes:
    file.seek(offset)
    _line(file)
    start = file.tell()
    _read_fields(file)
    end = _next_offset(file, max(file.tell() - 3, start - 1))
    file.seek(start)
    raw = _read_limited(file) if end is None else _read_limited(file, end - start)
    if raw.endswith((b"\n\n", b"\n\r\n")):  # the empty line after a mail is not part of it
        raw = raw[:-1].removesuffix(b"\r")
    return QUOTED.sub(rb"\1", raw)


def _read_limited(file: IO[bytes], size: int = MAX_MESSAGE_LENGTH + 1) -> bytes:
    raw = file.read(min(size, MAX_MESSAGE_LENGTH + 1))
    if len(raw) > MAX_MESSAGE_LENGTH:
        raise InvalidInput(f"the mail is larger than {MAX_MESSAGE_LENGTH >> 20} MB.")
    return raw
