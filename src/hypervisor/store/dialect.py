"""All that differs between the two databases in words."""

from __future__ import annotations

SQLITE_WORDS = {
    "text": "TEXT",
    "bigint": "INTEGER",
    "clustered": " WITHOUT ROWID",
    "event_number": "id INTEGER PRIMARY KEY",
    "event_index": "",
}
# Ids compare byte by byte on both. PostgreSQL hands out `id` before the commit,
# so readers number events in `seq` once they are visible (see postgres.py).
POSTGRES_WORDS = {
    "text": 'TEXT COLLATE "C"',
    "bigint": "BIGINT",
    "clustered": "",
    "event_number": "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, seq BIGINT UNIQUE",
    "event_index": "CREATE INDEX events_unnumbered ON events (id) WHERE seq IS NULL",
}

# SQLite looks at one lane after the other; PostgreSQL, asked once, at all.
SQLITE_HEAD = "SELECT min(rank) FROM tasks WHERE state = 'active' AND lane = ?"
POSTGRES_HEADS = """
SELECT rank, lane FROM (
    SELECT lane, (SELECT min(rank) FROM tasks WHERE state = 'active' AND tasks.lane = wanted.lane)
        AS rank
    FROM unnest(?::bigint[]) AS wanted(lane)) AS heads
WHERE rank IS NOT NULL
"""
