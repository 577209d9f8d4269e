-- Since when a batch is archived; whether its deletion has begun.
ALTER TABLE batches ADD COLUMN archived_at {bigint};
ALTER TABLE batches ADD COLUMN deleting {bigint} NOT NULL DEFAULT 0
