-- What notifications need: who wants to be told of what, and what is still to be delivered.
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
