-- A store knows itself under all its names.
INSERT INTO settings (name, value) VALUES ('store id', {random_id})
