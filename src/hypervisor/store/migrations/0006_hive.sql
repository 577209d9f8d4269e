-- What the hive needs: branches, findings, which of them may speak against each other, and the
-- words by which they are found.
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
