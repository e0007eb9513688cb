-- What was spoken and is kept. The sound lies in ENCORE_HOME/takes under the take's id; oldest rows go first.
CREATE TABLE takes (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL, -- whose list it is in: the name that a browser gave itself, or nothing for the API's
    number INTEGER NOT NULL, -- counts from 1 within the list
    made_at REAL NOT NULL,
    num_bytes INTEGER NOT NULL,
    record TEXT NOT NULL -- backend.takes.take.TakeFacts as JSON
) STRICT;

CREATE INDEX takes_of_owner ON takes (owner, number);
