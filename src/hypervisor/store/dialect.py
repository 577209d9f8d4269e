"""All that differs between the two databases in words."""

from __future__ import annotations

# The CHECK of a task's state as the first migration wrote it, and one that means the same:
# for a list, SQLite makes a table each time it checks, here it seldom needs a third look.
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

# The settings of a pipeline: `pattern BATCH` is [[STAGE, …], REDUCE BATCH, REDUCE TASK, FAIL FAST],
# the same for every batch of it, and `untended BATCH` says that its reduce is pending. What the
# first batch has counts: an earlier submission may have left other batches behind.
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


SQLITE_WORDS = {
    "text": "TEXT",
    "bigint": "INTEGER",
    "clustered": " WITHOUT ROWID",
    "event_number": "id INTEGER PRIMARY KEY",
    "event_index": "",
    "finding_words": "CREATE VIRTUAL TABLE finding_words USING fts5(words, content='', "
    "contentless_delete=1, detail=none, tokenize=\"ascii tokenchars ':'\")",
    "random_id": "lower(hex(randomblob(16)))",
    "unchecked": "",
    # The way SQLite's documentation has for a CHECK: it is nowhere but in the table's text.
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
# Ids compare byte by byte on both. PostgreSQL hands out `id` before the commit,
# so readers number events in `seq` once they are visible (see postgres.py).
POSTGRES_WORDS = {
    "text": 'TEXT COLLATE "C"',
    "bigint": "BIGINT",
    "clustered": "",
    "event_number": "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, seq BIGINT UNIQUE",
    "event_index": "CREATE INDEX events_unnumbered ON events (id) WHERE seq IS NULL",
    "finding_words": "CREATE TABLE finding_words (number BIGINT PRIMARY KEY, words TSVECTOR "
    "NOT NULL); CREATE INDEX finding_words_found ON finding_words USING gin (words) "
    "WITH (fastupdate = off)",
    "random_id": "replace(gen_random_uuid()::text, '-', '')",
    # What they were about: see postgres_checks.py. The names are those PostgreSQL gave them.
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
    # Events have no number until they are read: as long, they need not be in its index.
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

# SQLite looks at one lane after the other; PostgreSQL, asked once, at all, each from a rank on.
SQLITE_HEAD = "SELECT min(rank) FROM tasks WHERE state = 'active' AND lane = ?"
POSTGRES_HEADS = """
SELECT rank, lane FROM (
    SELECT lane, (SELECT min(rank) FROM tasks
        WHERE state = 'active' AND tasks.lane = wanted.lane AND rank >= floor) AS rank
    FROM unnest(?::bigint[], ?::bigint[]) AS wanted(lane, floor)) AS heads
WHERE rank IS NOT NULL
"""

# Words come as the domain makes them, so that both databases find the same.
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
# + 0: otherwise all findings are walked from the newest on, which takes long for a rare word.
POSTGRES_MATCHING = """
SELECT number FROM finding_words WHERE words @@ ?::tsquery ORDER BY number + 0 DESC LIMIT ?
"""
# An index of words can only be read as a bitmap, which our other statements do without.
POSTGRES_BITMAPS = "SELECT set_config('enable_bitmapscan', 'on', true)"
