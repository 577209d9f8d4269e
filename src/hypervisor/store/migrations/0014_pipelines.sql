-- Which batches follow on each other, and what a reduce was given: until then in the settings, as
-- JSON under names made of a word and an id.
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
