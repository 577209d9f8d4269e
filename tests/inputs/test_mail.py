"""Mails as items: each is found once, whatever it contains, with little memory."""

import io
import mailbox
import os
import subprocess
import sys
from email.message import EmailMessage

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.items import day_of, occurrences, read_items, task_for
from hypervisor.inputs.mail import (
    MAX_BEGIN_LENGTH,
    is_maildir,
    mailbox_items,
    maildir_items,
    mbox_items,
    read_message,
)
from hypervisor.queue.add import check_task
from hypervisor.queue.task import NewTask

FROM = b"From ann@example.org Mon Jan  5 10:00:00 2026\n"
HEADER = b"""Date: Tue, 06 Jan 2026 23:30:00 -0800
From: Ann <ann@example.org>
To: bob@example.org
Subject: Hello
Message-ID: <1@example.org>
"""


def mails(data, name="in.mbox"):
    return list(mbox_items(io.BytesIO(data), name))


def columns_of(item):
    return item.columns


@pytest.mark.parametrize(
    ("sender", "subject", "title"),
    [
        (b"Ann <ann@example.org>", b"Hello", "Hello (Ann)"),
        (b"ann@example.org", b"=?utf-8?q?Caf=C3=A9?=", "Café (ann@example.org)"),
        (b"Ann <ann@example.org>", b"", "no subject (Ann)"),
        (b"", b"", "<1@x>"),
    ],
)
def test_the_title_is_the_subject_and_the_sender(sender, subject, title):
    header = b"From: %s\nSubject: %s\nMessage-ID: <1@x>\n\nbody\n" % (sender, subject)
    assert task_for(mails(FROM + header)[0], NewTask("")).title == title


def never(place, why):
    raise AssertionError(f"{place}: {why}")


def test_a_mail_has_its_columns():
    (item,) = mails(FROM + HEADER + b"\nbody\n")
    assert item.text == "<1@example.org>" and item.number == 1
    assert item.columns == {
        "date": "2026-01-06T23:30:00-08:00",
        "from": "Ann <ann@example.org>",
        "to": "bob@example.org",
        "subject": "Hello",
        "message_id": "<1@example.org>",
        "mailbox": "in.mbox",
        "offset": 0,
    }
    assert day_of(item) == "2026-01-06"
    (piped,) = mails(FROM + HEADER, "")
    assert "mailbox" not in piped.columns and "offset" not in piped.columns


def test_the_format_is_one_of_those_of_items():
    (item,) = read_items(io.BytesIO(FROM + HEADER), "mbox", name="x")
    assert columns_of(item)["mailbox"] == "x"
    with pytest.raises(InvalidInput, match="end with NUL are not mbox"):
        read_items(io.BytesIO(), "mbox", null=True)


@pytest.mark.parametrize("data", [b"", b"\n", b"\r\n\n"])
def test_an_empty_mailbox(data):
    assert mails(data) == []


@pytest.mark.parametrize("data", [HEADER, b"\nTo: x\n", b"\0", b">From x\n", b"from x\n"])
def test_what_is_not_a_mailbox(data):
    with pytest.raises(InvalidInput, match=r"in.mbox is not an mbox.*Nothing was started"):
        mails(data)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_where_mails_begin(end):
    data = end.join(
        [
            b"",
            FROM.strip(),
            b"Subject: a",
            b"",
            b"From here on",
            b">From ann Mon Jan  5 10:00:00 2026",
            b"x",
            b"From the text at 10:00",
            b"",
            b"From now until then",
            b"",
            FROM.strip(),
            b"Subject: b",
            b"",
            b"",  # no body
            b"From x@y 10:00",
            b"Subject: c",
            FROM.strip(),
            b"Subject: d",
            b"",
            b"no empty line",
            FROM.strip(),
            b"",
            FROM.strip(),
        ]
    )
    found = mails(data)
    assert [item.columns["subject"] for item in found] == ["a", "b", "c", "d", "", ""]
    for item in found:
        assert data[item.columns["offset"] :].startswith(b"From ")
    assert found[-1].text == f"in.mbox:{found[-1].columns['offset']}"


@pytest.mark.parametrize(
    "raw, text",
    [
        (b"=?utf-8?q?Gr=C3=BC=C3=9Fe?= an =?iso-8859-1?Q?J=FCrgen?=", "Grüße an Jürgen"),
        (b"=?utf-8?b?R3LDvA==?=\n =?utf-8?b?w59l?=", "Grüße"),
        (b"=?utf-8?b?4oI=?= =?utf-8?b?rA==?=", "€"),  # one character in two words
        (b"Gr\xc3\xbc\xc3\x9fe", "Grüße"),
        (b"Gr\xfc\xdfe", "Grüße"),
        (b"Gr\xc3\xbc =?utf-8?q?=C3=9F?=", "Grü ß"),
        (b"=?utf-8?b?R3LDvA=?= =?utf-8?b?R?=", "=?utf-8?b?R3LDvA=?= =?utf-8?b?R?="),
        (b"=?utf-8?b?R3LDvA=?=", "Grü"),
        (b"=?no-such?q?a=C3=BC?=", "aü"),
        (b"=?zlib?q?a?= =?rot13?q?b?= =?undefined?q?c?=", "abc"),
        (b"=?utf-8?q?a=00b=0Ac?=", "a b c"),
        (b"=?utf-7?q?a+2AA-b?=", "a b"),  # half a character
        (b"a\0b\x1b[31m\x7f", "a b [31m"),
        (b"folded\n\tover\r\n   lines", "folded over lines"),
        (b"a\rX-Other: b", "a X-Other: b"),
        (b"=?utf-8?q?a b?=", "a b"),
        (b"x" * 9_000, "x" * 1_999 + "…"),
        (b"", ""),
    ],
)
def test_headers_as_people_read_them(raw, text):
    (item,) = mails(FROM + b"X: y\nSubject:" + raw + b"\nMessage-Id : <m>\n\n")
    assert item.columns["subject"] == text
    assert item.text == "<m>"


@pytest.mark.parametrize(
    "date, iso",
    [
        (b"Mon, 5 Jan 2026 10:00:00 +0100 (CET)", "2026-01-05T10:00:00+01:00"),
        (b"5 Jan 26 10:00 GMT", "2026-01-05T10:00:00+00:00"),
        (b"Mon, 5 Jan 2026 10:00:00 -0000", "2026-01-05T10:00:00+00:00"),
        (b"yesterday", "2026-01-05T10:00:00+00:00"),  # as the From line says
        (b"Mon, 99 Jan 2026 10:00:00 +0000", "2026-01-05T10:00:00+00:00"),
        (b"Mon, 5 Jan 2026 10:00:00 +999999", "2026-01-05T10:00:00+00:00"),
        (b"\xff\xfe", "2026-01-05T10:00:00+00:00"),
    ],
)
def test_dates(date, iso):
    (item,) = mails(FROM + b"Date: " + date + b"\n\n")
    assert item.columns["date"] == iso


def test_the_first_of_repeated_headers_counts_and_those_of_the_body_do_not():
    data = FROM + b"no header\nSUBJECT: a\nSubject: b\n c\nSubjects: x\n: y\n\nTo: body\n"
    (item,) = mails(data)
    assert (item.columns["subject"], item.columns["to"]) == ("a", "")


@pytest.mark.parametrize(
    "junk",
    [
        b"X: " + b"x" * 10_000_000 + b"\n",
        b"X: y\n" + b" z\n" * 1_000_000,
        b"To: " + b"a, " * 3_000_000,
        b"\0" * 10_000_000 + b"\n",
    ],
)
def test_a_header_of_megabytes(junk):
    found = mails(FROM + junk + b"\n" + HEADER + b"\nbody\n\n" + FROM + HEADER)
    # Very long parts are skipped, up to the next field or the next mail.
    end = [item for item in found if item.columns["subject"] == "Hello"]
    assert len(found) == 2 and end[-1] is found[-1]
    assert len(found[0].columns["to"]) <= 2_000


def test_a_from_line_without_end():
    (item,) = mails(b"From " + b"x" * 5_000_000)
    assert item.columns["date"] == "" and item.text == "in.mbox:0"


def test_the_same_message_id_twice(tmp_path):
    path = tmp_path / "in.mbox"
    path.write_bytes((FROM + HEADER + b"\n1\n\n") * 2 + FROM + HEADER + b"X: y\n\n3\n")
    found = mails(path.read_bytes(), str(path))
    keys = [task_for(item, NewTask(""), n).key for item, n in occurrences(found)]
    assert len(set(keys)) == 3
    ends = [read_message(str(path), item.columns["offset"])[-2:] for item in found]
    assert ends == [b"1\n", b"1\n", b"3\n"]


def test_a_mail_is_the_same_wherever_it_lies(tmp_path):
    first, second = FROM + HEADER + b"\n1\n\n", FROM + HEADER.replace(b"<1@", b"<2@") + b"\n2\n\n"
    path = tmp_path / "in.mbox"
    path.write_bytes(first + second)
    _, item = mails(first + second, str(path))
    (moved,) = mails(second, "elsewhere")
    assert task_for(item, NewTask("")).key == task_for(moved, NewTask("")).key
    path.write_bytes(second)
    where = (str(path), item.columns["offset"])
    assert read_message(*where, "<2@example.org>").endswith(b"\n2\n")
    for wrong in (where, (*where, "<1@example.org>"), (str(path), -1), (str(path), 3)):
        with pytest.raises(InvalidInput, match="has changed"):
            read_message(*wrong)
    with pytest.raises(InvalidInput, match="No such file"):
        read_message(str(tmp_path / "none"), 0)


def test_mails_written_by_python_come_back_as_they_were(tmp_path):
    bodies = ["From x\n\nFrom y 10:00\n> From z\n", "", "\n\n", "a\n\n\n", "ü\nFrom ü 10:00\n"]
    box = mailbox.mbox(tmp_path / "in.mbox")
    for number, body in enumerate(bodies):
        message = EmailMessage()
        message["Subject"], message["Message-ID"] = f"Grüße {number}", f"<{number}@x>"
        message.set_content(body, cte="8bit")
        box.add(message)
    box.close()
    path = str(tmp_path / "in.mbox")
    with open(path, "rb") as file:
        found = list(mbox_items(file, path))
    assert [columns_of(item)["subject"] for item in found] == [f"Grüße {n}" for n in range(5)]
    kept = mailbox.mbox(path)
    for item, key, body in zip(found, kept.keys(), bodies, strict=True):
        data = read_message(path, columns_of(item)["offset"])
        assert data.partition(b"\n\n")[2].rstrip() == body.encode().rstrip()
        assert data.splitlines()[0] == kept.get_bytes(key).splitlines()[0]


BODY = st.lists(
    st.sampled_from(
        [b"\n", b"\r\n", b"x", b"From ", b">From ", b"\0", b"\xff", FROM, b":", b" 1:00"]
    )
).map(b"".join)


@settings(max_examples=300)
@given(st.lists(st.tuples(BODY, BODY), max_size=5))
def test_any_bytes_are_mails(parts):
    data = b"".join(FROM + header + b"\n\n" + body + b"\n\n" for header, body in parts)
    found = mails(data)
    starts = [item.columns["offset"] for item in found]
    assert len(found) >= len(parts) and starts == sorted(set(starts))
    for item in found:
        check_task(task_for(item, NewTask("")))


@given(st.binary(max_size=300))
def test_any_header_is_read(data):
    for item in mails(FROM + b"Subject: " + data + b"\nDate: " + data + b"\nMessage-ID: " + data):
        check_task(task_for(item, NewTask("")))


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_mails_that_begin_anywhere_in_a_block(monkeypatch, end):
    """At every offset before, at and after the ends of the blocks that are read."""
    block = 2 * MAX_BEGIN_LENGTH
    monkeypatch.setattr("hypervisor.inputs.mail.MIN_BLOCK", block)
    begin = b"From x" + b"x" * 100 + b" 10:00"  # which an empty line must precede
    second = (b"", begin, b"Subject: 2", b"", b"z" * 2 * block)
    for size in [*range(40), *range(block - 700, block + 100), *range(2 * block, 3 * block)]:
        for body in (b"y" * size, b"\n" * size):
            data = end.join([FROM.strip(), b"Subject: 1", b"", body, *second])
            found = mails(data)
            assert [item.columns["subject"] for item in found] == ["1", "2"], size
            assert found[1].columns["offset"] == data.rindex(b"From ")
            assert len(mails(data.replace(b"\n" + begin, b"y" + end + begin))) == 1


MEASURE = """
import resource, sys
from hypervisor.inputs.mail import mbox_items
with open(sys.argv[1], "rb") as file:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = sum(1 for _ in mbox_items(file, "x"))
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_stays_flat(tmp_path):
    path = tmp_path / "big.mbox"
    mail = FROM + HEADER + b"\n" + b"some text that goes on\n" * 400 + b"\n"
    with open(path, "wb") as file:
        for _ in range(50 * 2**20 // len(mail) // 2):
            file.write(mail)
        file.write(FROM + HEADER + b"\n" + b"x" * (25 * 2**20) + b"\n\n" + FROM + HEADER)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, path], capture_output=True, text=True, timeout=120
    )
    count, grown = map(int, done.stdout.split())
    assert count == 50 * 2**20 // len(mail) // 2 + 2
    assert grown < 12 * 1024  # KB, with what had to be imported


@pytest.fixture
def maildir(tmp_path):
    for part in ("cur", "new", "tmp"):
        (tmp_path / "box" / part).mkdir(parents=True)
    return tmp_path / "box"


def put(folder, name, data=HEADER):
    (folder / name).write_bytes(data)


def test_a_maildir(maildir):
    assert is_maildir(str(maildir)) and not is_maildir(str(maildir / "cur"))
    put(maildir, "cur/2.host:2,S", HEADER.replace(b"<1@", b"<2@") + b"\nbody\n")
    put(maildir, "new/1.host", b"From x\n" + HEADER)
    put(maildir, "cur/3 ü\n.host:2,", b"Subject: no id")
    put(maildir, "tmp/4.host")
    put(maildir, "cur/.hidden")
    found = list(maildir_items(str(maildir), never))
    assert [item.text for item in found] == [
        "<1@example.org>",
        "<2@example.org>",
        f"{maildir}/cur/3 ü\n.host:2,",
    ]
    assert [item.number for item in found] == [1, 2, 3]
    columns = columns_of(found[1])
    assert columns["mailbox"] == str(maildir) and columns["path"] == f"{maildir}/cur/2.host:2,S"
    assert read_message(columns["mailbox"], columns["path"]).endswith(b"\nbody\n")


def test_a_mail_that_was_read_in_the_meantime(maildir):
    put(maildir, "new/1.host")
    (item,) = maildir_items(str(maildir), never)
    os.rename(maildir / "new/1.host", maildir / "cur/1.host:2,S")
    (again,) = maildir_items(str(maildir), never)
    assert task_for(item, NewTask("")).key == task_for(again, NewTask("")).key
    assert read_message(str(maildir), columns_of(item)["path"]) == HEADER
    os.unlink(maildir / "cur/1.host:2,S")
    with pytest.raises(InvalidInput, match="no longer in"):
        read_message(str(maildir), columns_of(item)["path"])
    put(maildir.parent, "secret")
    for path in ("../secret", f"{maildir.parent}/secret", "..", ""):
        with pytest.raises(InvalidInput, match="no longer in"):
            read_message(str(maildir), path)


def test_files_of_a_maildir_that_cannot_be_read(maildir):
    put(maildir, "cur/1.host")
    os.symlink("nowhere", maildir / "cur/2.host")
    os.symlink("3.host", maildir / "cur/3.host")
    (maildir / "cur/4.host").mkdir()
    os.mkfifo(maildir / "cur/5.host")
    with open(os.fsencode(maildir) + b"/cur/6\xff", "wb") as file:
        file.write(b"Subject: no id\n\n")
    bad = []
    (item,) = maildir_items(str(maildir), lambda place, why: bad.append((place, why)))
    assert item.text == "<1@example.org>" and item.number == 1
    assert [place.removeprefix(f"{maildir}/cur/") for place, _ in bad] == [
        "2.host",
        "3.host",
        "4.host",
        "5.host",
        r"6\xff",
    ]
    assert "No such file" in bad[0][1] and "symbolic links" in bad[1][1]
    assert "regular file" in bad[2][1] and "regular file" in bad[3][1]
    os.rename(maildir / "new", maildir / "old")
    with pytest.raises(InvalidInput, match="new cannot be read"):
        list(maildir_items(str(maildir), never))


def test_many_mailboxes(tmp_path):
    for name, data in (("a", FROM + HEADER), ("b", b"no mbox"), ("c", b"")):
        (tmp_path / name).write_bytes(data)
    bad = []
    paths = [str(tmp_path / name) for name in "abcda"]
    found = list(mailbox_items(paths, lambda place, why: bad.append((place[-1], why))))
    assert [item.number for item in found] == [1, 2]
    assert [place for place, _ in bad] == ["b", "d"]
