-- The hosts that work on the store. `lease_until` is by the clock of the database, 0 without a lease;
-- others may take the claims of a host `margin` milliseconds after it. `leased_by` is the host whose
-- lease keeps the claims of a worker, '' if its claims have leases of their own.
CREATE TABLE hosts (
    id {text} PRIMARY KEY,
    name {text} NOT NULL,
    boot {text} NOT NULL,
    state {text} NOT NULL CHECK (state IN ('up', 'draining', 'gone')),
    epoch {bigint} NOT NULL CHECK (epoch > 0),
    lease_ms {bigint} NOT NULL,
    margin {bigint} NOT NULL,
    lease_until {bigint} NOT NULL,
    registered_at {bigint} NOT NULL,
    seen_at {bigint} NOT NULL,
    pid {bigint} NOT NULL,
    pid_start {bigint} NOT NULL,
    launcher {text} NOT NULL,
    labels {text} NOT NULL,
    resources {text} NOT NULL,
    versions {text} NOT NULL,
    zone {text} NOT NULL DEFAULT '',
    workers {bigint} NOT NULL DEFAULT 0,
    status {text} NOT NULL DEFAULT '{{}}'
){clustered};
ALTER TABLE workers ADD COLUMN leased_by {text} NOT NULL DEFAULT ''
