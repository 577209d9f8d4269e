-- What batches need that a person reviews: chunks, whether they may run, and what is carried out.
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
