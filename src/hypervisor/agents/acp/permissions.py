"""Answers an agent's requests for permission by the permissions of the batch. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from hashlib import blake2b

from hypervisor.core.records import NamedTuple
from hypervisor.runs.spec import Permissions

OUR_SERVER = "hypervisor"
READING = ("read", "search", "think")
EDITING = ("edit", "move", "delete")
MAX_DESCRIPTION = 150


class Wish(NamedTuple):
    """What an agent asks to do: the kind of its tool by the protocol, its title, the paths and the
    command."""

    kind: str
    title: str
    paths: tuple[str, ...] = ()
    command: str = ""

    @property
    def description(self) -> str:
        """Names the action for people, and exactly: it can be allowed by this text."""
        text = " ".join((self.title or self.kind or "a tool").split())
        for part in (self.command, *self.paths):
            part = " ".join(part.split())
            text += "" if part in text else f" {part}"
        if len(text) <= MAX_DESCRIPTION:
            return text
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        return f"{text[: MAX_DESCRIPTION - 20]}… ({digest})"


class Grant(NamedTuple):
    """What the batch allows, in which folder, and the descriptions that people allowed."""

    permissions: Permissions
    folder: str
    allow: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()


def is_allowed(wish: Wish, grant: Grant) -> bool:
    """Unknown kinds are refused unless the batch has full permissions or names the tool."""
    if grant.permissions == "full" or wish.kind in READING:
        return True
    if wish.description in grant.granted:
        return True
    if wish.kind in ("", "other") and OUR_SERVER in wish.title.casefold():
        return True
    if any(_names(tool, wish) for tool in grant.allow):
        return True
    if grant.permissions == "edit" and wish.kind in EDITING:
        return bool(wish.paths) and all(_is_inside(path, grant.folder) for path in wish.paths)
    return False


def _names(tool: str, wish: Wish) -> bool:
    return tool.casefold() in (wish.kind, *wish.title.casefold().split()[:1])


def _is_inside(path: str, folder: str) -> bool:
    whole = posixpath.normpath(posixpath.join(folder, path))
    return whole == folder or whole.startswith(folder.rstrip("/") + "/")


def choose(options: Sequence[tuple[str, str]], allowed: bool) -> str:
    """The option to select, of (id, kind); "" if none fits. Never one that lasts."""
    wanted = "allow_once" if allowed else "reject_once"
    return next((id for id, kind in options if kind == wanted), "")
