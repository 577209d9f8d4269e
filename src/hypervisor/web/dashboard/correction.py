"""A result as a form, and the corrections that a person made in it.

Texts are edited as texts and everything else as JSON. Only what differs from the result becomes a
correction, so a field that cannot be shown exactly in a form is never changed by accident.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

from hypervisor.batches.plans.action import ActionKind
from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple

MAX_SIZE = 100_000  # characters of a result as JSON; forms are limited, too
MAX_FORMS = 50  # proposals with fields of their own
USUAL = ("category", "rationale")  # may be added to a result that lacks them
LONG = 80
LONG_TEXTS = ("text", "body")
LISTS = ("lines",)  # edited one per line


class Field(NamedTuple):
    """`kind`: text, long, lines or json. `rows`: how high a long one is."""

    name: str
    label: str
    kind: str
    value: Markup
    rows: int


class ProposalForm(NamedTuple):
    number: int
    kind: str
    fields: tuple[Field, ...]


class ResultForm(NamedTuple):
    """`problem`: why the result cannot be edited here."""

    fields: tuple[Field, ...] = ()
    proposals: tuple[ProposalForm, ...] = ()
    others: tuple[Field, ...] = ()  # as JSON
    problem: str = ""


def fields_of(result: Any) -> ResultForm:
    if len(json.dumps(result)) > MAX_SIZE:
        return ResultForm(problem="the result is too large to be edited here")
    members = result if isinstance(result, dict) else {}
    texts = {name: members.get(name, "") for name in USUAL} | members
    proposals = members.get("actions") if _has_forms(members.get("actions")) else []
    fields = [_field(f"member.{name}", name, value) for name, value in texts.items()]
    others = [field for field in fields if field.kind == "json"]
    if proposals:
        others = [field for field in others if field.label != "actions"]
    return ResultForm(
        tuple(field for field in fields if field.kind != "json"),
        tuple(_proposal(number, proposal) for number, proposal in enumerate(proposals or [])),
        tuple(others),
    )


def changes_in(result: Any, form: Mapping[str, str]) -> dict[str, Any]:
    """The members that the form changes; None removes one."""
    members = result if isinstance(result, dict) else {}
    changes: dict[str, Any] = {}
    for name, value in form.items():
        group, _, member = name.partition(".")
        if group == "member":
            new = _value(member, members.get(member, ""), value)
            if new != members.get(member, "" if isinstance(new, str) else None):
                changes[member] = None if new == "" else new
    if _has_forms(members.get("actions")):
        proposals = [
            _changed(number, proposal, form)
            for number, proposal in enumerate(members["actions"])
            if f"drop.{number}" not in form
        ]
        if proposals != members["actions"]:
            changes["actions"] = proposals
    if not changes:
        raise InvalidInput("nothing was corrected: no field differs")
    return changes


def _has_forms(actions: Any) -> bool:
    return (
        isinstance(actions, list)
        and 0 < len(actions) <= MAX_FORMS
        and all(isinstance(a, dict) and a.get("do") in tuple(ActionKind) for a in actions)
    )


def _proposal(number: int, proposal: dict[str, Any]) -> ProposalForm:
    fields = [
        _field(f"action.{number}.{name}", name, value)
        for name, value in proposal.items()
        if name != "do"
    ]
    return ProposalForm(number, proposal["do"], tuple(fields))


def _changed(number: int, proposal: dict[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    new = dict(proposal)
    for name, before in proposal.items():
        value = form.get(f"action.{number}.{name}")
        if value is not None and name != "do":
            new[name] = _value(name, before, value)
    return new


def _field(name: str, label: str, value: Any) -> Field:
    kind = _kind(label, value)
    text = _text(kind, value)
    # A line break right after the tag is not part of a field's value.
    shown = Markup("\n") + escape(text) if kind != "text" else escape(text)
    return Field(name, label, kind, shown, min(max(text.count("\n") + 1, 2), 20))


def _kind(name: str, value: Any) -> str:
    if name in LISTS and isinstance(value, list) and all(map(_is_line, value)):
        return "lines"
    if not isinstance(value, str) or not _is_clean(value):
        return "json"
    return "long" if name in LONG_TEXTS or len(value) > LONG or "\n" in value else "text"


def _text(kind: str, value: Any) -> str:
    if kind == "lines":
        return "\n".join(value)
    if kind != "json":
        return str(value).replace("\r\n", "\n")
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if _is_clean(text) else json.dumps(value, indent=2)


def _value(name: str, before: Any, given: str) -> Any:
    """What a person made of a value; the same value if they left the field as it was."""
    kind = _kind(name, before)
    given = given.replace("\r\n", "\n")
    if given == _text(kind, before):
        return before
    if kind == "lines":
        return [line for line in given.split("\n") if line.strip()]
    if kind != "json":
        return given.replace("\n", "\r\n") if "\r\n" in before else given
    if not given.strip():
        return ""
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name[:40]} is not valid JSON: {error}") from None


def _is_clean(text: str) -> bool:
    """Whether a form shows exactly this text."""
    return all(
        part.isprintable() for part in text.replace("\r\n", "\n").replace("\t", "").split("\n")
    )


def _is_line(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()
