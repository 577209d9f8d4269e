"""The decision of triage on a task: closed or open, assignee, complexity, missing links.

Pure: fields, body and rules in, a decision out. After a decision was carried out, the same
category follows again, and no further change.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hypervisor.core.records import NamedTuple
from hypervisor.skills.builtin.triage_rules import Rules
from hypervisor.skills.builtin.triage_text import NormalizedText, Text, first_few, read

CLOSED, ASSIGNED = "closed", "assigned"
JUDGEMENT, AUTOMATABLE, UNCLEAR = "judgement", "automatable", "unclear"
RULED = frozenset({CLOSED, ASSIGNED, JUDGEMENT, AUTOMATABLE, UNCLEAR})
NO_ONE = frozenset({"", "none", "nobody", "-"})
MAX_NOTE_LENGTH = 500
MAX_NAME_LENGTH = 100
MAX_QUOTE_LENGTH = 60
MAX_PROJECTS = 20
NOT_IN_LINKS = frozenset("[]|#^<>")

Fields = dict[str, Any]


class Note(NamedTuple):
    """The note of a reviewer who asked for a retry."""

    text: str = ""
    category: str = ""
    assignee: str = ""

    @property
    def remarks(self) -> tuple[str, ...]:
        return (f"the reviewer noted: {self.text}",) if self.text else ()


class Decision(NamedTuple):
    """The category of a task, why, and what to change."""

    category: str
    why: tuple[str, ...]
    fields: Fields
    links: tuple[str, ...] = ()

    def changes(self) -> Fields:
        return {**self.fields, **({"links": list(self.links)} if self.links else {})}


class Side(NamedTuple):
    """The evidence for human judgement, or for automation."""

    points: int
    words: tuple[str, ...]

    @property
    def named(self) -> str:
        return first_few(self.words)


def read_note(text: str) -> Note:
    """Lines like `category: closed` or `assignee: ann` are instructions, others are remarks."""
    orders = {"category": "", "assignee": ""}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().lower() in orders and value.strip().isprintable():
            orders[name.strip().lower()] = " ".join(value.split())[:MAX_NAME_LENGTH]
    return Note(" ".join(text.split())[:MAX_NOTE_LENGTH], **orders)


def decide(fields: Mapping[str, Any], body: str, path: str, rules: Rules, note: Note) -> Decision:
    """Decide on a task."""
    text = read(body)
    links, why_not = _missing_links(fields.get("project"), body)
    decision = _closed(fields, text, rules, note) or _open(fields, text, path, rules, note)
    if note.category and note.category not in RULED:
        decision = decision._replace(category=note.category)
    return decision._replace(links=links, why=decision.why + why_not)


def _open(fields: Mapping[str, Any], text: Text, path: str, rules: Rules, note: Note) -> Decision:
    title, spoken = NormalizedText(_title(fields, text, path)), NormalizedText(text.prose)
    category, assignee, why = _assignment(fields, title, spoken, rules, note)
    changes: Fields = {}
    if not _given(fields.get("complexity")):
        changes["complexity"] = _complexity(title, spoken, text, rules)
    if assignee != _given(fields.get("assignee")):
        changes["assignee"] = assignee or None
    return Decision(category, (why,), changes)


def _closed(fields: Mapping[str, Any], text: Text, rules: Rules, note: Note) -> Decision | None:
    why = _why_closed(fields, text, rules)
    if note.category in RULED:
        why = "the reviewer decided" if note.category == CLOSED else ""
    if not why:
        return None
    status = _given(fields.get("status"))
    stays = status == "done" or status.casefold() in rules.closure.cancelled
    return Decision(CLOSED, (f"closed: {why}",), {} if stays else {"status": "done"})


def _why_closed(fields: Mapping[str, Any], text: Text, rules: Rules) -> str:
    closure = rules.closure
    status = _given(fields.get("status")).casefold()
    if status in closure.done or status in closure.cancelled:
        return f"its status is {_quoted(status)}"
    for heading in text.headings:
        if heading in closure.headings:
            return f"it has the heading {_quoted(heading)!r}"
    if closure.ticked and text.ticked and not text.open:
        return "its only checkbox is ticked" if text.ticked == 1 else "all checkboxes are ticked"
    return ""


def _assignment(
    fields: Mapping[str, Any], title: NormalizedText, body: NormalizedText, rules: Rules, note: Note
) -> tuple[str, str, str]:
    """The category, the assignee that the task should have, and why."""
    category, why = _sides(title, body, rules)
    forced = note.category in RULED
    if forced:
        category, why = note.category, f"{note.category}: the reviewer decided"
    wanted = {JUDGEMENT: rules.person, AUTOMATABLE: rules.bot}.get(category, "")
    current = _given(fields.get("assignee"))
    if note.assignee:
        name = "" if note.assignee.lower() in NO_ONE else note.assignee
        category = category if forced or name in ("", wanted) else ASSIGNED
        return category, name, f"{why}; assignee by the reviewer"
    ours = current in (rules.person, rules.bot)
    if not current or current == wanted or (forced and ours):
        return category, wanted, why
    return category if forced else ASSIGNED, current, f"already assigned to {_quoted(current)}"


def _sides(title: NormalizedText, body: NormalizedText, rules: Rules) -> tuple[str, str]:
    person = _side(rules.judgement.matches(title), rules.judgement.matches(body), rules)
    bot = _side(rules.automatable.matches(title), rules.automatable.matches(body), rules)
    enough, margin = rules.assignee.enough, rules.assignee.margin
    for category, side, other in ((JUDGEMENT, person, bot), (AUTOMATABLE, bot, person)):
        least = max(enough, margin * other.points, other.points + 1)
        if side.points >= least:
            return category, f"{category}: {side.named}"
    if person.points and bot.points:
        return UNCLEAR, f"unclear: both judgement ({person.named}) and automation ({bot.named})"
    side = person if person.points else bot
    return UNCLEAR, f"unclear: only {side.named}" if side.points else "unclear: no rule matches"


def _side(in_title: list[str], in_body: list[str], rules: Rules) -> Side:
    weights = rules.assignee
    points = weights.title * len(in_title) + weights.body * len(in_body)
    return Side(points, tuple(dict.fromkeys([*in_title, *in_body])))


def _complexity(title: NormalizedText, body: NormalizedText, text: Text, rules: Rules) -> str:
    rule = rules.complexity
    hard = {*rule.hard.matches(title), *rule.hard.matches(body)}
    points = (
        sum(body.count >= least for least in rule.words)
        + sum(text.ticked + text.open >= least for least in rule.checkboxes)
        + min(len(hard), rule.most_for_hard)
        - (1 if rule.easy.matches(title) else 0)
    )
    return rule.levels[(points >= rule.medium_from) + (points >= rule.complex_from)]


def _title(fields: Mapping[str, Any], text: Text, path: str) -> str:
    named = _given(fields.get("title"))
    if named:
        return named
    if text.headings:
        return text.headings[0]
    return os.path.splitext(os.path.basename(path))[0]


def _missing_links(project: Any, body: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The links to add, and a remark on each project that cannot be linked."""
    links, why_not = [], []
    there = body.casefold() if project else ""
    for name in dict.fromkeys(_names(project)[:MAX_PROJECTS]):
        if not name.isprintable() or NOT_IN_LINKS & set(name) or len(name) > MAX_NAME_LENGTH:
            why_not.append(f"no link to {_quoted(name)!r}: invalid name for a link")
        elif not any(f"[[{name.casefold()}{end}" in there for end in ("]]", "|", "#")):
            links.append(f"[[{name}]]")
    return tuple(links), tuple(why_not)


def _names(project: Any, levels: int = 2) -> list[str]:
    """Projects by name: one, a list, or `[[Name]]`, which YAML takes for a list in a list."""
    if isinstance(project, list) and levels:
        parts = project[:MAX_PROJECTS]  # aliases can make it endless
        return [name for part in parts for name in _names(part, levels - 1)]
    name = "" if isinstance(project, list | dict | set) else _given(project)
    if name.startswith("[[") and name.endswith("]]"):
        name = name[2:-2].partition("|")[0].strip()
    return [] if name.lower() in NO_ONE else [name]


def _given(value: Any) -> str:
    """A field as text on one line; "" if it is missing or empty."""
    if isinstance(value, list | dict | set):
        return "several values" if value else ""
    return "" if value is None else " ".join(str(value).split())


def _quoted(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_QUOTE_LENGTH else text[: MAX_QUOTE_LENGTH - 1] + "…"
