-- Workspaces of attempts, merge lanes with their entries, and verdicts on what is to be merged.
CREATE TABLE workspaces (
    task {text} PRIMARY KEY,
    attempt {bigint} NOT NULL CHECK (attempt > 0),
    host {text} NOT NULL,
    repository {text} NOT NULL,
    folder {text} NOT NULL,
    opened_at {bigint} NOT NULL,
    closed {bigint} NOT NULL DEFAULT 0 CHECK (closed IN (0, 1))
){clustered};

CREATE TABLE merge_lanes (
    id {text} PRIMARY KEY,
    repository {text} NOT NULL,
    host {text} NOT NULL,
    mode {text} NOT NULL CHECK (mode IN ('branch', 'local', 'push', 'pr')),
    target {text} NOT NULL,
    holder {text},
    fence {bigint} NOT NULL,
    until {bigint} NOT NULL,
    paused {text} NOT NULL,
    retry_at {bigint} NOT NULL
){clustered};

CREATE TABLE merge_entries (
    task {text} NOT NULL,
    attempt {bigint} NOT NULL CHECK (attempt > 0),
    batch {text} NOT NULL,
    lane {text} NOT NULL,
    head {text} NOT NULL,
    base {text} NOT NULL,
    state {text} NOT NULL CHECK (state IN ('queued', 'landed', 'returned')),
    round {bigint} NOT NULL,
    at {bigint} NOT NULL,
    landed {text} NOT NULL,
    reason {text} NOT NULL,
    PRIMARY KEY (task, attempt),
    CHECK ((state = 'landed') = (landed <> ''))
){clustered};

CREATE TABLE verdicts (
    tree {text} NOT NULL,
    digest {text} NOT NULL,
    passed {bigint} NOT NULL CHECK (passed IN (0, 1)),
    exit_code {bigint},
    output_path {text} NOT NULL,
    milliseconds {bigint} NOT NULL,
    command {text} NOT NULL,
    reason {text} NOT NULL,
    runs {bigint} NOT NULL,
    PRIMARY KEY (tree, digest)
){clustered};
