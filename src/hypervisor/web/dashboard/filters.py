"""What templates use to print values: numbers, sizes, money, states, times."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from urllib.parse import quote

from markupsafe import Markup, escape

from hypervisor.core.text import money_text, one_line, pluralize
from hypervisor.queue.message import question_of, shown_state
from hypervisor.resources.limits import size_text
from hypervisor.web.report.text import by_state, moment, number, printed, took, words


def when(ms: int | None) -> Markup:
    """A time. The browser shows it as an age, in its own time zone on hover."""
    if not ms:
        return Markup("")
    stamp = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    return Markup('<time datetime="{}">{}</time>').format(stamp, moment(ms))


def age(ms: int, now: int) -> Markup:
    """How long something has been running: the browser keeps counting."""
    stamp = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    text = took(max(now - ms, 0))
    return Markup('<time class="age" datetime="{}">{}</time>').format(stamp, text)


def date(ms: int) -> str:
    """A day of UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")


def segment(text: str) -> str:
    """A name as one segment of a path."""
    return quote(text, safe="")


def json_text(value: object) -> str:
    """JSON to read, which is escaped and shortened as other text is."""
    return json.dumps(value, ensure_ascii=False)


def whole(text: str) -> Markup:
    """Text to be copied: as it is shown, but never shortened."""
    return escape(one_line(text))


FILTERS = {
    "age": age,
    "asks": question_of,
    "shown_state": shown_state,
    "by_state": by_state,
    "date": date,
    "moment": moment,
    "json_text": json_text,
    "money": money_text,
    "number": number,
    "pluralize": pluralize,
    "printed": printed,
    "segment": segment,
    "shell": shlex.quote,
    "size": size_text,
    "took": took,
    "when": when,
    "whole": whole,
    "words": words,
}
