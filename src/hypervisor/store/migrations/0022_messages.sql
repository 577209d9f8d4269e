-- What people wrote about a task: answers and notes. `attempt` is the one that was given it.
CREATE TABLE messages (
    id {text} PRIMARY KEY,
    task {text} NOT NULL,
    kind {text} NOT NULL CHECK (kind IN ('answer', 'note')),
    text {text} NOT NULL,
    asked {text} NOT NULL,
    actor {text} NOT NULL,
    at {bigint} NOT NULL,
    attempt {bigint}
);
CREATE INDEX messages_of_task ON messages (task, id);
CREATE INDEX messages_unread ON messages (task) WHERE attempt IS NULL
