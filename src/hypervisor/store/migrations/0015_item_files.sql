-- The file that a task's item names, as its last attempt left it; no row where it names none.
-- What was done before this migration cannot be compared: its size is -1.
CREATE TABLE item_files (
    task {text} PRIMARY KEY,
    attempt {bigint} NOT NULL,
    size {bigint} NOT NULL,
    mtime {bigint} NOT NULL,
    digest {text} NOT NULL
){clustered};

INSERT INTO item_files (task, attempt, size, mtime, digest)
SELECT id, attempt, -1, 0, '' FROM tasks WHERE state = 'done' AND batch <> ''
