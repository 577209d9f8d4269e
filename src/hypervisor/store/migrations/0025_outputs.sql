-- Outputs that every host can read. A row holds the bytes from `start` on of `size` bytes; the bytes
-- before `sealed` are in the output store at `place`. If neither has all, the rest is in the file
-- `place` of `host`. `output_tails` has attempts that run, and is not worth a log of its own.
CREATE TABLE output_ends (
    task {text} NOT NULL,
    attempt {bigint} NOT NULL,
    host {text} NOT NULL,
    place {text} NOT NULL,
    start {bigint} NOT NULL,
    size {bigint} NOT NULL,
    sealed {bigint} NOT NULL,
    at {bigint} NOT NULL,
    text {bytes} NOT NULL,
    PRIMARY KEY (task, attempt)
);
CREATE INDEX output_ends_incomplete ON output_ends (host, at) WHERE sealed < start;
CREATE INDEX output_ends_by_age ON output_ends (at);
CREATE TABLE output_tails (
    task {text} NOT NULL,
    attempt {bigint} NOT NULL,
    host {text} NOT NULL,
    place {text} NOT NULL,
    start {bigint} NOT NULL,
    size {bigint} NOT NULL,
    sealed {bigint} NOT NULL,
    at {bigint} NOT NULL,
    text {bytes} NOT NULL,
    PRIMARY KEY (task, attempt)
);
{unlogged_tails}
