-- Several speakers in one run: who agreed for each of them, as JSON by the name of the voice.
ALTER TABLE runs ADD COLUMN consents TEXT;
