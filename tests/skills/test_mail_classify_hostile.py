"""Malicious mails: each gets a category, and none takes much time or memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypervisor.inputs.mail import mbox_items
from hypervisor.skills.builtin import mail_classify, mail_classify_text
from hypervisor.skills.builtin.mail_classify_text import MAX_PARTS, MAX_SIZE, plain, read

LINES = b"From: a@b.example\nSubject: Invoice\n"
MULTI = LINES + b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HV_NOTE", raising=False)


def answer(raw):
    Path("in.mbox").write_bytes(b"From x Mon Jan 05 10:00:00 2026\n" + raw)
    with open("in.mbox", "rb") as file:
        items = list(mbox_items(file, "in.mbox"))
    found = mail_classify.run(items[0].columns)
    json.dumps(found).encode()
    assert found["category"] and found["rationale"].isprintable()
    return found


@pytest.mark.parametrize(
    "raw",
    [
        MULTI,  # parts are announced but missing
        MULTI + b"--b\n",
        MULTI + b"--b\nContent-Disposition: attachment; filename*" + b"1" * 5000 + b"=x\n\n",
        MULTI + b"--b\nContent-Disposition: attachment; filename*=u\0f''x\n\n",
        MULTI + b"--b\n--b\n--b--\n--b\n",
        MULTI.replace(b"boundary=b", b"boundary="),
        MULTI.replace(b"; boundary=b", b""),
        MULTI.replace(b"boundary=b", b"boundary*0*=%ff; boundary*1*=\xff"),
        LINES + b"Content-Type: text/plain; charset=no-such-charset\n\nB\xe4r\n",
        LINES + b'Content-Type: text/plain; charset="utf-8\xff"\n\nB\xe4r\n',
        LINES + b"Content-Type: text/plain; charset=utf-16\n\nabc\n",
        LINES + b"Content-Type: text/plain; charset=unicode_escape\n\n\\x\n",
        LINES + b"Content-Type: text/plain; charset*0*=x'y'%ff\n\nabc\n",
        LINES + b"Content-Type: text/plain; charset=idna\n\n" + b"a." * 1000,
        LINES + b"Content-Type: text/plain; charset=hex\n\nabc\n",
        LINES + b"Content-Type: /\n\nabc\n",
        LINES + b'Content-Type: text/plain/html; ;;==;"\n\nabc\n',
        LINES + b"Content-Transfer-Encoding: base64\n\n!!!!===\xff\n",
        LINES + b"Content-Transfer-Encoding: x-uuencode\n\nbegin 644 x\nZZZZ\n",
        LINES + b"Content-Transfer-Encoding: quoted-printable\n\n=ZZ==\n=\n",
        LINES + b"Content-Disposition: attachment; filename*=utf-8''%ff%00\n\nabc\n",
        LINES + b"\n\0\0\0",
        LINES + b"X-\0: \0\n\0: x\n\nabc\0\n",
        LINES + b" folded\n\tand folded\n\nabc\n",
        LINES + b": no name\nno colon\n\nabc\n",
        LINES,
    ],
)
def test_broken_mails_are_judged_by_what_is_whole(raw):
    assert answer(raw)["category"] == "invoice"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"\xff\xfe\n",
        b"From: \xff\xfe\nSubject: \xff\n\n\xff",
        b"From: =?utf-8?b?////?=\nSubject: =?x?q?=ZZ?=\n\nHello\n",
        b"Subject: =?utf-8?q?" + b"=F0=9F=98=80" * 500 + b"?=\n\n",
        b"Date: Mon, 99 Foo 2026 99:99:99 +9999\nFrom: a\n\n",
        b"Subject: \xe2\x80\xae\x1b[31mred\n\n",
    ],
)
def test_mails_with_nothing_whole_get_a_category_too(raw):
    answer(raw)


@pytest.mark.parametrize("charset", ["punycode", "IDNA", "unicode-escape", "raw_unicode_escape"])
@pytest.mark.parametrize("text", [b"xn--mnchen-3ya", b"Mnchen-3ya \\u00fc", b"Mnchen-3ya \xe4"])
def test_codecs_that_are_not_charsets_are_not_tried(charset, text):
    """Some of them take quadratic time."""
    lines = LINES + f"Content-Type: text/plain; charset={charset}\n\n".encode()
    assert read(lines + text, "a@b", "", 1000).text == text.decode("latin-1")
    word = f"Subject: =?{charset}?q?Mnchen-3ya?=\n\n".encode()
    assert "Mnchen-3ya" in answer(b"From: a@b.example\n" + word)["rationale"]


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("field", [b"Content-Type: text/plain", b"CONTENT-DISPOSITION: inline"])
def test_of_a_field_with_parameters_the_beginning_counts(line, field):
    """The parser reads them in quadratic time."""
    for length, known in ((500, True), (2_000, False)):
        raw = b"From: a@b.example" + line + field + b'; x="' + b";" * length + b'";' + line
        raw += b' name="a.pdf"; filename="a.pdf"' + line + line + b"abc"
        assert ("a.pdf" in read(raw, "a@b", "", 100).parts) is known


def test_nested_parts_without_end():
    raw = LINES
    for depth in range(3000):
        raw += b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (depth, depth)
    found = answer(raw + b"\nabc\n")
    assert found["category"] == "invoice" and "too many nested parts" in found["rationale"]


def test_of_many_parts_the_first_are_looked_at():
    raw = MULTI + b"--b\nContent-Type: text/x-%d\n\nx\n" * 5000 % tuple(range(5000)) + b"--b--\n"
    found = read(raw, "a@b", "", 100)
    assert 10 < len(found.parts) <= MAX_PARTS + 1


def test_of_ten_megabytes_the_beginning_is_looked_at():
    big = b"IBAN VAT due date " + b"lottery casino viagra inheritance\n" * 300_000
    assert len(big) > 10_000_000
    found = answer(b"From: a@b.example\nSubject: Hello\n\n" + big)
    assert found["category"] == "spam"
    late = b"x" * MAX_SIZE + b"\nlottery casino viagra inheritance\n" + b"y\n" * 5_000_000
    assert answer(b"From: a@b.example\nSubject: Hello\n\n" + late)["category"] == "personal"


def test_a_header_of_ten_megabytes():
    found = answer(LINES + b"X-Long: " + b"x" * 10_000_000 + b"\n\nabc\n")
    assert found["category"] == "invoice"
    many = b"".join(b"X-%d: y\n" % number for number in range(100_000))
    assert answer(LINES + many + b"\nabc\n")["category"] == "invoice"


@pytest.mark.parametrize(
    "text",
    [
        "<" * 200_000,
        "<style" * 40_000,
        "<!--" * 50_000,
        "<a " * 70_000,
        "&" * 200_000,
        "<style>" * 9,
    ],
)
def test_html_without_end_takes_linear_time(text):
    """Quadratic, each of these would take minutes."""
    plain(text)


def test_letters_that_grow_in_lower_case_do_not_shift_what_is_hidden():
    many = "İ" * 20
    assert plain(f"{many}<style>IBAN</style>shown").split() == [many, "shown"]


def test_whatever_the_parser_raises_the_mail_is_judged_by_the_rest(monkeypatch):
    def raising(raw):
        raise AttributeError("a fault of the library")

    monkeypatch.setattr(mail_classify_text, "message_from_bytes", raising)
    found = answer(LINES + b"\nHello\n")
    assert found["category"] == "invoice" and "are broken (AttributeError)" in found["rationale"]


@given(st.binary(max_size=2000))
def test_any_bytes_are_a_mail(raw):
    read(raw, "a", "b", 1000)
    read(LINES + raw, "a", "b", 1000)
    read(MULTI + b"--b\n" + raw, "a", "b", 1000)


@given(st.text(max_size=500))
def test_any_text_is_html(text):
    plain(text)
    plain(f"<p>{text}<style>{text}")
