"""The SQL fragments that differ between the two databases."""

from __future__ import annotations

# The CHECK of a task's state in the first migration, and a faster equivalent: SQLite builds a table
# for each check of an IN list, but rarely gets past the second of these comparisons.
STATE_IN_LIST = """state IN ('inbox', 'waiting', 'active', 'in_progress',
        'merging', 'review', 'blocked', 'done', 'failed', 'cancelled')"""
STATE_IS_ONE = " OR ".join(
    f"state = '{state}'"
    for state in (
        "in_progress",
        "done",
        "active",
        "waiting",
        "inbox",
        "failed",
        "blocked",
        "cancelled",
        "review",
        "merging",
    )
)

# Old settings of a pipeline: `pattern BATCH` is [[STAGE, …], REDUCE BATCH, REDUCE TASK, FAIL FAST],
# the same for each of its batches, and `untended BATCH` means that its reduce is pending. Those of
# the first batch apply: an earlier submission may have left other batches behind.
OLD_PIPELINE = "CASE WHEN substr(name, 1, 8) = 'pattern ' THEN settings.value ELSE '[[]]' END"
MOVE_PIPELINES = """
    INSERT INTO pipelines (id, reduce_batch, reduce_task, fail_fast, submissions)
    SELECT substr(name, 9), coalesce({reduce_batch}, ''), coalesce({reduce_task}, ''),
        coalesce({fail_fast}, 0),
        (SELECT count(*) FROM settings u WHERE u.name = 'untended ' || substr(settings.name, 9))
    FROM settings WHERE substr(name, 1, 8) = 'pattern ' AND {first} = substr(name, 9);
    INSERT INTO pipeline_batches (batch, pipeline, position)
    SELECT {stage}, substr(name, 9), {position} FROM settings, {stages}
    WHERE substr(name, 1, 8) = 'pattern ' AND {first} = substr(name, 9)
    ON CONFLICT (batch) DO NOTHING;
    INSERT INTO pipeline_batches (batch, pipeline, position)
    SELECT reduce_batch, id, (SELECT count(*) + 1 FROM pipeline_batches WHERE pipeline = id)
    FROM pipelines WHERE reduce_batch <> ''
    ON CONFLICT (batch) DO NOTHING
"""


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# PostgreSQL assigns an event's `id` before the commit, so readers number events in `seq` once they
# are visible, one reader at a time.
LOCK_EVENTS = "SELECT pg_advisory_xact_lock(1213616689, hashtext('events'))"
NUMBER_EVENTS = """
UPDATE events SET seq = fresh.number FROM (
    SELECT id, row_number() OVER (ORDER BY id)
        + (SELECT coalesce(max(seq), 0) FROM events) AS number
    FROM (SELECT id FROM events WHERE seq IS NULL ORDER BY id LIMIT ?) AS unnumbered) AS fresh
WHERE events.id = fresh.id RETURNING 1
"""
SQLITE_CLOCK = "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
POSTGRES_CLOCK = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
SQLITE_EVENTS_AFTER = "SELECT id, kind, task, batch, attempt, state FROM events WHERE id > ?"
POSTGRES_EVENTS_AFTER = """
SELECT seq AS id, kind, task, batch, attempt, state FROM events WHERE seq > ?
UNION ALL SELECT NULL, kind, task, batch, attempt, state FROM events WHERE seq IS NULL
"""

SQLITE_FRAGMENTS = {
    "text": "TEXT",
    "bigint": "INTEGER",
    "bytes": "BLOB",
    "unlogged_tails": "",
    "clustered": " WITHOUT ROWID",
    "event_number": "id INTEGER PRIMARY KEY",
    "event_index": "",
    "event_seq": "id",
    "number_all_events": "",
    "finding_words": "CREATE VIRTUAL TABLE finding_words USING fts5(words, content='', "
    "contentless_delete=1, detail=none, tokenize=\"ascii tokenchars ':'\")",
    "random_id": "lower(hex(randomblob(16)))",
    "find": "instr",
    "unchecked": "",
    # The documented way to change a CHECK in SQLite: it is only in the text of the table.
    "cheaper": f"""
        PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = replace(sql, {quoted(STATE_IN_LIST)}, {quoted(STATE_IS_ONE)})
        WHERE type = 'table' AND name = 'tasks';
        PRAGMA writable_schema = RESET
    """,
    "move_pipelines": MOVE_PIPELINES.format(
        first=f"json_extract({OLD_PIPELINE}, '$[0][0]')",
        reduce_batch=f"json_extract({OLD_PIPELINE}, '$[1]')",
        reduce_task=f"json_extract({OLD_PIPELINE}, '$[2]')",
        fail_fast=f"json_extract({OLD_PIPELINE}, '$[3]')",
        stages=f"json_each({OLD_PIPELINE}, '$[0]') AS stage",
        stage="stage.value",
        position="stage.key + 1",
    ),
}
# Ids compare byte by byte in both.
POSTGRES_FRAGMENTS = {
    "text": 'TEXT COLLATE "C"',
    "bigint": "BIGINT",
    "bytes": "BYTEA",
    "unlogged_tails": "ALTER TABLE output_tails SET UNLOGGED",
    "clustered": "",
    "event_number": "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, seq BIGINT UNIQUE",
    "event_index": "CREATE INDEX events_unnumbered ON events (id) WHERE seq IS NULL",
    "event_seq": "seq",
    # Nothing may change while tasks are counted and events are numbered.
    "number_all_events": f"""
        LOCK TABLE tasks, events IN SHARE ROW EXCLUSIVE MODE;
        {LOCK_EVENTS};
        {NUMBER_EVENTS.replace("LIMIT ?", "")};
    """,
    "finding_words": "CREATE TABLE finding_words (number BIGINT PRIMARY KEY, words TSVECTOR "
    "NOT NULL); CREATE INDEX finding_words_found ON finding_words USING gin (words) "
    "WITH (fastupdate = off)",
    "random_id": "replace(gen_random_uuid()::text, '-', '')",
    "find": "strpos",
    # postgres_checks.py replaces them. PostgreSQL chose these names.
    "unchecked": "".join(
        f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_{name};"
        for table, names in {
            "tasks": (
                "state_check",
                "attempt_check",
                "open_deps_check",
                "check",
                "check1",
                "check2",
            ),
            "attempts": ("number_check", "check"),
        }.items()
        for name in names
    ),
    # Events have no number until they are first read, and no index entry until then.
    "cheaper": "ALTER TABLE events DROP CONSTRAINT IF EXISTS events_seq_key; "
    "CREATE UNIQUE INDEX events_numbered ON events (seq) WHERE seq IS NOT NULL",
    "move_pipelines": MOVE_PIPELINES.format(
        first=f"(({OLD_PIPELINE})::json -> 0 ->> 0)",
        reduce_batch=f"(({OLD_PIPELINE})::json ->> 1)",
        reduce_task=f"(({OLD_PIPELINE})::json ->> 2)",
        fail_fast=f"(({OLD_PIPELINE})::json ->> 3)::boolean::int",
        stages=f"json_array_elements_text(({OLD_PIPELINE})::json -> 0) "
        "WITH ORDINALITY AS stage(batch, place)",
        stage="stage.batch",
        position="stage.place",
    ),
}

# SQLite runs a statement per lane; PostgreSQL one for all lanes, each from a given rank upwards.
SQLITE_HEAD = "SELECT min(rank) FROM tasks WHERE state = 'active' AND lane = ?"
POSTGRES_HEADS = """
SELECT rank, lane FROM (
    SELECT lane, (SELECT min(rank) FROM tasks
        WHERE state = 'active' AND tasks.lane = wanted.lane AND rank >= floor) AS rank
    FROM unnest(?::bigint[], ?::bigint[]) AS wanted(lane, floor)) AS heads
WHERE rank IS NOT NULL
"""

# The hive normalizes the words, so that both databases find the same.
SQLITE_INDEX_WORDS = "INSERT OR REPLACE INTO finding_words (rowid, words) VALUES (?, ?)"
SQLITE_UNINDEX_WORDS = "DELETE FROM finding_words WHERE rowid = ?"
SQLITE_MATCHING = """
SELECT rowid FROM finding_words WHERE finding_words MATCH ? ORDER BY rowid DESC LIMIT ?
"""
POSTGRES_INDEX_WORDS = """
INSERT INTO finding_words (number, words) VALUES (?, array_to_tsvector(?::text[]))
ON CONFLICT (number) DO UPDATE SET words = excluded.words
"""
POSTGRES_UNINDEX_WORDS = "DELETE FROM finding_words WHERE number = ?"
# + 0 prevents a scan of all findings, newest first, which is slow for a rare word.
POSTGRES_MATCHING = """
SELECT number FROM finding_words WHERE words @@ ?::tsquery ORDER BY number + 0 DESC LIMIT ?
"""
# A GIN index needs a bitmap scan, which is off for all other statements.
POSTGRES_BITMAPS = "SELECT set_config('enable_bitmapscan', 'on', true)"
