-- Sessions whose calls go through the gateway: the digest of their spending code, how many calls were
-- answered, and why the last one was refused.
ALTER TABLE sessions ADD COLUMN spend_code {text} NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN calls {bigint} NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN refused {text} NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN refusal {text} NOT NULL DEFAULT '';
