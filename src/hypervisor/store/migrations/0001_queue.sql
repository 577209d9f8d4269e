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
