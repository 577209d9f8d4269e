-- What kind of trouble a brake is for: a limit of the account, or an outage of its provider.
ALTER TABLE brakes ADD COLUMN kind {text} NOT NULL DEFAULT 'quota';
