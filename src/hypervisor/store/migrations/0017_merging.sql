-- Whether what is completed in a batch is merged before it is done, and what is to be merged.
ALTER TABLE batches ADD COLUMN merges {bigint} NOT NULL DEFAULT 0;

CREATE TABLE submissions (
    task {text} PRIMARY KEY,
    attempt {bigint} NOT NULL,
    batch {text} NOT NULL,
    at {bigint} NOT NULL
){clustered};
