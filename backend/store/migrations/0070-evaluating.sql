-- Checkpoints are evaluated, and clips reviewed. SQLite cannot change a CHECK: both tables are copied. Nothing is deleted
-- with the tables they replace, because no reference is checked while migrations run.
CREATE TABLE new_runs (
    id TEXT PRIMARY KEY,
    dataset TEXT NOT NULL,
    voice TEXT NOT NULL,
    model TEXT NOT NULL,
    preset TEXT NOT NULL,
    strategy TEXT NOT NULL,
    num_workers INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN (
        'queued', 'starting', 'running', 'evaluating', 'paused', 'done', 'failed', 'cancelled', 'interrupted'
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
INSERT INTO new_runs SELECT
    id, dataset, voice, model, preset, strategy, num_workers,
    CASE state WHEN 'judging' THEN 'evaluating' ELSE state END,
    message, created_at, started_at, ended_at, heartbeat_at, process_id, process_started_at, attempt, step, num_steps,
    best_checkpoint, verdict, export_folder, consent, job
FROM runs;
DROP TABLE runs;
ALTER TABLE new_runs RENAME TO runs;

CREATE TABLE new_run_checkpoints (
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    step INTEGER NOT NULL,
    saved_at REAL NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'evaluating', 'evaluated', 'failed')),
    problem TEXT NOT NULL DEFAULT '',
    scores TEXT,
    PRIMARY KEY (run_id, name)
) WITHOUT ROWID;
INSERT INTO new_run_checkpoints SELECT
    run_id, name, step, saved_at,
    CASE state WHEN 'judging' THEN 'evaluating' WHEN 'judged' THEN 'evaluated' ELSE state END,
    problem, scores
FROM run_checkpoints;
DROP TABLE run_checkpoints;
ALTER TABLE new_run_checkpoints RENAME TO run_checkpoints;

ALTER TABLE dataset_judgements RENAME TO dataset_reviews;
ALTER TABLE dataset_reviews RENAME COLUMN judgement TO review;
