-- What agents need: the runs of their programs, the accounts that rest, how far readers of
-- events have come.
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
