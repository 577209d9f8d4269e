"""What git keeps in the ledger: workspaces, merge lanes with their holders, entries, verdicts.

A lane belongs to one host, and is held by one merger at a time. Taking it raises its fence, and
every change that a merger makes names the fence: one that was overtaken changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypervisor.core.records import NamedTuple
from hypervisor.git.verify import Verdict
from hypervisor.queue.sql import merging
from hypervisor.queue.task import Json
from hypervisor.store.database import Database, Row, Session

SAVE_WORKSPACE = """
INSERT INTO workspaces (task, attempt, host, repository, folder, opened_at, closed)
VALUES (?, ?, ?, ?, ?, ?, 0)
ON CONFLICT (task) DO UPDATE SET attempt = excluded.attempt, host = excluded.host,
    repository = excluded.repository, folder = excluded.folder, opened_at = excluded.opened_at,
    closed = 0
WHERE workspaces.attempt <= excluded.attempt
RETURNING attempt
"""
WORKSPACE = "SELECT task, attempt, host, repository, folder, closed FROM workspaces WHERE task = ?"
CLOSE_WORKSPACE = "UPDATE workspaces SET closed = 1 WHERE task = ? AND attempt = ?"
FORGET_WORKSPACE = "DELETE FROM workspaces WHERE task = ? AND attempt = ?"
OPEN_WORKSPACES = """
SELECT task, attempt, host, repository, folder, closed FROM workspaces
WHERE host = ? AND closed = 0 ORDER BY task
"""
HOLDER = """
SELECT w.pid, w.pid_start, w.boot FROM attempts a JOIN workers w ON w.id = a.worker
WHERE a.task = ? AND a.number = ?
"""
ADD_LANE = """
INSERT INTO merge_lanes (id, repository, host, mode, target, fence, until, paused, retry_at)
VALUES (?, ?, ?, ?, ?, 0, 0, '', 0) ON CONFLICT (id) DO NOTHING
"""
TAKE_LANE = """
UPDATE merge_lanes SET holder = ?, fence = fence + 1
WHERE id = ? AND host = ? AND retry_at <= ? RETURNING fence
"""
FENCE = "SELECT fence FROM merge_lanes WHERE id = ?"
SET_TIP = "UPDATE merge_entries SET tip = ? WHERE task = ? AND attempt = ?"
SHOW_DOING = "UPDATE merge_lanes SET doing = ? WHERE id = ? AND fence = ?"
PAUSE_LANE = """
UPDATE merge_lanes SET paused = ?, retry_at = ? WHERE id = ? AND fence = ? AND paused <> ?
RETURNING fence
"""
POSTPONE_LANE = "UPDATE merge_lanes SET retry_at = ? WHERE id = ? AND fence = ?"
RESUME_LANE = "UPDATE merge_lanes SET paused = '', retry_at = 0 WHERE id = ? AND fence = ?"
LANES = """
SELECT id, repository, host, mode, target, paused, retry_at, doing FROM merge_lanes ORDER BY id
"""
ANY_HERE = """
SELECT 1 FROM submissions s LEFT JOIN workspaces w ON w.task = s.task
LEFT JOIN merge_entries e ON e.task = s.task AND e.attempt = s.attempt AND e.state = 'queued'
LEFT JOIN merge_lanes l ON l.id = e.lane
WHERE l.host = ? OR (l.host IS NULL AND (w.host = ? OR w.host IS NULL)) LIMIT 1
"""
STRANDED = """
SELECT DISTINCT s.batch FROM submissions s JOIN workspaces w ON w.task = s.task
LEFT JOIN merge_entries e ON e.task = s.task AND e.attempt = s.attempt AND e.state = 'queued'
WHERE e.task IS NULL AND w.host <> ? AND NOT EXISTS (
    SELECT 1 FROM hosts h WHERE h.name = w.host AND h.state = 'up' AND h.lease_until > ?)
"""
ADD_ENTRY = """
INSERT INTO merge_entries (task, attempt, batch, lane, head, base, state, round, at, landed, reason)
VALUES (?, ?, ?, ?, ?, ?, 'queued',
    (SELECT count(*) FROM merge_entries e WHERE e.task = ? AND e.state = 'returned'), ?, '', '')
ON CONFLICT (task, attempt) DO UPDATE SET state = 'queued', lane = excluded.lane,
    head = excluded.head, base = excluded.base, at = excluded.at, landed = '', tip = ''
"""
ENTRIES = """
SELECT e.task, e.attempt, e.batch, e.lane, e.head, e.base, e.state, e.round, e.landed, e.reason,
    e.tip
FROM merge_entries e
"""
QUEUED = f"""{ENTRIES} JOIN submissions s ON s.task = e.task AND s.attempt = e.attempt
WHERE e.state = 'queued' ORDER BY e.lane, e.at, e.task"""
LAST_ENTRY = f"{ENTRIES} WHERE e.task = ? AND e.attempt < ? ORDER BY e.attempt DESC LIMIT 1"
ENTRY = f"{ENTRIES} WHERE e.task = ? AND e.attempt = ?"
END_ENTRY = """
UPDATE merge_entries SET state = ?, landed = ?, reason = ?, tip = ? WHERE task = ? AND attempt = ?
"""
VERDICT = """
SELECT passed, exit_code, output_path, milliseconds, command, reason, runs FROM verdicts
WHERE tree = ? AND digest = ?
"""
SAVE_VERDICT = """
INSERT INTO verdicts
    (tree, digest, passed, exit_code, output_path, milliseconds, command, reason, runs)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tree, digest) DO UPDATE SET passed = excluded.passed, exit_code = excluded.exit_code,
    output_path = excluded.output_path, milliseconds = excluded.milliseconds,
    command = excluded.command, reason = excluded.reason, runs = excluded.runs
"""
VERDICT_OUTPUTS = "SELECT tree, digest, output_path FROM verdicts"
DROP_VERDICT = "DELETE FROM verdicts WHERE tree = ? AND digest = ? AND output_path = ?"
BATCHES_OF_LANES = "SELECT DISTINCT lane, batch FROM merge_entries"
MAX_ROUNDS = 2


class WorkspaceRow(NamedTuple):
    """Where the attempt of a task works. `closed`: its processes are gone and its work is saved."""

    task: str
    attempt: int
    host: str
    repository: str
    folder: str
    closed: bool


class EntryRow(NamedTuple):
    """An attempt in a merge lane. `round`: how often the task came back before. `tip`: the commit
    that it could not be merged with."""

    task: str
    attempt: int
    batch: str
    lane: str
    head: str
    base: str
    state: str
    round: int
    landed: str
    reason: str
    tip: str = ""


class LaneRow(NamedTuple):
    """`paused`: why it does not move until `retry_at`. `doing`: what its merger does right now."""

    id: str
    repository: str
    host: str
    mode: str
    target: str
    paused: str
    retry_at: int
    doing: str


class Held(NamedTuple):
    """A lane that we hold, and who we are in the event log."""

    lane: str
    fence: int
    actor: str


# Workspaces


def save_workspace(session: Session, row: WorkspaceRow, now: int) -> bool:
    """False if a later attempt has one: this one has lost its claim."""
    return bool(session.rows(SAVE_WORKSPACE, (*row[:5], now)))


def workspace(session: Session, task: str) -> WorkspaceRow | None:
    rows = session.rows(WORKSPACE, (task,))
    return _workspace(rows[0]) if rows else None


def close_workspace(session: Session, task: str, attempt: int) -> None:
    session.run(CLOSE_WORKSPACE, (task, attempt))


def forget_workspace(session: Session, task: str, attempt: int) -> None:
    session.run(FORGET_WORKSPACE, (task, attempt))


def open_workspaces(session: Session, host: str) -> list[WorkspaceRow]:
    """Those of this host that have not been closed."""
    return [_workspace(row) for row in session.rows(OPEN_WORKSPACES, (host,))]


def _workspace(row: Row) -> WorkspaceRow:
    task, attempt, host, repository, folder, closed = row
    return WorkspaceRow(task, attempt, host, repository, folder, bool(closed))


def holder(session: Session, task: str, attempt: int) -> tuple[int, int, str] | None:
    """The process that claimed an attempt: pid, its start, and the boot of its host."""
    rows = session.rows(HOLDER, (task, attempt))
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


# Lanes


def add_lane(
    session: Session, lane: str, repository: str, host: str, mode: str, *, target: str
) -> None:
    session.run(ADD_LANE, (lane, repository, host, mode, target))


def take_lane(session: Session, lane: str, actor: str, host: str, now: int) -> Held | None:
    """Hold a lane; None if it is another host's, or not to be tried yet. There is one merger per
    host, under a lock that the kernel frees, so an earlier holder is gone."""
    rows = session.rows(TAKE_LANE, (actor, lane, host, now))
    return Held(lane, rows[0][0], actor) if rows else None


def show_doing(session: Session, held: Held, doing: str) -> None:
    session.run(SHOW_DOING, (doing, held.lane, held.fence))


def any_here(session: Session, host: str) -> bool:
    """Whether a merger of this host has anything to merge."""
    return bool(session.rows(ANY_HERE, (host, host)))


def stranded(session: Session, host: str, now: int) -> list[str]:
    """Batches with attempts to be merged that nobody collects, because their host is gone."""
    return [batch for (batch,) in session.rows(STRANDED, (host, now))]


def pause_lane(session: Session, held: Held, reason: str, retry_at: int) -> bool:
    """Returns whether the reason is new."""
    if session.rows(PAUSE_LANE, (reason, retry_at, held.lane, held.fence, reason)):
        return True
    session.run(POSTPONE_LANE, (retry_at, held.lane, held.fence))
    return False


def resume_lane(session: Session, held: Held) -> None:
    session.run(RESUME_LANE, (held.lane, held.fence))


def merge_lanes(session: Session) -> list[LaneRow]:
    return [LaneRow(*row) for row in session.rows(LANES)]


def batches_of_lanes(session: Session) -> dict[str, set[str]]:
    """The batches with work in each lane, landed or not."""
    lanes: dict[str, set[str]] = {}
    for lane, batch in session.rows(BATCHES_OF_LANES):
        lanes.setdefault(lane, set()).add(batch)
    return lanes


# Entries


def add_entry(
    session: Session, submission: merging.Submission, lane: str, head: str, base: str
) -> None:
    task, batch, attempt, at = submission
    session.run(ADD_ENTRY, (task, attempt, batch, lane, head, base, task, at))


def hold_entry(
    session: Session, submission: merging.Submission, reason: str, actor: str, *, now: int
) -> None:
    """Ask a person before an entry is merged. Approved, it comes into the queue again."""
    task, _, attempt, _ = submission
    session.run(END_ENTRY, ("returned", "", reason, "", task, attempt))
    merging.to_review(session, task, attempt, reason, actor, now=now)


def queued(session: Session) -> list[EntryRow]:
    """Those of tasks that are merging, by lane, in the order in which they were completed."""
    return [EntryRow(*row) for row in session.rows(QUEUED)]


def entry(session: Session, task: str, attempt: int) -> EntryRow | None:
    rows = session.rows(ENTRY, (task, attempt))
    return EntryRow(*rows[0]) if rows else None


def last_entry(session: Session, task: str, before: int) -> EntryRow | None:
    """The entry of the attempt before this one, if its work was to be merged."""
    rows = session.rows(LAST_ENTRY, (task, before))
    return EntryRow(*rows[0]) if rows else None


def still_wanted(session: Session, held: Held, rows: Sequence[EntryRow]) -> list[str] | None:
    """The tasks among these that are still to be merged; None: we lost the lane."""
    if not _holds(session, held, reading=True):
        return None
    return merging.still_submitted(session, [(row.task, row.attempt) for row in rows])


def begin_landing(session: Session, held: Held, rows: Sequence[EntryRow]) -> list[str] | None:
    """The same; if that is all of them, none can be cancelled any more."""
    if not _holds(session, held):
        return None
    return merging.begin_landing(session, [(row.task, row.attempt) for row in rows])


def end_landing(session: Session, held: Held, rows: Sequence[EntryRow]) -> None:
    if _holds(session, held):
        merging.end_landing(session, [row.task for row in rows])


def set_tip(session: Session, task: str, attempt: int, tip: str) -> None:
    """The commit that a person brings the work together with."""
    session.run(SET_TIP, (tip, task, attempt))


def landed(session: Session, held: Held, row: EntryRow, data: Json, *, now: int) -> bool:
    """An entry has landed where it should: its task is done. False: we lost the lane."""
    if not _holds(session, held):
        return False
    session.run(END_ENTRY, ("landed", data["commit"], "", "", row.task, row.attempt))
    merging.merged(session, row.task, row.attempt, data, held.actor, now=now)
    return True


def returned(
    session: Session, held: Held, row: EntryRow, reason: str, tip: str, *, now: int
) -> bool:
    """An entry cannot be merged with `tip`: it is worked on again, or a person looks at it after
    two rounds."""
    if not _holds(session, held):
        return False
    _send_back(session, row, reason, tip, held.actor, now)
    return True


def conflicts_left(
    session: Session, submission: merging.Submission, reason: str, actor: str, *, now: int
) -> None:
    """An attempt has not resolved the conflict that it was asked to resolve: the task is worked on
    again, or a person looks at it after two rounds."""
    task, _, attempt, _ = submission
    last = last_entry(session, task, attempt)
    if last is None or not last.tip:
        merging.to_review(session, task, attempt, reason, actor, now=now)
        return
    add_entry(session, submission, last.lane, last.head, last.base)
    details = last.reason.partition("\n")[2]
    row = last._replace(attempt=attempt, round=last.round + 1)
    _send_back(session, row, f"{reason}\n{details}".strip(), last.tip, actor, now)


def _send_back(
    session: Session, row: EntryRow, reason: str, tip: str, actor: str, now: int
) -> None:
    session.run(END_ENTRY, ("returned", "", reason, tip, row.task, row.attempt))
    step = merging.rework if row.round < MAX_ROUNDS else merging.to_review
    summary = reason.partition("\n")[0]  # the next attempt gets all of it
    step(session, row.task, row.attempt, summary, actor, now=now)


def _holds(session: Session, held: Held, *, reading: bool = False) -> bool:
    lock = "" if reading else session.for_update
    rows = session.rows(FENCE + lock, (held.lane,))
    return bool(rows) and rows[0][0] == held.fence


# Verdicts


class StoredVerdicts:
    """The cache of verdicts, in the ledger: see VerdictCache."""

    def __init__(self, store: Database) -> None:
        self._store = store

    def get(self, tree: str, digest: str) -> Verdict | None:
        rows = self._store.read(lambda session: session.rows(VERDICT, (tree, digest)))
        if not rows:
            return None
        passed, code, path, milliseconds, command, reason, runs = rows[0]
        return Verdict(bool(passed), code, path, milliseconds / 1000, command, reason, runs)

    def put(self, tree: str, digest: str, verdict: Verdict) -> None:
        passed, code, path, seconds, command, reason, runs, _ = verdict
        row = (int(passed), code, path, round(seconds * 1000), command, reason, runs)
        self._store.write(lambda session: session.run(SAVE_VERDICT, (tree, digest, *row)))


def verdict_outputs(session: Session) -> list[tuple[str, str, str]]:
    """Of all cached verdicts: tree, digest, and the path of the output."""
    return [(tree, digest, path) for tree, digest, path in session.rows(VERDICT_OUTPUTS)]


def drop_verdicts(session: Session, verdicts: Sequence[tuple[str, str, str]]) -> None:
    for verdict in verdicts:
        session.run(DROP_VERDICT, verdict)
