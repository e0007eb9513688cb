-- Whose a thing is: a tenant's, for whom there are keys of the API, or nobody's name for the operator's own, which is all that
-- was there before. Names of voices are unique for each tenant. SQLite cannot change a UNIQUE: the table is copied.
CREATE TABLE new_voices (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL DEFAULT '',
    name TEXT NOT NULL,
    name_key TEXT NOT NULL, -- the name without its case, so that "Anna" and "anna" are one
    record TEXT NOT NULL, -- backend.voices.voice.VoiceRecord as JSON
    created_at TEXT NOT NULL,
    UNIQUE (tenant, name_key)
) STRICT;
INSERT INTO new_voices (id, name, name_key, record, created_at) SELECT id, name, name_key, record, created_at FROM voices;
DROP TABLE voices;
ALTER TABLE new_voices RENAME TO voices;

ALTER TABLE takes ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
CREATE INDEX takes_of_tenant ON takes (tenant, made_at);
ALTER TABLE trash ADD COLUMN tenant TEXT NOT NULL DEFAULT '';

-- Keys of the API, of which only the hashes are known here. One that is revoked stays, so that the API of a home which once had
-- keys is never open to everybody again.
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    label TEXT NOT NULL,
    digest TEXT NOT NULL UNIQUE, -- SHA-256 of the key, in hexadecimal digits
    created_at REAL NOT NULL,
    last_used_at REAL,
    revoked_at REAL
) STRICT;

-- Where a tenant's limits differ from those of the installation: backend.tenants.limits.LimitChanges as JSON.
CREATE TABLE tenant_limits (
    tenant TEXT PRIMARY KEY,
    changes TEXT NOT NULL
) STRICT;

-- What tenants with limits have left: requests at a moment, from which on they fill up again.
CREATE TABLE tenant_requests (
    tenant TEXT PRIMARY KEY,
    num_left REAL NOT NULL,
    at REAL NOT NULL
) STRICT;

-- What they have spoken of each day.
CREATE TABLE tenant_characters (
    tenant TEXT NOT NULL,
    day TEXT NOT NULL, -- in UTC, such as 2026-11-25
    num_characters INTEGER NOT NULL,
    PRIMARY KEY (tenant, day)
) STRICT, WITHOUT ROWID;
