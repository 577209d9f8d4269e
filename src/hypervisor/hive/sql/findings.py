"""Findings: keep one, join it to what says the same, note what may speak against it.

Only findings that stand for themselves are indexed, by their words, by those of all that joined
them, and by marks: of their branch, kind and topics, and of what they are about, by which like ones
are found.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from hypervisor.core import randomness
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.core.ids import decode, encode, new_numbers
from hypervisor.hive.branch import ancestors
from hypervisor.hive.finding import Finding, NewFinding, Remembered
from hypervisor.hive.similarity import (
    TextSignature,
    contradiction,
    digest_text,
    same,
    signature,
    words,
)
from hypervisor.hive.sql import branches, search
from hypervisor.hive.sql.index_words import branch_mark, indexed, kind_mark, topic_mark
from hypervisor.queue.lease import Token
from hypervisor.queue.sql import claims, event_log
from hypervisor.store.database import Session

MOST_COMPARED = 40
MOST_DOUBTS = 5
MOST_INDEXED = 10_000  # words of one finding; PostgreSQL keeps at most a megabyte of them
AGENT = "SELECT agent FROM workers WHERE id = ?"
TASK = """
SELECT t.batch, l.branch FROM tasks t JOIN lanes l ON l.id = t.lane WHERE t.id = ?
"""
ADD = """
INSERT INTO findings
    (id, branch, topic, kind, text, task, attempt, agent, actor, at, joins, source)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING RETURNING id
"""
COUNT = """
UPDATE findings SET
    times = (SELECT count(*) + 1 FROM findings f WHERE f.joins = ? AND f.joins <> ''),
    sources = (SELECT count(DISTINCT f.source) FROM findings f
        WHERE f.id = ? OR (f.joins = ? AND f.joins <> ''))
WHERE id = ?
"""
WORDINGS = """
SELECT topic, text FROM findings WHERE id = ? OR (joins = ? AND joins <> '')
GROUP BY topic, text ORDER BY min(id)
"""
DOUBT = "INSERT INTO doubts (finding, other, why) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
FORGET = "DELETE FROM findings WHERE id = ?"
FORGET_DOUBTS = "DELETE FROM doubts WHERE finding = ? OR other = ?"
STANDS_FOR_ITSELF = "UPDATE findings SET joins = '' WHERE id = ?"
FOLLOW = "UPDATE findings SET joins = ? WHERE joins = ? AND joins <> ''"
PASS_ON = [
    "UPDATE doubts SET finding = ? WHERE finding = ?",
    "UPDATE doubts SET other = ? WHERE other = ?",
]


class Prepared(NamedTuple):
    """A finding with all about its text that can be worked out before the store is locked."""

    new: NewFinding
    text: TextSignature
    signature: list[str]


class OfTask(NamedTuple):
    """A finding that belongs to a task, without a claim."""

    task: str
    actor: str


Source = Token | OfTask | str  # a claim, a task, or just the actor


class Origin(NamedTuple):
    branch: str
    batch: str = ""
    task: str = ""
    attempt: int = 0
    agent: str = ""
    actor: str = ""


def prepare(new: NewFinding) -> Prepared:
    text = digest_text(new.text)
    return Prepared(new, text, [f"s:{mark}" for mark in signature(text)])


def remember(session: Session, prepared: Prepared, source: Source, now: int) -> Remembered:
    session.lock("hive")
    origin = _origin(session, prepared.new.branch, source)
    branches.add_if_new(session, origin.branch, now)
    similar = _similar(session, prepared, origin.branch)
    first = next((f for f, text in similar if _joins(prepared, origin, f, text)), None)
    made = _add(session, prepared.new, origin, first.id if first else "", now)
    if first:
        _recount(session, first, made)
    else:
        _index(session, made, prepared.signature, [(made.topic, made.text)])
        _doubt(session, made, prepared, similar)
    data = {"id": made.id, "branch": made.branch, "kind": made.kind, "topic": made.topic}
    if first:
        data["joins"] = first.id
    attempt = made.attempt or None
    dumped = event_log.dump(data)
    line = event_log.Line("remember", made.task, origin.batch, attempt, None, made.actor, dumped)
    event_log.write(session, now, [line])
    known = search.known(session, [first.id if first else made.id])[0]
    return Remembered(made.id, first is not None, known)


def forget(session: Session, id: str, actor: str, now: int) -> str:
    """Take a finding out. What joined it is known still: the oldest of them stands for the rest."""
    session.lock("hive")
    known = search.joined(session, id)
    mine = next((each.finding for each in known if each.finding.id == id), None)
    if mine is None:
        raise NotFound(f"there is no finding {id}. `hv recall` shows their ids.")
    others = [each.finding for each in known if each.finding.id != id]
    session.run(FORGET, (id,))
    session.unindex_words(decode(id))
    if mine.joins:
        _recount(session, next(each for each in others if not each.joins), mine)
    elif others:
        _succeed(session, id, others[0])
    else:
        session.run(FORGET_DOUBTS, (id, id))
    data = {"id": id, "branch": mine.branch}
    event_log.note(session, "forget", data, actor, now, task=mine.task)
    return id


def _succeed(session: Session, gone: str, heir: Finding) -> None:
    session.run(STANDS_FOR_ITSELF, (heir.id,))
    session.run(FOLLOW, (heir.id, gone))
    session.run(COUNT, (heir.id,) * 4)
    for statement in PASS_ON:
        session.run(statement, (heir.id, gone))
    _reindex(session, heir)


def _origin(session: Session, branch: str, source: Source) -> Origin:
    """Where a finding comes from. A stale claim has no say, as everywhere."""
    if isinstance(source, Token):
        worker, batch = claims.held(session, source)
        [(_, own_branch)] = session.rows(TASK, (source.task,))
        agent = next((row[0] for row in session.rows(AGENT, (worker,))), "")
        origin = Origin(own_branch, batch, source.task, source.attempt, agent, worker)
    elif isinstance(source, OfTask):
        [(batch, own_branch)] = session.rows(TASK, (source.task,))
        origin = Origin(own_branch, batch, source.task, actor=source.actor)
    else:
        return Origin(branch, actor=source)
    if branch and branch != origin.branch:
        raise InvalidInput(
            f"the task is of {origin.branch or 'no branch'}, so its findings are not of {branch}. "
            "Nothing was kept; leave the branch out."
        )
    return origin


def _similar(
    session: Session, prepared: Prepared, branch: str
) -> list[tuple[Finding, TextSignature]]:
    """The newest findings, here and above, that may be about the same."""
    visible = [branch_mark(name) for name in ancestors(branch, branches.parents(session))]
    numbers = session.matching([visible, prepared.signature], MOST_COMPARED)
    found = search.findings(session, [encode(number) for number in numbers])
    return [(finding, digest_text(finding.text)) for finding in found]


def _joins(prepared: Prepared, origin: Origin, other: Finding, text: TextSignature) -> bool:
    new = prepared.new
    comparable = other.branch == origin.branch and other.kind == new.kind
    return comparable and (other.text == new.text or same(prepared.text, text))


def _add(session: Session, new: NewFinding, origin: Origin, joins: str, now: int) -> Finding:
    while True:
        id = encode(new_numbers(1, now, randomness.entropy())[0])
        source = (origin.task, origin.attempt, origin.agent, origin.actor)
        made = Finding(id, origin.branch, new.topic, new.kind, new.text, *source, now, joins)
        if session.rows(ADD, (*made, made.source)):
            return made


def _recount(session: Session, first: Finding, other: Finding) -> None:
    """Another one joined it or was forgotten: count it, and let the first be found by the words
    and topics of all wordings that there are now."""
    session.run(COUNT, (first.id,) * 4)
    if other.topic != first.topic or not set(words(other.text)) <= set(words(first.text)):
        _reindex(session, first)


def _reindex(session: Session, first: Finding) -> None:
    signature = prepare(NewFinding(first.text)).signature
    _index(session, first, signature, session.rows(WORDINGS, (first.id, first.id)))


def _index(
    session: Session, made: Finding, signature: Sequence[str], wordings: Sequence[Sequence[str]]
) -> None:
    topics = dict.fromkeys(topic for topic, _ in wordings)
    marks = [branch_mark(made.branch), kind_mark(made.kind), *map(topic_mark, topics), *signature]
    texts = chain(topics, (text for _, text in wordings))
    about = (indexed(word) for text in texts for word in words(text))
    unique: dict[str, None] = {}
    for word in chain(marks, about):
        unique[word] = None
        if len(unique) >= MOST_INDEXED:
            break
    session.index_words(decode(made.id), list(unique))


def _doubt(
    session: Session,
    made: Finding,
    prepared: Prepared,
    similar: list[tuple[Finding, TextSignature]],
) -> None:
    pairs = [(other.id, contradiction(prepared.text, text)) for other, text in similar]
    for other_id, why in [pair for pair in pairs if pair[1]][:MOST_DOUBTS]:
        session.run_many(DOUBT, [(made.id, other_id, why), (other_id, made.id, why)])
