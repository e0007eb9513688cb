-- A voice's artefacts lie in ENCORE_HOME/voices/ID; a rename therefore touches nothing but its row.
CREATE TABLE voices (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    name_key TEXT NOT NULL UNIQUE, -- the name without its case, so that "Anna" and "anna" are one
    record TEXT NOT NULL, -- backend.voices.voice.VoiceRecord as JSON
    created_at TEXT NOT NULL
) STRICT;

-- Columns of their own: who agreed to what and when must be readable without this program.
CREATE TABLE consents (
    voice_id TEXT PRIMARY KEY REFERENCES voices (id) ON DELETE CASCADE,
    who TEXT NOT NULL,
    given_at TEXT NOT NULL,
    statement TEXT NOT NULL,
    wording TEXT NOT NULL,
    spoken TEXT -- backend.voices.consent.SpokenProof as JSON, if the consent was also spoken
) STRICT;
