-- The point of no return of a landing, where work has landed, what an entry did not merge with, and
-- what a lane is doing.
ALTER TABLE submissions ADD COLUMN landing {bigint} NOT NULL DEFAULT 0;
ALTER TABLE merge_entries ADD COLUMN tip {text} NOT NULL DEFAULT '';
ALTER TABLE merge_lanes ADD COLUMN doing {text} NOT NULL DEFAULT '';

CREATE TABLE landings (
    task {text} PRIMARY KEY,
    attempt {bigint} NOT NULL CHECK (attempt > 0),
    hash {text} NOT NULL,
    target {text} NOT NULL,
    verified {bigint} NOT NULL CHECK (verified IN (0, 1)),
    at {bigint} NOT NULL
){clustered};
