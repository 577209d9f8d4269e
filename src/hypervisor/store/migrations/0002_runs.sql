-- What running work needs: how a batch is run, what is paused, who shall stop, what it cost.
ALTER TABLE batches ADD COLUMN spec {text};
ALTER TABLE lanes ADD COLUMN paused {bigint} NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN batch {text};
ALTER TABLE workers ADD COLUMN ended_at {bigint};
ALTER TABLE attempts ADD COLUMN exit_code {bigint};
ALTER TABLE attempts ADD COLUMN cpu_ms {bigint};
ALTER TABLE attempts ADD COLUMN peak_kb {bigint};
ALTER TABLE attempts ADD COLUMN output_bytes {bigint};
CREATE INDEX workers_at_work ON workers (boot) WHERE batch IS NOT NULL AND ended_at IS NULL;

CREATE TABLE pauses (
    scope {text} NOT NULL CHECK (scope IN ('all', 'batch', 'type')),
    name {text} NOT NULL,
    reason {text} NOT NULL,
    actor {text} NOT NULL,
    at {bigint} NOT NULL,
    PRIMARY KEY (scope, name)
){clustered};

CREATE TABLE stops (
    task {text} PRIMARY KEY,
    attempt {bigint} NOT NULL,
    next {text} NOT NULL CHECK (next IN ('cancel', 'fail', 'release')),
    reason {text} NOT NULL,
    actor {text} NOT NULL,
    at {bigint} NOT NULL
){clustered};

CREATE TABLE settings (
    name {text} PRIMARY KEY,
    value {text} NOT NULL
){clustered};
