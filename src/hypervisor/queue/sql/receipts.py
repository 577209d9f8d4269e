"""Receipts: append to a chain, read it, verify it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypervisor.queue.lease import Token
from hypervisor.queue.receipt import GENESIS, ChainHead, ChainReport, Entry, Receipt, seal, verify
from hypervisor.queue.sql import claims, event_log
from hypervisor.store.database import Session, marks, pad, slices

HEAD = "SELECT chain, number, hash FROM receipt_chains WHERE chain = ?"
HEADS = """
SELECT chain, number, hash FROM receipt_chains
UNION SELECT DISTINCT r.chain, 0, '' FROM receipts r
WHERE NOT EXISTS (SELECT 1 FROM receipt_chains c WHERE c.chain = r.chain)
ORDER BY chain
"""
START = "INSERT INTO receipt_chains (chain, number, hash) VALUES (?, 0, '') ON CONFLICT DO NOTHING"
ADVANCE = "UPDATE receipt_chains SET number = ?, hash = ? WHERE chain = ?"
PAGE = """
SELECT chain, number, task, attempt, at, actor, text, hash FROM receipts
WHERE chain = ? AND number > ? ORDER BY number LIMIT 1000
"""
OF_TASK = """
SELECT chain, number, task, attempt, at, actor, text, hash FROM receipts
WHERE task = ? ORDER BY number
"""
OF_TASKS = """
SELECT chain, number, task, attempt, at, actor, text, hash FROM receipts
WHERE task IN ({}) ORDER BY task, number
"""
BATCH = "SELECT batch FROM tasks WHERE id = ?"
DELETED = """
SELECT 1 FROM receipt_chains c WHERE c.chain = ?
    AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = c.chain)
"""


def append_under_claim(session: Session, token: Token, texts: list[str], now: int) -> list[Receipt]:
    worker, batch = claims.lock_claim(session, token)
    entries = [Entry(token.task, token.attempt, worker, text) for text in texts]
    return append_entries(session, batch or token.task, entries, now)


def append(session: Session, task: str, actor: str, texts: list[str], now: int) -> list[Receipt]:
    batch = session.rows(BATCH, (task,))[0][0]
    entries = [Entry(task, 0, actor, text) for text in texts]
    return append_entries(session, batch or task, entries, now)


def append_of_attempt(
    session: Session, claim: tuple[str, int], actor: str, texts: list[str], now: int
) -> list[Receipt]:
    """Evidence about an attempt, from its worker; the task may be settled by now."""
    task, attempt = claim
    batch = session.rows(BATCH, (task,))[0][0]
    entries = [Entry(task, attempt, actor, text) for text in texts]
    return append_entries(session, batch or task, entries, now)


def append_to_batch(
    session: Session, batch: str, actor: str, texts: list[str], now: int
) -> list[Receipt]:
    """Evidence that concerns no single task, such as a person's decision on a chunk."""
    return append_entries(session, batch, [Entry("", 0, actor, text) for text in texts], now)


def of_task(session: Session, task: str) -> list[Receipt]:
    return [Receipt(*row) for row in session.rows(OF_TASK, (task,))]


def of_tasks(session: Session, tasks: Sequence[str]) -> dict[str, list[Receipt]]:
    by_task: dict[str, list[Receipt]] = {task: [] for task in tasks}
    for part in slices(tasks):
        for row in session.rows(OF_TASKS.format(marks(len(part))), pad(part)):
            by_task[row[2]].append(Receipt(*row))
    return by_task


def of_chain(session: Session, chain: str) -> Iterator[Receipt]:
    last = -(2**62)  # a line inserted before the first one must be found, too
    while page := session.rows(PAGE, (chain, last)):
        for row in page:
            yield Receipt(*row)
        last = page[-1][1]


def chain_receipts(session: Session, chain: str) -> list[Receipt]:
    return list(of_chain(session, chain))


def is_deleted_batch(session: Session, chain: str) -> bool:
    """Whether there are receipts of a batch with this id, which is known not to exist any more."""
    return bool(session.rows(DELETED, (chain,)))


def check(session: Session, chain: str | None) -> list[ChainReport]:
    """Verify one chain, or all. A missing head is reported, too."""
    if chain is None:
        heads = [ChainHead(*row) for row in session.rows(HEADS)]
    else:
        heads = [ChainHead(*row) for row in session.rows(HEAD, (chain,))]
        heads = heads or [ChainHead(chain, 0, GENESIS)]
    return [_verify(session, head) for head in heads]


def _verify(session: Session, head: ChainHead) -> ChainReport:
    try:
        return verify(head, of_chain(session, head.chain))
    except UnicodeDecodeError:
        return ChainReport(head.chain, 0, head.hash, "a line was changed and is no longer text")


def append_entries(
    session: Session, chain: str, entries: Sequence[Entry], now: int
) -> list[Receipt]:
    """Append to a chain, with one event for the lines of each attempt."""
    if not entries:
        return []
    session.run(START, (chain,))
    head = ChainHead(*session.rows(HEAD + session.for_update, (chain,))[0])
    sealed: list[Receipt] = []
    for entry in entries:
        receipt = seal(head, entry, now)
        head = ChainHead(chain, receipt.number, receipt.hash)
        sealed.append(receipt)
    session.insert("receipts", sealed)
    session.run(ADVANCE, (head.number, head.hash, chain))
    event_log.write(session, now, [_line(*span) for span in _by_attempt(sealed)])
    return sealed


def _by_attempt(sealed: list[Receipt]) -> Iterator[tuple[Receipt, Receipt]]:
    """The first and last of each series of lines for the same attempt."""
    first = last = sealed[0]
    for receipt in sealed[1:]:
        if (receipt.task, receipt.attempt, receipt.actor) != (
            first.task,
            first.attempt,
            first.actor,
        ):
            yield first, last
            first = receipt
        last = receipt
    yield first, last


def _line(first: Receipt, last: Receipt) -> event_log.Line:
    batch = "" if first.chain == first.task else first.chain
    data = event_log.dump({"lines": [first.number, last.number]})
    return event_log.Line(
        "receipt", first.task, batch, first.attempt or None, None, first.actor, data
    )
