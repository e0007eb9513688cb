-- One row per dataset; `job` is the frozen request, `encoder` the model that listened in the last build.
CREATE TABLE datasets (
    name TEXT PRIMARY KEY,
    job TEXT NOT NULL,
    created_at TEXT NOT NULL DEFAULT (datetime('now')),
    chosen_reference_key TEXT,
    encoder TEXT,
    rows_are_current INTEGER NOT NULL DEFAULT 0
);

-- How the build under way is doing, or how the last one ended; readable from any process.
CREATE TABLE dataset_builds (
    dataset TEXT PRIMARY KEY REFERENCES datasets (name) ON DELETE CASCADE,
    state TEXT NOT NULL,
    process_id INTEGER,
    problem TEXT NOT NULL DEFAULT '',
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    started_at REAL NOT NULL,
    heartbeat_at REAL NOT NULL,
    finished_at REAL
);

CREATE TABLE dataset_stages (
    dataset TEXT NOT NULL REFERENCES datasets (name) ON DELETE CASCADE,
    stage TEXT NOT NULL,
    num_done INTEGER NOT NULL,
    num_reused INTEGER NOT NULL,
    num_failed INTEGER NOT NULL,
    num_total INTEGER,
    audio_seconds REAL NOT NULL,
    started_at REAL,
    PRIMARY KEY (dataset, stage)
);

-- A file as the person gave it: decoded and cut, or with the reason why not.
CREATE TABLE dataset_recordings (
    dataset TEXT NOT NULL REFERENCES datasets (name) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    recording_id TEXT,
    seconds REAL,
    num_clips INTEGER NOT NULL DEFAULT 0,
    problem TEXT NOT NULL DEFAULT '',
    details TEXT NOT NULL,
    PRIMARY KEY (dataset, position)
);

-- `key` says where a clip was first cut and outlives edits; `clip_id` is the hash of its audio as it is now.
CREATE TABLE dataset_clips (
    dataset TEXT NOT NULL REFERENCES datasets (name) ON DELETE CASCADE,
    key TEXT NOT NULL,
    position INTEGER NOT NULL,
    clip_id TEXT NOT NULL,
    verdict TEXT NOT NULL,
    held_out INTEGER NOT NULL,
    is_reference INTEGER NOT NULL,
    seconds REAL NOT NULL,
    details TEXT NOT NULL,
    PRIMARY KEY (dataset, key)
);

-- What a person decided about a clip; each column is NULL where the build's own result holds.
CREATE TABLE dataset_edits (
    dataset TEXT NOT NULL REFERENCES datasets (name) ON DELETE CASCADE,
    key TEXT NOT NULL,
    text TEXT,
    verdict TEXT,
    start_seconds REAL,
    end_seconds REAL,
    PRIMARY KEY (dataset, key)
);
