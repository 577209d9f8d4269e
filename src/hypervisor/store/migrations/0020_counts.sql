-- How many tasks there are, by batch, type and state, as of an event: see queue/sql/counts.py.
CREATE TABLE counts (
    batch {text} NOT NULL,
    type {text} NOT NULL,
    state {text} NOT NULL,
    tasks {bigint} NOT NULL,
    PRIMARY KEY (batch, type, state)
){clustered};
CREATE TABLE count_changes (
    batch {text} NOT NULL,
    type {text} NOT NULL,
    state {text} NOT NULL,
    tasks {bigint} NOT NULL
);
CREATE TABLE counted_events (number {bigint} NOT NULL);
{number_all_events}
INSERT INTO counts (batch, type, state, tasks)
SELECT t.batch, l.type, t.state, count(*) FROM tasks t JOIN lanes l ON l.id = t.lane
GROUP BY t.batch, l.type, t.state;
INSERT INTO counted_events (number) SELECT coalesce(max({event_seq}), 0) FROM events
