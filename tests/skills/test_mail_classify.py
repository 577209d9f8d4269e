"""mail-classify on single mails: each rule by cases, the note of a reviewer, proposals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hypervisor.batches.plans.action import checked
from hypervisor.core.errors import InvalidInput
from hypervisor.inputs.mail import maildir_items, mbox_items
from hypervisor.skills.builtin import mail_classify, mail_classify_text

EXAMPLES = Path(__file__).parents[2] / "examples" / "mail" / "inbox.mbox"
PERSON = "Ann <ann@home.example>"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("HV_NOTE", "HV_PROPOSE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def mbox(*mails):
    """Mails, each as its header and its body, in an mbox; their items."""
    text = b""
    for number, (header, body) in enumerate(mails):
        text += b"From x Mon Jan 05 10:00:00 2026\nMessage-ID: <%d@x>\n" % number
        text += header.encode() + b"\n\n" + body.encode() + b"\n\n"
    Path("in.mbox").write_bytes(text)
    with open("in.mbox", "rb") as file:
        return [item.columns for item in mbox_items(file, "in.mbox")]


def category(header, body="Hello\n"):
    (item,) = mbox((header, body))
    return mail_classify.run(item)["category"]


def sent(sender=PERSON, subject="Hello", *more):
    return "\n".join((f"From: {sender}", f"Subject: {subject}", *more))


def test_the_examples_are_what_their_names_say():
    with open(EXAMPLES, "rb") as file:
        items = {item.text: dict(item.columns or {}) for item in mbox_items(file, str(EXAMPLES))}
    assert len(items) >= 40
    found = {name: mail_classify.run(columns)["category"] for name, columns in items.items()}
    assert found == {name: name[1:].rsplit("-", 1)[0] for name in found}
    assert len({columns["date"][:7] for columns in items.values()}) == 3  # months, for chunks


@pytest.mark.parametrize("kind", ["plain", "html"])
def test_half_a_character_does_not_get_into_the_text(kind):
    raw = f"Content-Type: text/{kind}; charset=utf-7\n\na+2AA-b +AOk-".encode()
    assert mail_classify_text.read(raw, PERSON, "Hi", 100).text == "a?b é"


@pytest.mark.parametrize(
    ("header", "body", "wanted"),
    [
        (sent(subject="Invoice 17"), "", "invoice"),
        (sent(subject="Ihre Rechnungen"), "", "invoice"),
        (sent(subject="INVOICE"), "", "invoice"),
        (sent(subject="=?utf-8?q?R=C3=A9servation_confirm=C3=A9e?="), "", "travel"),
        (sent("billing@x.example", "Hello"), "", "invoice"),
        (sent('"billing@bank.example" <ann@home.example>'), "", "invoice"),  # a name proves nothing
        (sent(subject="News"), "The IBAN, the VAT and the due date", "invoice"),
        (sent(subject="News"), "The IBAN and the VAT", "personal"),  # two words are not enough
        (sent(PERSON, "Your order", "List-Unsubscribe: <x>"), "", "order"),  # earlier wins
        (sent("shop@x.example", "Hi", "List-Unsubscribe: <x>"), "", "newsletter"),
        (sent(PERSON, "Hi", "Precedence: LIST"), "", "list"),
        (sent(PERSON, "Hi", "List-Id: <x>"), "", "notification"),
        (sent(PERSON, "Hi", "X-GitLab-Anything: 1"), "", "code"),
        (sent(PERSON, "Hi", "X-Spam-Status: Yes, score=7"), "", "spam"),
        (sent(PERSON, "Hi", "X-Spam-Status: No, score=0"), "", "personal"),
        (sent(PERSON, "Invoice", "X-Spam-Flag: YES"), "", "spam"),
        (sent("MAILER-DAEMON", "Hi"), "", "bounce"),
        (sent(PERSON, "Hi", "Auto-Submitted: auto-replied (vacation)"), "", "away"),
        (sent(PERSON, "Hi", "Auto-Submitted: no"), "", "personal"),
        (sent("no-reply-17@x.example"), "", "notification"),
        (sent("reply@x.example"), "", "personal"),
        (sent(subject="preinvoiced things"), "", "personal"),
        ("Subject: lonely", "", "personal"),
        ("X: y", "", "empty"),
    ],
)
def test_by_rules(header, body, wanted):
    assert category(header, body) == wanted


def test_of_a_mail_in_html_the_words_count_that_a_reader_sees():
    html = sent(PERSON, "Hi", "Content-Type: text/html")
    seen = "<p>The <b>IBAN</b>, the V&#65;T and <i>due</i> date</p>"
    assert category(html, seen) == "invoice"
    for hidden in (
        "<style>{}</style>",
        "<!-- {} -->",
        "<SCRIPT>{}</SCRIPT>",
        "<a title='{}'>x</a>",
    ):
        assert category(html, hidden.format("IBAN VAT due date") + "<p>Hi</p>") == "personal"


def test_plain_text_goes_before_html_and_attachments_are_not_read():
    parts = sent(PERSON, "Hi", "MIME-Version: 1.0", "Content-Type: multipart/mixed; boundary=b")
    money = "IBAN, VAT, due date\n"
    body = "--b\nContent-Type: text/html\n\n{}\n--b\nContent-Type: text/plain{}\n\n{}\n--b--\n"
    assert category(parts, body.format("Hello", "", money)) == "invoice"
    assert category(parts, body.format(money, "", "Hello")) == "personal"
    attached = "\nContent-Disposition: attachment; filename=x.txt"
    assert category(parts, body.format("Hello", attached, money)) == "personal"


def test_the_rationale_says_which_mail_and_what_was_found():
    (item,) = mbox((sent("Shop <billing@x.example>", "Invoice 17"), ""))
    assert mail_classify.run(item) == {
        "category": "invoice",
        "rationale": "billing@x.example, “Invoice 17”: from billing@*, subject “invoice*”",
    }
    (item,) = mbox(("X: y", ""))
    assert mail_classify.run(item) == {
        "category": "empty",
        "rationale": "no sender, no subject: no text",
    }


def test_a_reviewer_stands_above_the_rules(monkeypatch):
    (item,) = mbox((sent(subject="Invoice"), ""))
    monkeypatch.setenv("HV_NOTE", "category: personal")
    assert mail_classify.run(item) == {
        "category": "personal",
        "rationale": "ann@home.example, “Invoice”: the reviewer decided",
    }
    monkeypatch.setenv("HV_NOTE", "look again")
    answer = mail_classify.run(item)
    assert answer["category"] == "invoice"
    assert answer["rationale"].endswith("the reviewer noted: look again")


@pytest.mark.parametrize("item", ["<a@b>", None, 7, {}, {"path": "x"}, {"mailbox": 3}])
def test_what_is_not_a_mail_is_refused(item):
    with pytest.raises(InvalidInput, match="mails of a mailbox"):
        mail_classify.run(item)


def test_a_mail_that_is_gone_is_judged_by_what_is_known():
    first, second = mbox((sent(subject="Invoice"), ""), (sent(subject="Hi"), ""))
    os.unlink("in.mbox")
    answer = mail_classify.run(first)
    assert answer["category"] == "invoice"
    assert "judged by sender and subject only" in answer["rationale"]
    assert mail_classify.run(second)["category"] == "personal"


class TestProposals:
    def items(self, mailbox="mail"):
        for part in ("new", "cur", "tmp"):
            os.makedirs(f"{mailbox}/{part}")
        Path(f"{mailbox}/cur/1.x:2,S").write_text(sent(subject="Invoice") + "\n\n")
        Path(f"{mailbox}/new/2.x").write_text(sent() + "\n\n")
        Path(f"{mailbox}/new/3.x").write_text(sent(PERSON, "Hi", "List-Unsubscribe: <x>") + "\n\n")
        return [item.columns for item in maildir_items(mailbox, lambda place, why: None)]

    def test_a_mail_of_a_maildir_is_proposed_for_its_folder_and_not_moved(self, monkeypatch):
        items = self.items()
        monkeypatch.setenv("HV_PROPOSE", "1")
        before = sorted(Path().rglob("*"))
        found = [mail_classify.run(item).get("actions", []) for item in items]
        assert sorted(Path().rglob("*")) == before
        assert found == [
            [
                {
                    "do": "move",
                    "path": "mail/cur/1.x:2,S",
                    "to": "mail/.invoice/cur/1.x:2,S",
                    "why": "invoice",
                }
            ],
            [],
            [
                {
                    "do": "move",
                    "path": "mail/new/3.x",
                    "to": "mail/.newsletter/new/3.x",
                    "why": "newsletter",
                }
            ],
        ]
        for actions in found:
            for action in actions:
                assert checked(action) == action

    def test_nothing_is_proposed_unless_that_was_asked_for(self):
        assert not any("actions" in mail_classify.run(item) for item in self.items())

    def test_nothing_is_proposed_outside_the_run_or_for_what_is_gone(self, tmp_path, monkeypatch):
        outside = tmp_path / "elsewhere"
        run = tmp_path / "run"
        run.mkdir()
        items = self.items(str(outside))
        monkeypatch.setenv("HV_PROPOSE", "1")
        monkeypatch.chdir(run)
        answer = mail_classify.run(items[0])
        assert "actions" not in answer and "outside the folder of the run" in answer["rationale"]
        monkeypatch.chdir(tmp_path)
        assert "actions" in mail_classify.run(items[0])
        os.rename(items[0]["path"], outside / "cur" / "1.x:2,RS")
        answer = mail_classify.run(items[0])
        assert answer["category"] == "invoice"
        assert "actions" not in answer and "moved since" in answer["rationale"]
