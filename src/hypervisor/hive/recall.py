"""Finding what the hive knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypervisor.core import validate
from hypervisor.core.errors import NotFound
from hypervisor.hive.branch import visible_branches
from hypervisor.hive.finding import MOST_SEARCHED, Known, Query
from hypervisor.hive.remember import finding_id
from hypervisor.hive.similarity import search_words
from hypervisor.hive.sql import search

if TYPE_CHECKING:
    from hypervisor.queue.context import Context

MOST_RECALLED = 1_000
LONGEST_QUERY = 100_000


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
    """Find what is known, the best first: of a branch and its ancestors, a topic, kind or task.

    Without a branch, of all; without a query, the newest first.
    """
    validate.number("the limit", limit, 1, MOST_RECALLED)
    validate.text("the query", query, LONGEST_QUERY)
    words = tuple(search_words(query, MOST_SEARCHED))
    if query.strip() and not words:
        return ()
    wanted = Query(
        words,
        None if branch is None else visible_branches(hv.store, branch),
        validate.text("the topic", topic, validate.LONGEST_NAME),
        validate.text("the kind", kind, validate.LONGEST_NAME),
        hv.resolve(task) if task else "",
    )
    return tuple(hv.store.read(search.recall, wanted, limit))


def joined(hv: Context, finding: str) -> tuple[Known, ...]:
    """List a finding and all that joined it, with their sources, oldest first."""
    known = hv.store.read(search.joined, finding_id(finding))
    if not known:
        raise NotFound(f"there is no finding {finding}. `hv recall` shows their ids.")
    return tuple(known)
