"""What a page, a part of it and an action are. Pages are tables of these; `app` serves them.

A page has a template `dashboard/NAME/page.html` and parts `dashboard/NAME/PART.html`. A part is
fetched again, alone, when an event concerns it: its function reads what it shows, and nothing else.
Functions run in a thread, call operations and return values for the template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from hypervisor.core.errors import InvalidInput
from hypervisor.core.records import NamedTuple
from hypervisor.queue.context import Context
from hypervisor.web.dashboard.access import Role

Values = Mapping[str, Any]


class Request(NamedTuple):
    """A request as pages and actions see it."""

    path: Mapping[str, str]  # the variables of its path
    query: Mapping[str, str]
    role: Role
    now: int
    form: Mapping[str, str] = {}
    folder: str = ""  # where the dashboard was started

    def number(self, name: str, default: int = 0) -> int:
        text = self.form.get(name) or self.query.get(name) or self.path.get(name) or ""
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise InvalidInput(f"invalid number {text[:40]!r}")
        return int(text)


Read = Callable[[Context, Request], Values]


def nothing(hv: Context, request: Request) -> Values:
    return {}


class Page(NamedTuple):
    """`values`: what the page and all its parts need; fetched for each of them, so keep it cheap.
    `parts`: by name."""

    path: str
    name: str
    values: Read = nothing
    parts: Mapping[str, Read] = {}


class Answer(NamedTuple):
    """The answer of an action that is not a sentence: a template and its values, or a page to go
    to."""

    template: str = ""
    values: Values = MappingProxyType({})
    go: str = ""


class Action(NamedTuple):
    """A change, by POST. `run` returns the sentence that confirms it, or an answer to show."""

    path: str
    run: Callable[[Context, Request], str | Answer]


class Raw(NamedTuple):
    """An answer that is not a page: a file to download, text for a program."""

    path: str
    # The media type, and the content, or its pieces if it may be long.
    read: Callable[[Context, Request], tuple[str, str | bytes | Iterator[bytes]]]


class Menu(NamedTuple):
    """An entry of the menu."""

    path: str
    label: str
