-- The tools that were refused to an agent, as a JSON list; '' for none.
ALTER TABLE sessions ADD COLUMN denied {text} NOT NULL DEFAULT ''
