"""The tables, as numbered, append-only migrations for both databases.

Hot rows stay small: text and JSON live in `details`. Partial indexes hold
only the rows they serve, so that a claim never meets what is not claimable.
CHECK and unique constraints repeat the invariants of the lifecycle table; for the
hot tables on PostgreSQL, `postgres_checks.py` does.
"""

from __future__ import annotations

APPLICATION_ID = 0x48565231  # "HVR1", marks an SQLite file as ours

COLUMNS: dict[str, tuple[tuple[str, str], ...]] = {
    "tasks": (
        ("id", "text"),
        ("state", "text"),
        ("lane", "bigint"),
        ("rank", "bigint"),
        ("batch", "text"),
        ("open_deps", "bigint"),
        ("start_at", "bigint"),
        ("retries", "bigint"),
        ("created_at", "bigint"),
        ("updated_at", "bigint"),
        ("chunk", "bigint"),
        ("held", "bigint"),
    ),
    "details": (
        ("task", "text"),
        ("batch", "text"),
        ("key", "text"),
        ("key_hash", "text"),
        ("title", "text"),
        ("body", "text"),
        ("data", "text"),
    ),
    "attempts": (
        ("task", "text"),
        ("number", "bigint"),
        ("nonce", "text"),
        ("worker", "text"),
        ("claimed_at", "bigint"),
    ),
    "events": (
        ("at", "bigint"),
        ("kind", "text"),
        ("task", "text"),
        ("batch", "text"),
        ("attempt", "bigint"),
        ("state", "text"),
        ("actor", "text"),
        ("data", "text"),
    ),
    "dependencies": (("task", "text"), ("needs", "text")),
    "task_keys": (
        ("task", "text"),
        ("key", "text"),
        ("lane", "bigint"),
        ("rank", "bigint"),
        ("queued", "bigint"),
    ),
    "key_holds": (("key", "text"), ("lane", "bigint"), ("task", "text")),
    "receipts": (
        ("chain", "text"),
        ("number", "bigint"),
        ("task", "text"),
        ("attempt", "bigint"),
        ("at", "bigint"),
        ("actor", "text"),
        ("text", "text"),
        ("hash", "text"),
    ),
}

INTO = {
    table: f"INSERT INTO {table} ({', '.join(name for name, _ in columns)})"
    for table, columns in COLUMNS.items()
}

_LEDGER = """
CREATE TABLE batches (
    id {text} PRIMARY KEY,
    name {text} NOT NULL UNIQUE,
    created_at {bigint} NOT NULL
){clustered};

CREATE TABLE lanes (
    id {bigint} PRIMARY KEY,
    batch {text} NOT NULL,
    type {text} NOT NULL,
    branch {text} NOT NULL,
    priority {text} NOT NULL CHECK (priority IN ('critical', 'high', 'medium', 'low')),
    requires {text} NOT NULL,
    assignee {text} NOT NULL,
    keyed {bigint} NOT NULL CHECK (keyed IN (0, 1)),
    number {bigint} NOT NULL UNIQUE,
    UNIQUE (batch, type, branch, priority, requires, assignee, keyed)
);

CREATE TABLE tasks (
    id {text} PRIMARY KEY,
    state {text} NOT NULL CHECK (state IN ('inbox', 'waiting', 'active', 'in_progress',
        'merging', 'review', 'blocked', 'done', 'failed', 'cancelled')),
    lane {bigint} NOT NULL,
    rank {bigint} NOT NULL,
    batch {text} NOT NULL,
    attempt {bigint} NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    deadline {bigint},
    open_deps {bigint} NOT NULL DEFAULT 0 CHECK (open_deps >= 0),
    start_at {bigint},
    retries {bigint} NOT NULL DEFAULT 0,
    failures {bigint} NOT NULL DEFAULT 0,
    crashes {bigint} NOT NULL DEFAULT 0,
    reason {text},
    unblock {text},
    created_at {bigint} NOT NULL,
    updated_at {bigint} NOT NULL,
    CHECK ((state = 'in_progress') = (deadline IS NOT NULL)),
    CHECK (state <> 'active' OR (open_deps = 0 AND start_at IS NULL)),
    CHECK (state <> 'blocked' OR reason IS NOT NULL)
){clustered};
CREATE INDEX tasks_ready ON tasks (lane, rank) WHERE state = 'active';
CREATE INDEX tasks_leased ON tasks (deadline) WHERE state = 'in_progress';
CREATE INDEX tasks_delayed ON tasks (start_at) WHERE state = 'waiting' AND start_at IS NOT NULL;
CREATE INDEX tasks_of_batch ON tasks (batch, id) WHERE batch <> '';

CREATE TABLE details (
    task {text} PRIMARY KEY,
    batch {text} NOT NULL,
    key {text},
    key_hash {text},
    title {text} NOT NULL,
    body {text} NOT NULL,
    data {text},
    result {text}
){clustered};
CREATE UNIQUE INDEX details_key ON details (batch, key_hash) WHERE key_hash IS NOT NULL;

CREATE TABLE dependencies (
    task {text} NOT NULL,
    needs {text} NOT NULL CHECK (needs <> task),
    PRIMARY KEY (task, needs)
){clustered};
CREATE INDEX dependencies_needs ON dependencies (needs, task);

CREATE TABLE task_keys (
    task {text} NOT NULL,
    key {text} NOT NULL,
    lane {bigint} NOT NULL,
    rank {bigint} NOT NULL,
    queued {bigint} NOT NULL DEFAULT 0 CHECK (queued IN (0, 1)),
    PRIMARY KEY (task, key)
){clustered};
CREATE INDEX task_keys_queue ON task_keys (key, lane, rank) WHERE queued = 1;

CREATE TABLE key_holds (
    key {text} NOT NULL,
    lane {bigint} NOT NULL,
    task {text} NOT NULL,
    PRIMARY KEY (key, lane)
){clustered};
CREATE INDEX key_holds_task ON key_holds (task);

CREATE TABLE workers (
    id {text} PRIMARY KEY,
    name {text} NOT NULL,
    host {text} NOT NULL,
    boot {text} NOT NULL,
    pid {bigint} NOT NULL,
    pid_start {bigint} NOT NULL,
    started_at {bigint} NOT NULL,
    seen_at {bigint} NOT NULL
){clustered};

CREATE TABLE attempts (
    task {text} NOT NULL,
    number {bigint} NOT NULL CHECK (number > 0),
    nonce {text} NOT NULL,
    worker {text} NOT NULL,
    claimed_at {bigint} NOT NULL,
    ended_at {bigint},
    outcome {text},
    state_after {text},
    reason {text},
    PRIMARY KEY (task, number),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
){clustered};

CREATE TABLE receipt_chains (
    chain {text} PRIMARY KEY,
    number {bigint} NOT NULL,
    hash {text} NOT NULL
){clustered};
CREATE TABLE receipts (
    chain {text} NOT NULL,
    number {bigint} NOT NULL,
    task {text} NOT NULL,
    attempt {bigint} NOT NULL,
    at {bigint} NOT NULL,
    actor {text} NOT NULL,
    text {text} NOT NULL,
    hash {text} NOT NULL,
    PRIMARY KEY (chain, number)
){clustered};
CREATE INDEX receipts_of_task ON receipts (task, number);

CREATE TABLE events (
    {event_number},
    at {bigint} NOT NULL,
    kind {text} NOT NULL,
    task {text} NOT NULL,
    batch {text} NOT NULL,
    attempt {bigint},
    state {text},
    actor {text} NOT NULL,
    data {text}
);
{event_index}
"""

# What running work needs: how a batch is run, what is paused, who shall stop, what it cost.
_RUNNING = """
ALTER TABLE batches ADD COLUMN spec {text};
ALTER TABLE lanes ADD COLUMN paused {bigint} NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN batch {text};
ALTER TABLE workers ADD COLUMN ended_at {bigint};
ALTER TABLE attempts ADD COLUMN exit_code {bigint};
ALTER TABLE attempts ADD COLUMN cpu_ms {bigint};
ALTER TABLE attempts ADD COLUMN peak_kb {bigint};
ALTER TABLE attempts ADD COLUMN output_bytes {bigint};
CREATE INDEX workers_at_work ON workers (boot) WHERE batch IS NOT NULL AND ended_at IS NULL;

CREATE TABLE pauses (
    scope {text} NOT NULL CHECK (scope IN ('all', 'batch', 'type')),
    name {text} NOT NULL,
    reason {text} NOT NULL,
    actor {text} NOT NULL,
    at {bigint} NOT NULL,
    PRIMARY KEY (scope, name)
){clustered};

CREATE TABLE stops (
    task {text} PRIMARY KEY,
    attempt {bigint} NOT NULL,
    next {text} NOT NULL CHECK (next IN ('cancel', 'fail', 'release')),
    reason {text} NOT NULL,
    actor {text} NOT NULL,
    at {bigint} NOT NULL
){clustered};

CREATE TABLE settings (
    name {text} PRIMARY KEY,
    value {text} NOT NULL
){clustered};
"""

# What batches need that a person reviews: chunks, whether they may run, and what is carried out.
_REVIEWED = """
ALTER TABLE tasks ADD COLUMN chunk {bigint} NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN held {bigint} NOT NULL DEFAULT 0;
CREATE INDEX tasks_of_chunk ON tasks (batch, chunk, id) WHERE chunk > 0;

CREATE TABLE chunks (
    batch {text} NOT NULL,
    number {bigint} NOT NULL CHECK (number > 0),
    name {text} NOT NULL,
    state {text} NOT NULL CHECK (state IN ('held', 'open', 'free', 'approved', 'rejected')),
    note {text},
    actor {text},
    decided_at {bigint},
    PRIMARY KEY (batch, number),
    UNIQUE (batch, name),
    CHECK ((state IN ('approved', 'rejected')) = (decided_at IS NOT NULL))
){clustered};

CREATE TABLE actions (
    batch {text} NOT NULL,
    number {bigint} NOT NULL CHECK (number > 0),
    task {text} NOT NULL,
    kind {text} NOT NULL,
    data {text} NOT NULL,
    state {text} NOT NULL CHECK (state IN ('planned', 'applying', 'applied', 'failed', 'dropped',
        'undoing', 'undone')),
    reason {text},
    at {bigint} NOT NULL,
    PRIMARY KEY (batch, number)
){clustered};
CREATE INDEX actions_open ON actions (batch, number)
    WHERE state IN ('planned', 'applying', 'undoing');
"""

# What agents need: the runs of their programs, the accounts that rest, how far readers of
# events have come.
_AGENTS = """
ALTER TABLE workers ADD COLUMN agent {text} NOT NULL DEFAULT '';

CREATE TABLE sessions (
    id {text} PRIMARY KEY,
    agent {text} NOT NULL,
    account {text} NOT NULL,
    batch {text} NOT NULL,
    worker {text} NOT NULL,
    task {text} NOT NULL,
    attempt {bigint} NOT NULL,
    resumes {text} NOT NULL,
    session {text} NOT NULL DEFAULT '',
    started_at {bigint} NOT NULL,
    ended_at {bigint},
    outcome {text},
    input_tokens {bigint} NOT NULL DEFAULT 0,
    output_tokens {bigint} NOT NULL DEFAULT 0,
    cached_tokens {bigint} NOT NULL DEFAULT 0,
    cost_micros {bigint},
    estimated {bigint} NOT NULL DEFAULT 0 CHECK (estimated IN (0, 1)),
    turns {bigint} NOT NULL DEFAULT 0,
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
){clustered};
CREATE INDEX sessions_of_batch ON sessions (batch, id);
CREATE INDEX sessions_of_task ON sessions (task, id) WHERE task <> '';
CREATE INDEX sessions_of_worker ON sessions (worker, id);
CREATE INDEX sessions_by_time ON sessions (started_at);

CREATE TABLE brakes (
    account {text} PRIMARY KEY,
    until {bigint} NOT NULL,
    level {bigint} NOT NULL CHECK (level >= 0),
    reason {text} NOT NULL,
    since {bigint} NOT NULL
){clustered};

CREATE TABLE cursors (
    name {text} PRIMARY KEY,
    number {bigint} NOT NULL,
    moved_at {bigint} NOT NULL
){clustered};
"""

# What notifications need: who wants to be told of what, and what is still to be delivered.
_NOTICES = """
CREATE TABLE rules (
    name {text} PRIMARY KEY,
    words {text} NOT NULL,
    batch {text} NOT NULL,
    type {text} NOT NULL,
    command {text},
    cwd {text} NOT NULL,
    tries {bigint} NOT NULL CHECK (tries > 0),
    seen {bigint} NOT NULL,
    failures {bigint} NOT NULL DEFAULT 0,
    due_at {bigint} NOT NULL DEFAULT 0,
    holder {text} NOT NULL DEFAULT '',
    held_until {bigint} NOT NULL DEFAULT 0,
    created_at {bigint} NOT NULL
){clustered};

CREATE TABLE notices (
    rule {text} NOT NULL,
    number {bigint} NOT NULL,
    what {text} NOT NULL,
    mark {text} NOT NULL,
    at {bigint} NOT NULL,
    state {text} NOT NULL CHECK (state IN ('pending', 'sent', 'failed')),
    tries {bigint} NOT NULL DEFAULT 0,
    said {text} NOT NULL DEFAULT '',
    data {text} NOT NULL,
    PRIMARY KEY (rule, number, what, mark)
){clustered};
CREATE UNIQUE INDEX notices_marked ON notices (rule, what, mark) WHERE mark <> '';
CREATE INDEX notices_pending ON notices (rule, number) WHERE state = 'pending';
"""

# What the hive needs: branches, findings, which of them may speak against each other, and the
# words by which they are found.
_HIVE = """
CREATE TABLE branches (
    name {text} PRIMARY KEY,
    parent {text} NOT NULL,
    git {text} NOT NULL,
    created_at {bigint} NOT NULL
){clustered};

CREATE TABLE findings (
    id {text} PRIMARY KEY,
    branch {text} NOT NULL,
    topic {text} NOT NULL,
    kind {text} NOT NULL,
    text {text} NOT NULL,
    task {text} NOT NULL,
    attempt {bigint} NOT NULL,
    agent {text} NOT NULL,
    actor {text} NOT NULL,
    at {bigint} NOT NULL,
    joins {text} NOT NULL,
    source {text} NOT NULL,
    times {bigint} NOT NULL DEFAULT 1 CHECK (times > 0),
    sources {bigint} NOT NULL DEFAULT 1 CHECK (sources > 0)
);
CREATE INDEX findings_of_branch ON findings (branch, source);
CREATE INDEX findings_known ON findings (branch, sources, id) WHERE joins = '';
CREATE INDEX findings_joined ON findings (joins, id) WHERE joins <> '';
CREATE INDEX findings_of_task ON findings (task, id) WHERE task <> '';

CREATE TABLE doubts (
    finding {text} NOT NULL,
    other {text} NOT NULL,
    why {text} NOT NULL,
    PRIMARY KEY (finding, other)
){clustered};

{finding_words}
"""

# PostgreSQL no longer checks the hot tables at every write.
_UNCHECKED = "{unchecked}"

# Every write to `tasks` or `events` does a little less.
_CHEAPER = "{cheaper}"

# A store knows itself under all its names.
_IDENTITY = "INSERT INTO settings (name, value) VALUES ('store id', {random_id})"

# What is proposed under a claim: one row each, so that none overwrites another.
_PROPOSALS = """
CREATE TABLE proposals (
    task {text} NOT NULL,
    attempt {bigint} NOT NULL,
    number {bigint} NOT NULL CHECK (number > 0),
    data {text} NOT NULL,
    PRIMARY KEY (task, attempt, number)
){clustered};
"""

# Which claims an agent holds that claims by itself.
_AGENT_CLAIMS = """
CREATE TABLE agent_claims (
    worker {text} NOT NULL,
    task {text} NOT NULL,
    attempt {bigint} NOT NULL,
    PRIMARY KEY (worker, task, attempt)
){clustered};
"""

# The tools that were refused to an agent, as a JSON list; '' for none.
_REFUSALS = "ALTER TABLE sessions ADD COLUMN denied {text} NOT NULL DEFAULT ''"

# What kind of trouble a brake is for: a limit of the account, or an outage of its provider.
_BRAKE_KINDS = """
ALTER TABLE brakes ADD COLUMN kind {text} NOT NULL DEFAULT 'quota';
"""

# Which batches follow on each other, and what a reduce was given: until then in the settings, as
# JSON under names made of a word and an id.
_PIPELINES = """
CREATE TABLE pipelines (
    id {text} PRIMARY KEY,
    reduce_batch {text} NOT NULL,
    reduce_task {text} NOT NULL,
    fail_fast {bigint} NOT NULL CHECK (fail_fast IN (0, 1)),
    submissions {bigint} NOT NULL DEFAULT 0,
    released {bigint} NOT NULL DEFAULT 0
){clustered};

CREATE TABLE pipeline_batches (
    batch {text} PRIMARY KEY,
    pipeline {text} NOT NULL,
    position {bigint} NOT NULL CHECK (position > 0)
){clustered};
CREATE INDEX pipeline_batches_in_order ON pipeline_batches (pipeline, position);

CREATE TABLE reduce_inputs (
    task {text} PRIMARY KEY,
    digest {text} NOT NULL
){clustered};

{move_pipelines};
INSERT INTO reduce_inputs (task, digest)
SELECT substr(name, 10), value FROM settings WHERE substr(name, 1, 9) = 'gathered ';
DELETE FROM settings
WHERE substr(name, 1, 8) = 'pattern ' OR substr(name, 1, 9) IN ('untended ', 'gathered ')
"""

MIGRATIONS: tuple[str, ...] = (
    _LEDGER,
    _RUNNING,
    _REVIEWED,
    _AGENTS,
    _NOTICES,
    _HIVE,
    _UNCHECKED,
    _CHEAPER,
    _IDENTITY,
    _PROPOSALS,
    _AGENT_CLAIMS,
    _REFUSALS,
    _BRAKE_KINDS,
    _PIPELINES,
)
VERSION = len(MIGRATIONS)


def statements(number: int, words: dict[str, str]) -> list[str]:
    """The statements of migration `number` (1 is the first) in one database's words."""
    text = MIGRATIONS[number - 1].format(**words)
    return [part.strip() for part in text.split(";") if part.strip()]


def tables() -> list[str]:
    """The names of all tables that both databases have."""
    import re

    return re.findall(r"^CREATE TABLE (\w+)", "".join(MIGRATIONS), re.MULTILINE)
