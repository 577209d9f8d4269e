-- State that was in the settings until now, under names made of a word and an id.
ALTER TABLE batches ADD COLUMN workers {bigint};
ALTER TABLE batches ADD COLUMN retry_delay {bigint};
ALTER TABLE batches ADD COLUMN run_at {bigint};
ALTER TABLE batches ADD COLUMN skipped {bigint} NOT NULL DEFAULT 0;
ALTER TABLE batches ADD COLUMN budget_warned {text} NOT NULL DEFAULT '';

CREATE TABLE memory_peaks (
    type {text} NOT NULL,
    agent {text} NOT NULL,
    bytes {bigint} NOT NULL,
    PRIMARY KEY (type, agent)
){clustered};

CREATE TABLE parallel_priors (
    type {text} PRIMARY KEY,
    prior {text} NOT NULL
){clustered};

CREATE TABLE learned_records (
    host {text} NOT NULL,
    kind {text} NOT NULL,
    record {text} NOT NULL,
    PRIMARY KEY (host, kind)
){clustered};

CREATE TABLE learner_cursors (
    host {text} PRIMARY KEY,
    number {bigint} NOT NULL
){clustered};

CREATE TABLE clocks (
    namespace {text} PRIMARY KEY,
    boot {text} NOT NULL,
    ahead {bigint} NOT NULL
){clustered};

UPDATE batches SET
    workers = (SELECT CAST(value AS {bigint}) FROM settings WHERE name = 'workers ' || id),
    retry_delay = (SELECT CAST(value AS {bigint}) FROM settings WHERE name = 'retry_delay ' || id),
    run_at = (SELECT CAST(substr(value, 1, {find}(value, ' ') - 1) AS {bigint}) FROM settings
        WHERE name = 'latest run' AND substr(value, {find}(value, ' ') + 1) = id),
    skipped = coalesce(
        (SELECT CAST(value AS {bigint}) FROM settings WHERE name = 'skipped ' || id), 0),
    budget_warned = coalesce(
        (SELECT value FROM settings WHERE name = 'budget warned ' || id), '');
INSERT INTO memory_peaks (type, agent, bytes)
SELECT '', substr(name, 12), CAST(value AS {bigint}) FROM settings
WHERE substr(name, 1, 11) = 'peak agent ';
INSERT INTO memory_peaks (type, agent, bytes)
SELECT substr(name, 6), '', CAST(value AS {bigint}) FROM settings
WHERE substr(name, 1, 5) = 'peak ' AND substr(name, 1, 11) <> 'peak agent ';
INSERT INTO parallel_priors (type, prior)
SELECT substr(name, 16), value FROM settings WHERE substr(name, 1, 15) = 'parallel prior ';
INSERT INTO learned_records (host, kind, record)
SELECT substr(name, 9, {find}(name, '|') - 9), substr(name, {find}(name, '|') + 1), value
FROM settings WHERE substr(name, 1, 8) = 'learned ' AND {find}(name, '|') > 0;
INSERT INTO learner_cursors (host, number)
SELECT substr(name, 9), CAST(value AS {bigint})
FROM settings WHERE substr(name, 1, 8) = 'learned ' AND {find}(name, '|') = 0;
INSERT INTO clocks (namespace, boot, ahead)
SELECT substr(name, 7), substr(value, 1, {find}(value, ' ') - 1),
    CAST(substr(value, {find}(value, ' ') + 1) AS {bigint})
FROM settings WHERE substr(name, 1, 6) = 'clock ';
DELETE FROM settings WHERE name = 'latest run' OR substr(name, 1, 5) = 'peak '
    OR substr(name, 1, 6) = 'clock ' OR substr(name, 1, 14) = 'budget warned '
    OR substr(name, 1, 8) IN ('workers ', 'skipped ', 'learned ')
    OR substr(name, 1, 12) = 'retry_delay ' OR substr(name, 1, 15) = 'parallel prior '
