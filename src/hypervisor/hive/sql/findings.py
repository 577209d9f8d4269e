"""Findings: store one, join it to an earlier one that says the same, note contradictions.

Only first findings are indexed: by their own words and those of all that joined them, and by marks:
of their branch, kind and topics, and of their signature, which finds similar ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from hypervisor.core import randomness
from hypervisor.core.errors import InvalidInput, NotFound
from hypervisor.core.ids import decode, encode, new_numbers
from hypervisor.core.records import NamedTuple
from hypervisor.hive.branch import ancestors
from hypervisor.hive.finding import Finding, NewFinding, Remembered, Trust
from hypervisor.hive.similarity import (
    TextSignature,
    contradiction,
    digest_text,
    same,
    signature,
    words,
)
from hypervisor.hive.sql import branches, search
from hypervisor.hive.sql.index_words import (
    TRUSTED,
    branch_mark,
    indexed,
    kind_mark,
    topic_mark,
)
from hypervisor.queue.lease import Token
from hypervisor.queue.sql import claims, event_log
from hypervisor.store.database import Session

MAX_COMPARED = 40
MAX_DOUBTS = 5
MAX_INDEXED = 10_000  # words of one finding; PostgreSQL keeps at most a megabyte of them
AGENT = "SELECT agent FROM workers WHERE id = ?"
TASK = """
SELECT t.batch, l.branch FROM tasks t JOIN lanes l ON l.id = t.lane WHERE t.id = ?
"""
ADD = """
INSERT INTO findings
    (id, branch, topic, kind, text, task, attempt, agent, actor, at, joins, trust, source)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
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
ANY_TRUSTED = """
SELECT 1 FROM findings WHERE (id = ? OR (joins = ? AND joins <> '')) AND trust <> 'agent' LIMIT 1
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
    """A finding with everything that can be computed before the store is locked."""

    new: NewFinding
    text: TextSignature
    signature: list[str]


class OfTask(NamedTuple):
    """A finding that belongs to a task, without a claim."""

    task: str
    actor: str


class OfActor(NamedTuple):
    """A finding without a task, by a person or an agent."""

    actor: str
    trust: Trust = "person"


Source = Token | OfTask | OfActor


class Origin(NamedTuple):
    branch: str
    batch: str = ""
    task: str = ""
    attempt: int = 0
    agent: str = ""
    actor: str = ""
    trust: Trust = "agent"


def prepare(new: NewFinding) -> Prepared:
    text = digest_text(new.text)
    return Prepared(new, text, [f"s:{mark}" for mark in signature(text)])


def remember(
    session: Session, prepared: Prepared, source: Source, now: int, *, review: bool = False
) -> Remembered:
    """Store a finding. With `review`, the answer leaves out what its author may not read."""
    session.lock("hive")
    origin = _origin(session, prepared.new.branch, source)
    branches.add_if_new(session, origin.branch, now)
    similar = _similar(session, prepared, origin.branch)
    first = next((f for f, text in similar if _joins(prepared, origin, f, text)), None)
    finding = _add(session, prepared.new, origin, first.id if first else "", now)
    if first:
        _recount(session, first, finding)
    else:
        _index(session, finding, prepared.signature, [(finding.topic, finding.text)])
        _doubt(session, finding, prepared, similar)
    data = {name: getattr(finding, name) for name in ("id", "branch", "kind", "topic")}
    if first:
        data["joins"] = first.id
    attempt, text = finding.attempt or None, event_log.dump(data)
    line = event_log.Line(
        "remember", finding.task, origin.batch, attempt, None, finding.actor, text
    )
    event_log.write(session, now, [line])
    reader = origin.branch if review and origin.trust == "agent" else None
    known = search.known(session, [first.id if first else finding.id], reader)[0]
    return Remembered(finding.id, first is not None, known)


def forget(session: Session, id: str, actor: str, now: int) -> str:
    """Remove a finding. Those that joined it stay: the oldest of them takes its place."""
    session.lock("hive")
    known = search.joined(session, id)
    finding = next((entry.finding for entry in known if entry.finding.id == id), None)
    if finding is None:
        raise NotFound(f"no such finding: {id}. `hv recall` shows the ids.")
    others = [entry.finding for entry in known if entry.finding.id != id]
    session.run(FORGET, (id,))
    session.unindex_words(decode(id))
    if finding.joins:
        _recount(session, next(entry for entry in others if not entry.joins), finding)
    elif others:
        _replace_first(session, id, others[0])
    else:
        session.run(FORGET_DOUBTS, (id, id))
    data = {"id": id, "branch": finding.branch}
    event_log.note(session, "forget", data, actor, now, task=finding.task)
    return id


def _replace_first(session: Session, old_id: str, successor: Finding) -> None:
    session.run(STANDS_FOR_ITSELF, (successor.id,))
    session.run(FOLLOW, (successor.id, old_id))
    session.run(COUNT, (successor.id,) * 4)
    for statement in PASS_ON:
        session.run(statement, (successor.id, old_id))
    reindex(session, successor)


def _origin(session: Session, branch: str, source: Source) -> Origin:
    """Where a finding comes from. A stale claim is refused."""
    if isinstance(source, Token):
        worker, batch = claims.lock_claim(session, source)
        [(_, own_branch)] = session.rows(TASK, (source.task,))
        agent = next((row[0] for row in session.rows(AGENT, (worker,))), "")
        origin = Origin(own_branch, batch, source.task, source.attempt, agent, worker)
    elif isinstance(source, OfTask):
        [(batch, own_branch)] = session.rows(TASK, (source.task,))
        origin = Origin(own_branch, batch, source.task, actor=source.actor)
    else:
        return Origin(branch, actor=source.actor, trust=source.trust)
    if branch and branch != origin.branch:
        raise InvalidInput(
            f"the task belongs to {origin.branch or 'no branch'}, so its findings cannot go to "
            f"{branch}. Nothing was saved; leave out the branch."
        )
    return origin


def _similar(
    session: Session, prepared: Prepared, branch: str
) -> list[tuple[Finding, TextSignature]]:
    """The newest findings, here and above, that may be about the same subject."""
    visible = [branch_mark(name) for name in ancestors(branch, branches.parents(session))]
    numbers = session.matching([visible, prepared.signature], MAX_COMPARED)
    findings = search.findings(session, [encode(number) for number in numbers])
    return [(finding, digest_text(finding.text)) for finding in findings]


def _joins(prepared: Prepared, origin: Origin, other: Finding, text: TextSignature) -> bool:
    new = prepared.new
    comparable = other.branch == origin.branch and other.kind == new.kind
    return comparable and (other.text == new.text or same(prepared.text, text))


def _add(session: Session, new: NewFinding, origin: Origin, joins: str, now: int) -> Finding:
    while True:
        id = encode(new_numbers(1, now, randomness.entropy())[0])
        source = (origin.task, origin.attempt, origin.agent, origin.actor)
        finding = Finding(
            id, origin.branch, new.topic, new.kind, new.text, *source, now, joins, origin.trust
        )
        if session.rows(ADD, (*finding, finding.source)):
            return finding


def _recount(session: Session, first: Finding, other: Finding) -> None:
    """Another one joined the first or was removed: count it, and index the first by the words and
    topics of all current wordings, and whether one is trusted."""
    session.run(COUNT, (first.id,) * 4)
    if (
        other.trust != "agent"
        or other.topic != first.topic
        or not set(words(other.text)) <= set(words(first.text))
    ):
        reindex(session, first)


def reindex(session: Session, first: Finding) -> None:
    signature = prepare(NewFinding(first.text)).signature
    _index(session, first, signature, session.rows(WORDINGS, (first.id, first.id)))


def _index(
    session: Session, finding: Finding, signature: Sequence[str], wordings: Sequence[Sequence[str]]
) -> None:
    topics = dict.fromkeys(topic for topic, _ in wordings)
    marks = [branch_mark(finding.branch), kind_mark(finding.kind), *map(topic_mark, topics)]
    if session.rows(ANY_TRUSTED, (finding.id, finding.id)):
        marks.append(TRUSTED)
    texts = chain(topics, (text for _, text in wordings))
    about = (indexed(word) for text in texts for word in words(text))
    unique: dict[str, None] = {}
    for word in chain(marks, signature, about):
        unique[word] = None
        if len(unique) >= MAX_INDEXED:
            break
    session.index_words(decode(finding.id), list(unique))


def _doubt(
    session: Session,
    finding: Finding,
    prepared: Prepared,
    similar: list[tuple[Finding, TextSignature]],
) -> None:
    pairs = [(other.id, contradiction(prepared.text, text)) for other, text in similar]
    for other_id, why in [pair for pair in pairs if pair[1]][:MAX_DOUBTS]:
        session.run_many(DOUBT, [(finding.id, other_id, why), (other_id, finding.id, why)])
