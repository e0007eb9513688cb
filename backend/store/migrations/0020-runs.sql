-- Fine-tunes. What happens in a run is written here by its supervisor, which lives on the app's own machine.
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    dataset TEXT NOT NULL,
    voice TEXT NOT NULL,
    model TEXT NOT NULL,
    preset TEXT NOT NULL,
    strategy TEXT NOT NULL,
    num_workers INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN (
        'queued', 'starting', 'running', 'judging', 'paused', 'done', 'failed', 'cancelled', 'interrupted'
    )),
    message TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    heartbeat_at REAL,
    process_id INTEGER,
    process_started_at REAL,
    attempt INTEGER NOT NULL DEFAULT 0,
    step INTEGER NOT NULL DEFAULT 0,
    num_steps INTEGER NOT NULL,
    best_checkpoint TEXT,
    verdict TEXT NOT NULL DEFAULT '',
    export_folder TEXT,
    consent TEXT,
    job TEXT NOT NULL
);

-- One row a step, whatever happened on the way: a step trained again after a fault replaces its row.
CREATE TABLE run_metrics (
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    measures TEXT NOT NULL,
    PRIMARY KEY (run_id, step)
) WITHOUT ROWID;

-- The base model has a row too, with the name 'base' and step 0.
CREATE TABLE run_checkpoints (
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    step INTEGER NOT NULL,
    saved_at REAL NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'judging', 'judged', 'failed')),
    problem TEXT NOT NULL DEFAULT '',
    scores TEXT,
    PRIMARY KEY (run_id, name)
) WITHOUT ROWID;

CREATE TABLE run_takes (
    run_id TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    position INTEGER NOT NULL,
    take TEXT NOT NULL,
    PRIMARY KEY (run_id, checkpoint, position),
    FOREIGN KEY (run_id, checkpoint) REFERENCES run_checkpoints (run_id, name) ON DELETE CASCADE
) WITHOUT ROWID;

-- What a person may want to know of later: a worker lost, a resume, a pause.
CREATE TABLE run_events (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    at REAL NOT NULL,
    sentence TEXT NOT NULL
);
