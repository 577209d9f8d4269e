"""Searching the hive, best first, and reports of branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AnySet
from typing import Any

from hypervisor.core.ids import decode, encode
from hypervisor.hive.branch import Branch
from hypervisor.hive.branch_report import BranchReport
from hypervisor.hive.finding import (
    RARE,
    Doubt,
    Finding,
    Known,
    Query,
    other_wordings,
    rank,
    shortlist,
    weight,
)
from hypervisor.hive.similarity import words
from hypervisor.hive.sql.index_words import (
    TRUSTED,
    branch_mark,
    indexed,
    kind_mark,
    topic_mark,
)
from hypervisor.store.database import Session, marks, pad, slices

COLUMNS = (
    "id, branch, topic, kind, text, task, attempt, agent, actor, at, joins, trust, times, sources"
)
BY_ID = f"SELECT {COLUMNS} FROM findings WHERE id IN ({{}}) ORDER BY id DESC"
NEWEST = f"SELECT {COLUMNS} FROM findings WHERE joins = '' ORDER BY id DESC LIMIT ?"
JOINED = f"""
SELECT {COLUMNS} FROM findings WHERE id = ? OR (joins = ? AND joins <> '') ORDER BY id
"""
TRUSTED_WORDINGS = f"""
SELECT {COLUMNS} FROM findings
WHERE joins IN ({{}}) AND joins <> '' AND trust <> 'agent' ORDER BY id
"""
FIRST_OF = "SELECT CASE WHEN joins = '' THEN id ELSE joins END FROM findings WHERE id = ?"
OF_TASK = """
SELECT DISTINCT CASE WHEN joins = '' THEN id ELSE joins END FROM findings
WHERE task = ? AND task <> ''
"""
WORDINGS = """
SELECT joins, topic, text FROM findings WHERE joins IN ({}) AND joins <> ''
GROUP BY joins, topic, text ORDER BY min(id)
"""
DOUBTS = """
SELECT d.finding, d.other, d.why, f.text, f.branch, f.trust
FROM doubts d JOIN findings f ON f.id = d.other WHERE d.finding IN ({}) ORDER BY 1, 2
"""
COUNTS = """
SELECT branch, count(DISTINCT source), count(*),
    sum(CASE WHEN joins = '' THEN 1 ELSE 0 END),
    sum(CASE WHEN joins = '' AND sources > 1 THEN 1 ELSE 0 END)
FROM findings WHERE branch IN ({}) GROUP BY branch
"""
DOUBTFUL = """
SELECT f.branch, count(DISTINCT d.finding) FROM doubts d JOIN findings f ON f.id = d.finding
WHERE f.branch IN ({}) GROUP BY f.branch
"""
TOPICS = """
SELECT branch, topic, count(*) FROM findings
WHERE branch IN ({}) AND joins = '' AND (? = 0 OR branch = ? OR trust <> 'agent')
GROUP BY branch, topic ORDER BY branch, 3 DESC, topic
"""
BEST = f"""
SELECT {COLUMNS} FROM findings WHERE branch = ? AND joins = '' AND (? = 0 OR trust <> 'agent')
ORDER BY sources DESC, id DESC LIMIT ?
"""
MAX_TOPICS = 12
FIELDS = len(Finding._fields)
ByWord = Mapping[str, AnySet[int]]  # the numbers of the findings that have a word


def findings(session: Session, ids: Sequence[str]) -> list[Finding]:
    """Findings by id, newest first."""
    return [Finding._make(row[:FIELDS]) for row in _rows(session, ids)]


def known(session: Session, ids: Sequence[str], reader: str | None = None) -> list[Known]:
    """Findings with their doubts, except those that the reader may not see."""
    return _with_wordings(session, _known(session, _rows(session, ids), None, reader), reader)


def joined(session: Session, id: str, reader: str | None = None) -> list[Known]:
    """This finding and all that say the same, oldest first."""
    first = session.rows(FIRST_OF, (id,))
    rows = session.rows(JOINED, (first[0][0], first[0][0])) if first else []
    known = _known(session, rows, None, reader)
    return [entry for entry in known if entry.finding.visible_to(reader)]


def recall(session: Session, wanted: Query, limit: int) -> list[Known]:
    """Search: with words, the best first; otherwise, the newest first."""
    weights: dict[str, float] = {}
    by_word: ByWord = {}
    if wanted.task:
        rows, by_word = _of_task(session, wanted)
        weights = dict.fromkeys(wanted.words, 1.0)
    elif wanted.words:
        rows, by_word = _searched(session, wanted, limit)
        weights = {word: weight(len(matches)) for word, matches in by_word.items() if matches}
    elif filters := _filters(wanted):
        rows = _numbered(session, session.matching(filters, limit))
    else:
        rows = session.rows(NEWEST, (limit,))
    matches = _known(session, rows, wanted.branches, wanted.reader)
    if wanted.reader is not None:
        matches = _reviewed(session, matches, wanted.reader)
    best = rank(matches, weights, wanted.branches, by_word) if weights else matches
    return _with_wordings(session, best[:limit], wanted.reader)


def reports(
    session: Session, branches: Sequence[Branch], limit: int, reader: str | None = None
) -> list[BranchReport]:
    """A report of each of these branches, with its `limit` best findings."""
    hide = int(reader is not None)
    by_name = {branch.name: BranchReport(branch) for branch in branches}
    for part in slices(list(by_name)):
        places, names = marks(len(part)), pad(part)
        for name, agents, total, distinct, shared in session.rows(COUNTS.format(places), names):
            branch = by_name[name].branch
            by_name[name] = BranchReport(branch, agents, total, int(distinct), int(shared))
        for name, doubtful in session.rows(DOUBTFUL.format(places), names):
            by_name[name] = by_name[name]._replace(doubtful=doubtful)
        topics: dict[str, dict[str, int]] = {}
        for name, topic, count in session.rows(
            TOPICS.format(places), (*names, hide, reader or "")
        ):  # most frequent first
            own = topics.setdefault(name, {})
            if topic and len(own) < MAX_TOPICS:
                own[topic] = count
        for name, own in topics.items():
            by_name[name] = by_name[name]._replace(topics=own)
    for name, report in by_name.items():
        if report.findings:
            others = int(hide and name != reader)
            best = _known(session, session.rows(BEST, (name, others, limit)), None, reader)
            by_name[name] = report._replace(known=tuple(_with_wordings(session, best, reader)))
    return list(by_name.values())


def _searched(session: Session, wanted: Query, limit: int) -> tuple[list[Any], ByWord]:
    """Considers all findings with a rare word, and the newest with a common one."""
    most = max(RARE, limit)
    filters = _filters(wanted)
    by_word = {
        word: frozenset(session.matching([*filters, [indexed(word)]], most))
        for word in wanted.words
    }
    every: list[int] = []
    if len(by_word) > 1 and all(by_word.values()):
        together = [*filters, *([indexed(word)] for word in wanted.words)]
        every = session.matching(together, most)
    return _numbered(session, shortlist(by_word, every, limit)), by_word


def _of_task(session: Session, wanted: Query) -> tuple[list[Any], ByWord]:
    """The task's findings, or the first ones that they joined, by any wording and topic."""
    rows = [
        row
        for row in _rows(session, [row[0] for row in session.rows(OF_TASK, (wanted.task,))])
        if (wanted.branches is None or row[1] in wanted.branches)
        and (not wanted.kind or row[3] == wanted.kind)
    ]
    if not (wanted.topic or wanted.words):
        return rows, {}
    joined = _wordings(session, [row[0] for row in rows])
    topic, kept = wanted.topic.casefold(), []
    by_word: dict[str, set[int]] = {word: set() for word in wanted.words}
    for row in rows:
        wordings = [(row[2], row[4]), *joined.get(row[0], ())]
        matched = {word for wording in wordings for word in words(" ".join(wording))}
        matched &= by_word.keys()
        of_topic = not topic or topic in (name.casefold() for name, _ in wordings)
        if of_topic and (matched or not by_word):
            kept.append(row)
        for word in matched:
            by_word[word].add(decode(row[0]))
    return kept, by_word


def _filters(wanted: Query) -> list[list[str]]:
    groups = []
    if wanted.branches is not None:
        groups.append([branch_mark(name) for name in wanted.branches])
    if wanted.reader is not None:
        groups.append([branch_mark(wanted.reader), TRUSTED])
    if wanted.topic:
        groups.append([topic_mark(wanted.topic)])
    if wanted.kind:
        groups.append([kind_mark(wanted.kind)])
    return groups


def _numbered(session: Session, numbers: Sequence[int]) -> list[Any]:
    return _rows(session, [encode(number) for number in numbers])


def _rows(session: Session, ids: Sequence[str]) -> list[Any]:
    """Rows by id, newest first, however many."""
    return [
        row
        for part in slices(sorted(ids, reverse=True))
        for row in session.rows(BY_ID.format(marks(len(part))), pad(part))
    ]


def _wordings(session: Session, ids: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """The topics and texts of all findings that joined these, each once, oldest first."""
    wordings: dict[str, list[tuple[str, str]]] = {}
    for part in slices(ids):
        for first, topic, text in session.rows(WORDINGS.format(marks(len(part))), pad(part)):
            wordings.setdefault(first, []).append((topic, text))
    return wordings


def _reviewed(session: Session, known: Sequence[Known], reader: str) -> list[Known]:
    """What an agent of the branch `reader` sees: a finding of another branch by its oldest reviewed
    wording, if it has one."""
    hidden = [item.finding.id for item in known if not item.finding.visible_to(reader)]
    trusted = _trusted_wordings(session, hidden)
    shown = []
    for item in known:
        if item.finding.visible_to(reader):
            shown.append(item)
        elif wordings := trusted.get(item.finding.id):
            shown.append(item._replace(finding=wordings[0]))
    return shown


def _trusted_wordings(session: Session, ids: Sequence[str]) -> dict[str, list[Finding]]:
    """The reviewed findings that joined these, oldest first."""
    wordings: dict[str, list[Finding]] = {}
    for part in slices(ids):
        for row in session.rows(TRUSTED_WORDINGS.format(marks(len(part))), pad(part)):
            finding = Finding._make(row[:FIELDS])
            wordings.setdefault(finding.joins, []).append(finding)
    return wordings


def _with_wordings(
    session: Session, known: Sequence[Known], reader: str | None = None
) -> list[Known]:
    """Adds other wordings that have significant words of their own."""
    many = [item.finding for item in known if item.times > 1]
    own = [finding for finding in many if reader is None or finding.branch == reader]
    joined = {
        first: [text for _, text in wordings]
        for first, wordings in _wordings(session, [finding.id for finding in own]).items()
    }
    others = [finding.joins or finding.id for finding in many if finding not in own]
    for first, trusted in _trusted_wordings(session, others).items():
        joined[first] = [finding.text for finding in trusted]
    result = []
    for item in known:
        texts = joined.get(item.finding.joins or item.finding.id)
        result.append(
            item._replace(also=other_wordings(item.finding.text, texts)) if texts else item
        )
    return result


def _known(
    session: Session, rows: Sequence[Any], within: Sequence[str] | None, reader: str | None = None
) -> list[Known]:
    doubts: dict[str, list[Doubt]] = {}
    for part in slices([row[0] for row in rows]):
        for id, other, why, text, branch, trust in session.rows(
            DOUBTS.format(marks(len(part))), pad(part)
        ):
            readable = reader is None or branch == reader or trust != "agent"
            if readable and (within is None or branch in within):
                doubts.setdefault(id, []).append(Doubt(other, text, why))
    return [
        Known(Finding._make(row[:FIELDS]), row[-2], row[-1], tuple(doubts.get(row[0], ())))
        for row in rows
    ]
