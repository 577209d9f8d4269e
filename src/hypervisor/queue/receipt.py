"""Receipts: evidence in a chain of hashes, one chain per batch.

A line's hash covers the whole line and the previous hash, so a changed, removed, inserted or
reordered line breaks the chain from there on; the stored head reveals a cut-off tail.
A task outside any batch has a chain of its own.
"""

from collections.abc import Iterable

from hypervisor.core.records import NamedTuple

GENESIS = ""


class Receipt(NamedTuple):
    chain: str
    number: int
    task: str
    attempt: int
    at: int
    actor: str
    text: str
    hash: str


class ChainHead(NamedTuple):
    chain: str
    number: int
    hash: str


class Entry(NamedTuple):
    """A receipt to write."""

    task: str
    attempt: int
    actor: str
    text: str


class ChainReport(NamedTuple):
    """The result of a verification; `problem` is None if every line is valid."""

    chain: str
    receipts: int
    head: str
    problem: str | None


def seal(head: ChainHead, entry: Entry, at: int) -> Receipt:
    """The next receipt of the chain that ends at `head`."""
    number = head.number + 1
    content = [head.chain, number, entry.task, entry.attempt, at, entry.actor, entry.text]
    return Receipt._make((*content, _hash(head.hash, content)))


def verify(head: ChainHead, receipts: Iterable[Receipt]) -> ChainReport:
    """Check a chain from its first line to the stored head."""
    number, last = 0, GENESIS
    for receipt in receipts:
        number += 1
        if receipt.number != number:
            return _broken(head, number, f"line {number} is missing")
        if receipt.hash != _hash_if_text(last, list(receipt[:7])):
            return _broken(head, number, f"line {number} was changed")
        last = receipt.hash
    if number != head.number:
        return _broken(head, number, f"{head.number} lines were written, {number} are left")
    if last != head.hash:
        return _broken(head, number, "the last line is not the one that was written last")
    return ChainReport(head.chain, number, last, None)


def _broken(head: ChainHead, number: int, problem: str) -> ChainReport:
    return ChainReport(head.chain, number, head.hash, problem)


def _hash_if_text(last: str, content: list[object]) -> str:
    """ "" for content with bytes in it, which no receipt of ours has."""
    try:
        return _hash(last, content)
    except TypeError:
        return ""


def _hash(last: str, content: list[object]) -> str:
    import json
    from hashlib import sha256

    return sha256((last + json.dumps(content, ensure_ascii=True)).encode()).hexdigest()
