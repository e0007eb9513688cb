-- What was compared, and what the listener said. The sound itself is not kept: text, seed and sides make it again.
CREATE TABLE comparisons (
    id TEXT PRIMARY KEY,
    made_at TEXT NOT NULL,
    text TEXT NOT NULL,
    language TEXT NOT NULL,
    seed TEXT NOT NULL,
    is_blind INTEGER NOT NULL,
    -- JSON: the sides in the order of their letters, with what was measured on them.
    takes TEXT NOT NULL,
    verdict TEXT CHECK (verdict IN ('A', 'B', 'C', 'same', 'bad')),
    voted_at TEXT
);
