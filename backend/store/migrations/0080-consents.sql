-- Who agreed that a recording of a dataset is cloned, by the hash of its content; the one consent may cover many.
CREATE TABLE recording_consents (
    dataset TEXT NOT NULL REFERENCES datasets (name) ON DELETE CASCADE,
    recording_id TEXT NOT NULL,
    consent TEXT NOT NULL, -- backend.voices.consent.Consent as JSON
    PRIMARY KEY (dataset, recording_id)
) WITHOUT ROWID;

-- What it was given for, and the consents of others whose recordings the voice is made of, too.
ALTER TABLE consents ADD COLUMN given_for TEXT;
ALTER TABLE consents ADD COLUMN also TEXT NOT NULL DEFAULT '[]';
