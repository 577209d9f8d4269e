"""Searching the hive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core import validate
from hypervisor.core.errors import NotFound
from hypervisor.hive.branch import visible_branches
from hypervisor.hive.finding import MAX_SEARCHED, Known, Query
from hypervisor.hive.remember import finding_id
from hypervisor.hive.similarity import search_words
from hypervisor.hive.sql import search

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

MAX_RECALLED = 1_000
MAX_QUERY_LENGTH = 100_000


def recall(
    hv: Context,
    query: str = "",
    branch: str | None = None,
    *,
    topic: str = "",
    kind: str = "",
    task: str = "",
    limit: int = 10,
) -> tuple[Known, ...]:
    """Search findings, best match first, by branch with its ancestors, topic, kind or task.

    Without a branch, of all; without a query, the newest first.
    """
    validate.number("the limit", limit, 1, MAX_RECALLED)
    validate.text("the query", query, MAX_QUERY_LENGTH)
    words = tuple(search_words(query, MAX_SEARCHED))
    if query.strip() and not words:
        return ()
    wanted = Query(
        words,
        None if branch is None else visible_branches(hv.store, branch),
        validate.text("the topic", topic, validate.MAX_NAME_LENGTH),
        validate.text("the kind", kind, validate.MAX_NAME_LENGTH),
        hv.resolve(task) if task else "",
    )
    return tuple(hv.store.read(search.recall, wanted, limit))


def joined(hv: Context, finding: str) -> tuple[Known, ...]:
    """List a finding with all findings merged into it and their sources, oldest first."""
    known = hv.store.read(search.joined, finding_id(finding))
    if not known:
        raise NotFound(f"no such finding: {finding}. `hv recall` shows the ids.")
    return tuple(known)
