-- How far a finding can be trusted: 'agent' until a person has reviewed it, 'reviewed', or 'person'
-- if a person stored it. The index serves the list of those to review.
ALTER TABLE findings ADD COLUMN trust {text} NOT NULL DEFAULT 'agent';
CREATE INDEX findings_unreviewed ON findings (branch, id) WHERE trust = 'agent';
