-- What was deleted and can still be restored. Its rows are here and nowhere else; its files stay where they are, but for
-- those whose place another thing of the same name would need.
CREATE TABLE trash (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('take', 'voice', 'dataset', 'run')),
    item_id TEXT NOT NULL,
    owner TEXT NOT NULL, -- of a take: whose list it was in
    label TEXT NOT NULL, -- what people call it
    deleted_at REAL NOT NULL,
    num_bytes INTEGER NOT NULL,
    content TEXT NOT NULL, -- JSON: rows by table, in the order in which they refer to each other
    files TEXT NOT NULL, -- JSON: what goes with it, relative to the home
    moved_from TEXT NOT NULL DEFAULT '', -- place of files that had to make room, relative to the home
    is_settled INTEGER NOT NULL DEFAULT 1, -- whether they have made room for certain
    is_going INTEGER NOT NULL DEFAULT 0 -- whether its files are being removed: it cannot be restored any more
) STRICT;
