"""Searching the hive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core import validate
from hypervisor.core.errors import NotFound
from hypervisor.hive.branch import visible_branches
from hypervisor.hive.finding import MAX_SEARCHED, Known, Query, finding_id
from hypervisor.hive.review import must_review
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
    reader: str | None = None,
) -> tuple[Known, ...]:
    """Search findings, best match first, by branch with its ancestors, topic, kind or task.

    Without a branch, of all; without a query, the newest first. `reader` is the branch of an agent
    that reads them: it does not get unreviewed findings of other branches if `[hive] review` is on.
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
        reader if must_review(hv) else None,
    )
    return tuple(hv.store.read(search.recall, wanted, limit))


def joined(hv: Context, finding: str, reader: str | None = None) -> tuple[Known, ...]:
    """List a finding with all findings merged into it and their sources, oldest first.

    `reader` as in `recall`."""
    known = hv.store.read(search.joined, finding_id(finding), reader if must_review(hv) else None)
    if not known:
        raise NotFound(f"no such finding: {finding}. `hv recall` shows the ids.")
    return tuple(known)
