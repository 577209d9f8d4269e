"""mail-classify: classifies a mail by rules that can be read and changed.

It looks at the sender, subject, headers, attachments and words of one mail of an mbox or a Maildir.
It changes and moves nothing: the result is a category with the reason, and for a mail of a Maildir
it may propose the folder to move it to. A mail that cannot be read is classified by the columns of
its item alone; that is not a failure of the run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hypervisor.batches.plans.action import visible
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.inputs.mail import read_message
from hypervisor.skills.builtin.mail_classify_rules import Category, Rules, rules_for
from hypervisor.skills.builtin.mail_classify_text import Mail, addresses, read
from hypervisor.skills.builtin.triage_decide import read_note
from hypervisor.skills.builtin.triage_text import NormalizedText, first_few

EMPTY = "empty"
MAX_SUMMARY_LENGTH = 100

Fields = dict[str, Any]


class Fit(NamedTuple):
    """How well a mail fits a category, and why."""

    category: str
    points: int
    why: tuple[str, ...]


def run(item: Any) -> Fields:
    """Classify one mail: the columns of an item of an mbox or a Maildir. Called by a worker."""
    if not isinstance(item, Mapping) or not isinstance(item.get("mailbox"), str):
        raise InvalidInput(
            "mail-classify needs the mails of a mailbox: an mbox file that can be read again, or "
            "a Maildir. Nothing was changed."
        )
    rules = rules_for(os.getcwd())
    mail = _mail(item, rules)
    category, why = decide(mail, rules)
    note = read_note(os.environ.get("HV_NOTE", ""))
    if note.category:
        category, why = note.category, ("the reviewer decided",)
    else:
        why += note.remarks
    actions, why_not = _proposals(item, category, rules)
    rationale = f"{_recognised(mail)}: {'; '.join((*why, *why_not))}"
    result: Fields = {"category": category, "rationale": rationale}
    return result | ({"actions": actions} if actions else {})


def decide(mail: Mail, rules: Rules) -> tuple[str, tuple[str, ...]]:
    """The category of a mail, and why. Pure."""
    subject, text = NormalizedText(mail.subject), NormalizedText(mail.text)
    broken = (mail.broken,) if mail.broken else ()
    best = Fit("", 0, ())
    for candidate in rules.categories:
        fit = _fit(candidate, mail, subject, text, rules)
        if fit.points >= rules.points.enough and fit.points > best.points:
            best = fit
    if best.category:
        return best.category, (first_few(best.why), *broken)
    other = rules.otherwise
    signs = [f"from {sender}" for sender in other.sender.matches(mail.senders)]
    signs += other.headers.matches(mail.headers)
    if signs:
        return other.machine, (first_few(signs), *broken)
    if not (subject.count or text.count or any(mail.senders)):
        return EMPTY, ("no text", *broken)
    return other.person, ("no rule matches, and nothing suggests an automated sender", *broken)


def _fit(
    category: Category, mail: Mail, subject: NormalizedText, text: NormalizedText, rules: Rules
) -> Fit:
    points = rules.points
    headers = category.headers.matches(mail.headers)
    parts = category.parts.matches(mail.parts)
    senders = category.sender.matches(mail.senders)
    in_subject = category.subject.matches(subject)
    in_body = category.body.matches(text)
    total = (
        points.headers * len(headers)
        + points.parts * len(parts)
        + points.sender * bool(senders)
        + points.subject * bool(in_subject)
        + min(points.body * len(in_body), points.most_body)
    )
    why = [f"from {rule}" for rule in senders]
    why += [f"subject “{rule}”" for rule in in_subject]
    why += headers + [f"attached {rule}" for rule in parts]
    why += [f"text “{rule}”" for rule in in_body]
    return Fit(category.name, total, tuple(why))


def _mail(item: Mapping[str, Any], rules: Rules) -> Mail:
    sender, subject = _text(item, "from"), _text(item, "subject")
    where = item["offset"] if isinstance(item.get("offset"), int) else _text(item, "path")
    try:
        raw = read_message(item["mailbox"], where, _text(item, "message_id"))
    except (InvalidInput, ValueError) as error:
        why = f"judged by sender and subject only: {str(error).rstrip('.')}"
        return Mail(addresses(sender), subject, broken=why)
    return read(raw, sender, subject, rules.longest_body)


def _proposals(
    item: Mapping[str, Any], category: str, rules: Rules
) -> tuple[list[Fields], tuple[str, ...]]:
    """The proposal to move a mail to a folder of its Maildir; in an mbox, nothing can be moved."""
    path, folder = item.get("path"), rules.folder_of(category)
    if os.environ.get("HV_PROPOSE") != "1" or not folder or not isinstance(path, str):
        return [], ()
    if not os.path.isfile(path):
        return [], ("nothing proposed: it has been moved since",)
    part, name = os.path.split(path)
    to = os.path.join(item["mailbox"], f".{folder}", os.path.basename(part), name)
    source, target = os.path.relpath(path), os.path.relpath(to)
    if any(place.split(os.sep, 1)[0] == os.pardir for place in (source, target)):
        return [], ("nothing proposed: its Maildir is outside the folder of the run",)
    return [{"do": "move", "path": source, "to": target, "why": category}], ()


def _recognised(mail: Mail) -> str:
    """Sender and subject, by which people recognize the mail."""
    subject = f"“{mail.subject}”" if mail.subject else "no subject"
    sender = mail.senders[0] if any(mail.senders) else "no sender"
    return visible(f"{sender}, {subject}"[:MAX_SUMMARY_LENGTH])


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""
